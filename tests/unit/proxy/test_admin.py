"""The published service Admin: a super user changes the level of a proxy's log, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gantry_protocol.access.rules import User
from gantry_protocol.process import log
from gantry_protocol.quorum_key import KeyFile, write_key
from gantry_proxy.access import CallGate
from gantry_proxy.admin import CHANGE_LOG_LEVEL, NOT_JUDGED, AdminService
from gantry_proxy.core.demands import TABLE
from gantry_proxy.messages import ADMIN_METHODS, ChangeLogLevelRequest, ChangeLogLevelResponse
from gantry_proxy.rpc import CallAborted
from support.grpc_client import FakeCall
from support.told_users import Known

SECRET = "a-secret-of-somebody"
TRACE, DEBUG, INFO, WARN, ERROR = range(5)


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = log.level()
    log.set_level("info")
    yield
    log.set_level(before)


@pytest.fixture
def users(tmp_path: Path) -> Known:
    return Known(KeyFile(write_key(tmp_path / "key")))


def root() -> FakeCall:
    return FakeCall(user="root", secret=SECRET)


async def asked(users: Known | None, call: FakeCall, level: int = WARN) -> str:
    """The answer's remark."""
    serve = AdminService(CallGate(users)).methods().unary[CHANGE_LOG_LEVEL]
    data = ChangeLogLevelRequest(level=level).SerializeToString()
    return str(ChangeLogLevelResponse.FromString(await serve(data, call)).remark)


def test_what_is_published_is_served_and_needs_a_super_user() -> None:
    assert set(AdminService(CallGate(None)).methods().unary) == ADMIN_METHODS
    assert not set(TABLE) & ADMIN_METHODS


@pytest.mark.parametrize(
    ("named", "ours"),
    [(TRACE, "debug"), (DEBUG, "debug"), (INFO, "info"), (WARN, "warning"), (ERROR, "error")],
)
async def test_a_super_user_changes_the_level_and_it_is_told(
    users: Known, caplog: pytest.LogCaptureFixture, named: int, ours: str
) -> None:
    users.tell(root=User(SECRET, "Super"))
    log.set_level("error")
    assert await asked(users, root(), named) == f"logs at {ours}; before at error"
    assert log.level() == ours
    (told,) = (record for record in caplog.records if record.name == "gantry.admin")
    assert told.facts == {"user": "root", "before": "error", "now": ours}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (FakeCall(), "is not signed"),
        (FakeCall(user="root", secret="another-secret"), "is not known here, or has not"),
        (FakeCall(user="ada", secret=SECRET), "may not make ChangeLogLevel: super users may"),
    ],
)
async def test_who_is_no_super_user_is_denied(users: Known, call: FakeCall, sentence: str) -> None:
    users.tell(root=User(SECRET, "Super"), ada=User(SECRET))
    with pytest.raises(CallAborted, match=sentence) as refused:
        await asked(users, call)
    assert (refused.value.code, log.level()) == ("PERMISSION_DENIED", "info")


async def test_where_nobody_is_judged_nobody_may(users: Known) -> None:
    with pytest.raises(CallAborted) as refused:
        await asked(users, root())
    assert (refused.value.code, log.level()) == ("UNAVAILABLE", "info")
    users.tell(enabled=False, root=User(SECRET, "Super"))
    for judging in (users, None):
        with pytest.raises(CallAborted, match=NOT_JUDGED) as refused:
            await asked(judging, root())
        assert (refused.value.code, log.level()) == ("PERMISSION_DENIED", "info")


async def test_a_level_that_is_none_changes_nothing(users: Known) -> None:
    users.tell(root=User(SECRET, "Super"))
    with pytest.raises(CallAborted, match="there is no log level 9") as refused:
        await asked(users, root(), 9)
    assert (refused.value.code, log.level()) == ("INVALID_ARGUMENT", "info")
    serve = AdminService(CallGate(users)).methods().unary[CHANGE_LOG_LEVEL]
    with pytest.raises(CallAborted, match="does not read"):
        await serve(b"\xff", root())
