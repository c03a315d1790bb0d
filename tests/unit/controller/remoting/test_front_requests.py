"""31010, as fronts send it: what they serve, and the answer that waits for a change."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from gantry_controller.metadata.events import DeclareGroup, RemoveGroup, RetireGroup
from gantry_controller.remoting import long_polls
from gantry_controller.remoting.dispatcher import ANSWER_WITHIN_S
from gantry_protocol.admin import MAX_FRONT_PORTS
from gantry_protocol.bodies.fronts import FrontGroupRow, FrontGroups
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.headers.fronts import WAIT_MAX_MS
from gantry_protocol.types import Epoch
from support.controller_dispatcher import CLUSTER, NAME, Harness, address

GET = RequestCode.GANTRY_GET_FRONT_GROUPS


def declare(harness: Harness, *names: str, cluster: str = CLUSTER) -> None:
    for name in names:
        event = DeclareGroup(
            cluster=cluster, name=name, uid=name, replicas=1, min_in_sync_replicas=1
        )
        harness.apply(event)


def ask(harness: Harness, digest: str = "", wait_ms: int = 0) -> list[RemotingCommand]:
    ext = {"clusterName": CLUSTER, "digest": digest, "waitMs": str(wait_ms)}
    return harness.ask(GET, ext)


def read(answers: list[RemotingCommand]) -> FrontGroups:
    (answer,) = answers
    assert answer.code == 0
    return msgspec.json.decode(answer.body, type=FrontGroups)


def indexes(groups: FrontGroups) -> dict[str, int]:
    return {group.name: group.index for group in groups.groups}


async def turn() -> None:
    """What a turn of the loop has put off is done in the next."""
    await asyncio.sleep(0)


async def test_fronts_hear_of_each_group_and_its_master(harness: Harness) -> None:
    declare(harness, NAME, "broker-b")
    declare(harness, "elsewhere", cluster="another")
    harness.join(1)
    assert harness.elect(1).code == 0
    told = read(ask(harness))
    assert told.groups == [
        FrontGroupRow(NAME, 0, harness.group.master_epoch, address(1), NAME),
        FrontGroupRow("broker-b", 1, Epoch(0), uid="broker-b"),
    ]
    ext = harness.call(1004, {"clusterName": CLUSTER, "brokerName": NAME}).ext or {}
    assert told.groups[0].master_address == ext["masterAddress"]


async def test_who_holds_the_present_digest_is_told_nothing(harness: Harness) -> None:
    declare(harness, NAME)
    held = read(ask(harness))
    assert read(ask(harness, held.digest)) == FrontGroups(held.digest, [])
    assert read(ask(harness, "another")) == held


async def test_a_cluster_without_groups_has_a_digest_too(harness: Harness) -> None:
    nothing = read(ask(harness))
    assert (nothing.groups, bool(nothing.digest)) == ([], True)
    answers = ask(harness, nothing.digest, 5000)
    declare(harness, NAME)
    await turn()
    assert indexes(read(answers)) == {NAME: 0}


async def test_a_change_of_master_is_told_in_the_next_turn(harness: Harness) -> None:
    declare(harness, NAME)
    harness.join(1)
    before = read(ask(harness))
    answers = ask(harness, before.digest, WAIT_MAX_MS)
    await turn()
    assert answers == []
    assert harness.elect(1).code == 0
    await turn()
    after = read(answers)
    assert after == read(ask(harness))
    assert [(group.epoch, group.master_address) for group in after.groups] == [(1, address(1))]
    assert harness.requests.fronts.polls.waiting == 0


async def test_many_changes_of_one_turn_are_one_answer(harness: Harness) -> None:
    waiting = [ask(harness, read(ask(harness)).digest, WAIT_MAX_MS) for _ in range(3)]
    declare(harness, "broker-c", "broker-a", "broker-b")
    await turn()
    for answers in waiting:
        assert indexes(read(answers)) == {"broker-a": 0, "broker-b": 1, "broker-c": 2}


async def test_a_change_elsewhere_is_no_answer(harness: Harness) -> None:
    declare(harness, NAME)
    answers = ask(harness, read(ask(harness)).digest, WAIT_MAX_MS)
    declare(harness, "elsewhere", cluster="another")
    harness.join(1)  # a member without a master
    await turn()
    assert answers == []


async def test_a_restored_state_is_a_change(harness: Harness) -> None:
    declare(harness, NAME)
    answers = ask(harness, read(ask(harness)).digest, WAIT_MAX_MS)
    harness.machine.restore(harness.machine.assemble([*Harness().machine.snapshot()]))
    await turn()
    assert read(answers).groups == []


@pytest.mark.parametrize(
    ("asked_ms", "waits_s"), [(700, 0.7), (4000, 4.0), (WAIT_MAX_MS + 1, 5.0), (2**31 - 1, 5.0)]
)
async def test_a_wait_ends(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, asked_ms: int, waits_s: float
) -> None:
    declare(harness, NAME)
    digest = read(ask(harness)).digest
    loop = asyncio.get_running_loop()
    timers = []
    call_later = loop.call_later

    def noted(delay: float, action: object, *args: object) -> asyncio.TimerHandle:
        timers.append((delay, action, args))
        return call_later(delay, action, *args)  # type: ignore[arg-type]  # as it was given

    monkeypatch.setattr(loop, "call_later", noted)
    answers = ask(harness, digest, asked_ms)
    assert answers == []
    ((delay, action, args),) = timers
    assert delay == waits_s
    action(*args)  # type: ignore[operator]  # its time is over
    assert read(answers) == FrontGroups(digest, [])
    assert harness.requests.fronts.polls.waiting == 0


async def test_no_wait_is_taken_for_a_quorum_that_does_not_answer(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher's own deadline is shorter."""
    declare(harness, NAME)
    digest = read(ask(harness)).digest
    answers = ask(harness, digest, WAIT_MAX_MS)
    assert ANSWER_WITHIN_S * 1000 < WAIT_MAX_MS
    much_later_s = asyncio.get_running_loop().time() + 60
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: much_later_s)
    harness.dispatcher._expire()
    assert (answers, harness.dispatcher.expired) == ([], 0)


