"""`gantry status` and `gantry forget`: what they say of groups that are not well."""

from __future__ import annotations

from typing import Any, Self

import pytest
from click.testing import CliRunner
from gantry_cli.commands import forget
from gantry_cli.commands.status import headline
from gantry_cli.main import cli
from gantry_protocol.admin import GroupView, MemberView


def group(*alive: int, **facts: Any) -> GroupView:
    """Three members, all in the set; those that are `alive`."""
    members = [
        MemberView(broker_id=n, address=f"h{n}:1", alive=n in alive, in_sync=True)
        for n in (1, 2, 3)
    ]
    defaults: dict[str, Any] = {
        "cluster": "gantry",
        "name": "orders",
        "uid": "u1",
        "replicas": 3,
        "min_in_sync_replicas": 2,
        "master_broker_id": 1,
        "master_epoch": 4,
        "sync_state_set": [1, 2, 3],
        "sync_state_set_epoch": 9,
        "members": members,
    }
    return GroupView(**(defaults | facts))


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(group(1, 2, 3), "healthy", id="well"),
        pytest.param(group(), "NOBODY LIVES", id="all-gone"),
        pytest.param(group(2, 3), "MASTER GONE", id="master-gone"),
        pytest.param(group(1, 2), "2 of 3 in sync,", id="one-gone"),
        pytest.param(group(1), "1 of 3 in sync, NOTHING IS ACKNOWLEDGED", id="two-gone"),
        pytest.param(group(1, 2, 3, master_broker_id=None), "NO MASTER", id="no-master"),
        pytest.param(group(retired=True), "RETIRED", id="retired"),
    ],
)
def test_only_who_lives_counts(seen: GroupView, words: str) -> None:
    assert headline(seen).startswith(f"Group orders of cluster gantry: {words}")


class FakeAdmin:
    """Knows the groups that a test names, and notes what it is to forget."""

    groups_known: list[GroupView]
    asked: list[tuple[str, str, int | None]]

    def __init__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def groups(self) -> list[GroupView]:
        return self.groups_known

    async def forget(self, found: GroupView, broker_id: int | None = None) -> None:
        self.asked.append((found.cluster, found.name, broker_id))


@pytest.mark.parametrize(
    ("args", "known", "asked"),
    [
        pytest.param(["--member", "3"], [group(1, 2)], ("gantry", "orders", 3), id="member"),
        pytest.param(["--yes"], [group(retired=True)], ("gantry", "orders", None), id="retired"),
        pytest.param(["--yes"], [group()], "is not retired", id="not-retired"),
        pytest.param([], [group(retired=True)], "--yes", id="asks-first"),
        pytest.param(["--member", "7"], [group(1)], "has no member 7", id="no-such-member"),
        pytest.param(["--member", "3"], [], "know no group orders", id="no-such-group"),
        pytest.param(
            ["--member", "3"], [group(), group(cluster="b")], "give --cluster", id="two-clusters"
        ),
        pytest.param(
            ["--member", "3", "--cluster", "b"],
            [group(), group(cluster="b")],
            ("b", "orders", 3),
            id="one-of-two-clusters",
        ),
    ],
)
def test_forget(
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    known: list[GroupView],
    asked: tuple[str, str, int | None] | str,
    tmp_path: Any,
) -> None:
    FakeAdmin.groups_known, FakeAdmin.asked = known, []
    monkeypatch.setattr(forget, "AdminClient", FakeAdmin)
    token = tmp_path / "token"
    token.write_text("t")
    place = ["--controllers", "h:1", "--admin-token-file", str(token)]
    done = CliRunner().invoke(cli, ["forget", "orders", *args, *place])
    if isinstance(asked, str):
        assert done.exit_code != 0
        assert asked in f"{done.exception} {done.output}"
        assert not FakeAdmin.asked
    else:
        assert done.exit_code == 0, done.exception
        assert FakeAdmin.asked == [asked]
