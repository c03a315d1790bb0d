"""The operator's last acts: what it lets go, what it stays for, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator import farewell, names
from gantry_operator.api.errors import ApiError, Conflict, Denied, Unavailable
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, FRONT_GROUP, NAMESPACE
from gantry_operator.cache import Cache
from gantry_operator.plan.deletion import let_go
from unit.operator.fake_api import FakeApi

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]
HELD = [names.QUORUM_FINALIZER]
CLEANED = [names.FINALIZER]
DENIED = Denied(403, "Forbidden", "no right")
DOWN = Unavailable(503, "ServerError", "down")


def body(name: str, finalizers: list[str], *, going: bool = True, **spec: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": "mq",
        "uid": name,
        "resourceVersion": "1",
        "finalizers": finalizers,
    }
    return {"metadata": meta | ({"deletionTimestamp": "now"} if going else {}), "spec": spec}


def known(
    *,
    quorum: dict[str, Any] | None = None,
    group: dict[str, Any] | None = None,
    fronts: dict[str, Any] | None = None,
) -> Cache:
    cache = Cache()
    for kind, one in ((CONTROLLER_GROUP, quorum), (BROKER_GROUP, group), (FRONT_GROUP, fronts)):
        if one is not None:
            cache.put(kind, one)
    return cache


AWAITED = [
    pytest.param(known(), False, id="nothing"),
    pytest.param(known(quorum=body("gantry", HELD)), True, id="a-quorum-that-nobody-needs"),
    pytest.param(known(quorum=body("gantry", HELD, going=False)), False, id="no-deletion"),
    pytest.param(known(quorum=body("gantry", ["others/one"])), False, id="held-by-others"),
    pytest.param(
        known(quorum=body("gantry", HELD), group=body("orders", [], going=False)),
        False,
        id="a-group-stays",
    ),
    pytest.param(
        known(quorum=body("gantry", HELD), fronts=body("clients", [], going=False)),
        False,
        id="fronts-stay",
    ),
    pytest.param(
        known(quorum=body("gantry", HELD), group=body("orders", ["others/one"])),
        True,
        id="the-group-goes-too",
    ),
    pytest.param(
        known(
            quorum=body("gantry", HELD),
            group=body("orders", [], going=False, controllerRef={"name": "another"}),
        ),
        True,
        id="a-group-of-another-quorum-stays",
    ),
    pytest.param(known(group=body("orders", CLEANED)), True, id="metadata-to-clean"),
    pytest.param(known(group=body("orders", [])), False, id="no-metadata-to-clean"),
]


@pytest.mark.parametrize(("cache", "wanted"), AWAITED)
async def test_it_stays_for_deletions_that_wait_for_it_alone(
    cache: Cache, wanted: bool, looptime: Any
) -> None:
    assert farewell.is_awaited(cache) == wanted
    await farewell.finish(cache)
    assert looptime == (farewell.FINISH_S if wanted else 0)


async def test_only_its_own_finalizers_are_let_go() -> None:
    meta = body("gantry", ["others/one", *HELD, *CLEANED])["metadata"]
    assert let_go(meta) == {
        "metadata": {"uid": "gantry", "resourceVersion": "1", "finalizers": ["others/one"]}
    }
    assert let_go(body("gantry", ["others/one"])["metadata"]) is None
    assert let_go({"name": "gantry"}) is None


def a_namespace() -> FakeApi:
    api = FakeApi()
    api.have(CONTROLLER_GROUP, "gantry", metadata={"finalizers": HELD})
    api.have(BROKER_GROUP, "orders", metadata={"finalizers": CLEANED})
    api.have(BROKER_GROUP, "else", namespace="elsewhere", metadata={"finalizers": CLEANED})
    return api


def left(api: FakeApi) -> dict[str, list[str]]:
    return {name: one["metadata"]["finalizers"] for (*_, name), one in api.objects.items()}


@pytest.mark.parametrize("error", [Conflict(409, "Conflict", "older"), DOWN])
async def test_everything_in_the_namespace_is_let_go_whatever_comes_between(
    error: ApiError,
) -> None:
    api = a_namespace()
    api.refuse("merge", BROKER_GROUP, error, times=2)
    await farewell.let_go(api, "mq")
    assert left(api) == {"gantry": [], "orders": [], "else": CLEANED}


@pytest.mark.parametrize(
    ("error", "patience_s"),
    [pytest.param(DENIED, 0, id="rights-gone"), pytest.param(DOWN, farewell.LET_GO_S, id="down")],
)
async def test_what_cannot_be_let_go_is_told_and_ends(
    error: ApiError, patience_s: float, looptime: Any, caplog: pytest.LogCaptureFixture
) -> None:
    api = a_namespace()
    api.refuse("merge", CONTROLLER_GROUP, error)
    await farewell.let_go(api, "mq")
    assert left(api)["gantry"] == HELD
    assert looptime == patience_s
    assert "by hand" in caplog.text


@pytest.mark.parametrize(
    ("meta", "error", "wanted"),
    [
        pytest.param({"deletionTimestamp": "now"}, None, True, id="ends"),
        pytest.param({}, None, False, id="stays"),
        pytest.param(None, None, False, id="gone"),
        pytest.param({"deletionTimestamp": "now"}, DENIED, False, id="no-right"),
        pytest.param({"deletionTimestamp": "now"}, DOWN, False, id="down"),
    ],
)
async def test_whether_a_namespace_ends(
    meta: dict[str, Any] | None, error: ApiError | None, wanted: bool
) -> None:
    api = FakeApi()
    if meta is not None:
        api.have(NAMESPACE, "mq", namespace="", metadata=meta)
    if error is not None:
        api.refuse("get", NAMESPACE, error)
    assert await farewell.is_ending(api, "mq") == wanted