async def test_what_waits_is_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polls, "WAITING_MAX", 2)
    digest = read(ask(harness)).digest
    waiting = [ask(harness, digest, WAIT_MAX_MS) for _ in range(3)]
    assert [len(answers) for answers in waiting] == [0, 0, 1]
    assert read(waiting[2]) == FrontGroups(digest, [])
    counted = harness.requests.fronts.polls
    assert (counted.waiting, counted.crowded_out) == (2, 1)


async def test_what_was_passed_on_does_not_wait(harness: Harness) -> None:
    """Whoever passed it on would give it up before."""
    digest = read(ask(harness)).digest
    ext = {"clusterName": CLUSTER, "digest": digest, "waitMs": "5000", "gantryForwarded": "1"}
    assert read(harness.ask(GET, ext)).digest == digest


async def test_a_group_that_is_gone_is_not_served(harness: Harness) -> None:
    declare(harness, "broker-a", "broker-b", "broker-c")
    harness.apply(RetireGroup(cluster=CLUSTER, name="broker-a", uid="broker-a"))
    harness.apply(RemoveGroup(cluster=CLUSTER, name="broker-b", uid="broker-b"))
    assert list(indexes(read(ask(harness)))) == ["broker-c"]


async def test_no_more_groups_than_a_front_has_ports(harness: Harness) -> None:
    names = [f"broker-{number:03}" for number in range(MAX_FRONT_PORTS + 3)]
    declare(harness, *reversed(names))
    told = indexes(read(ask(harness)))
    assert told == {name: index for index, name in enumerate(names[:MAX_FRONT_PORTS])}
