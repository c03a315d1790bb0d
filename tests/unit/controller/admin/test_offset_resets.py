"""The admin API's route about resets of offsets: who is asked, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_controller.admin import offset_resets
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from support.admin_api import Api
from support.controller_dispatcher import CLUSTER, NAME, address
from support.told_masters import QUEUES

RESETS = f"/v1/clusters/{CLUSTER}/consumer-groups/billing/resets"
WISH: dict[str, Any] = {"request": 3, "timestamp": 0, "topics": ["orders"]}
MASTER = address(1)


@pytest.fixture
async def served(admin: Api) -> Api:
    """A group with a master, and a topic."""
    await admin.three_in_sync()
    topics = f"/v1/clusters/{CLUSTER}/topics/orders"
    assert (await admin.call("PUT", topics, {"readQueues": 4, "writeQueues": 4}))[0] == 200
    return admin


async def test_masters_that_have_the_topic_carry_it_out_and_again_nothing(served: Api) -> None:
    before = served.harness.quorum.index
    done = {"request": 3, "queues": QUEUES, "waiting": [], "refused": ""}
    for _ in range(2):
        assert await served.call("POST", RESETS, WISH) == (200, done)
    assert served.masters.carried_out == [(MASTER, "orders", 3, 0)]
    assert len(served.masters.asked) == 2
    assert served.harness.quorum.index == before, "the quorum keeps nothing of it"


async def test_what_is_not_done_is_told_and_done_the_next_time(served: Api) -> None:
    served.masters.away.add(MASTER)
    wish = WISH | {"topics": ["orders", "nowhere"]}
    status, told = await served.call("POST", RESETS, wish)
    assert (status, told["queues"], told["refused"]) == (200, 0, "")
    assert told["waiting"][0] == "no broker group has nowhere"
    assert told["waiting"][1].startswith(f"orders in {NAME}: ")
    served.masters.away.clear()
    _, told = await served.call("POST", RESETS, wish)
    assert (told["queues"], told["waiting"]) == (QUEUES, ["no broker group has nowhere"])


async def test_a_master_that_does_not_answer_holds_nobody_up(
    served: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_resets, "WITHIN_S", 0.05)
    served.masters.silent.add(MASTER)
    _, told = await served.call("POST", RESETS, WISH)
    assert told["waiting"] == [f"orders in {NAME}: its master has not answered"]


async def test_a_refusal_is_passed_on_in_the_broker_s_words(served: Api) -> None:
    served.masters.refusals["orders"] = "request 3 comes too late"
    _, told = await served.call("POST", RESETS, WISH)
    assert told["refused"] == f"orders in {NAME}: request 3 comes too late"


@pytest.mark.parametrize(
    ("code", "ext", "field", "words"),
    [
        (ResponseCode.SUCCESS, {}, "refused", "older than this controller"),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, {}, "waiting", "so"),
        (ResponseCode.SYSTEM_BUSY, {}, "waiting", "so"),
    ],
)
async def test_an_older_broker_is_not_asked_again_and_a_busy_one_is(
    served: Api,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    ext: dict[str, str],
    field: str,
    words: str,
) -> None:
    async def ask(_: str, command: RemotingCommand) -> RemotingCommand:
        return reply(command, code, "so", ext)

    monkeypatch.setattr(served.masters, "ask", ask)
    api = offset_resets.OffsetResetsApi(served.api, served.harness.machine, ask)
    wish = offset_resets.OffsetResetWish(**WISH)
    view = await api._carry_out(CLUSTER, "billing", wish)
    assert words in str(getattr(view, field))


@pytest.mark.parametrize(
    "changes",
    [{"request": 0}, {"timestamp": -2}, {"topics": []}, {"topics": ["t"] * 17}, {"more": 1}],
)
async def test_what_makes_no_sense_asks_nobody(served: Api, changes: dict[str, Any]) -> None:
    status, _ = await served.call("POST", RESETS, WISH | changes)
    assert status == 400
    assert not served.masters.asked
