"""One broker's standing with the controllers: what it makes of their answers, and when it asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.control import identity as identities
from gantry_broker.control.agent import NOTICE_GAP_S, REFRESH_GAP_S, ControlAgent
from gantry_broker.control.joining import IdStruck
from gantry_broker.control.requests import Report, Speaker
from gantry_broker.replica import ControllerView
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.controller import SyncStateSetBody
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import RequestTimeout
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.controller import (
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoResponseHeader,
)
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.broker_cluster import eventually
from support.lone_member import Line

FORGOTTEN = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
HAND_OVER = fx.HandOver(BrokerId(2), Epoch(5))
PROPOSAL = fx.Propose(7, Epoch(5), frozenset({BrokerId(1)}), 3)


class Controllers(Line):
    """Controllers that answer when a test says so."""

    def of(self, code: RequestCode) -> list[tuple[RemotingCommand, Callable[[Outcome], None]]]:
        return [one for one in self.asked if one[0].code == code]

    def answer(self, code: RequestCode, how: ResponseCode | Exception, **reply_with: Any) -> None:
        """The oldest open question with this code."""
        command, done = self.of(code)[0]
        self.asked.remove((command, done))
        done(how if isinstance(how, RequestTimeout) else reply(command, how, **reply_with))


class World:
    """One registered agent."""

    def __init__(self, directory: Path, *, pod_uid: str | None = None) -> None:
        identities.save(directory, identities.Identity("c", "g", "code", BrokerId(1)))
        self.controllers = Controllers()
        self.views: list[ControllerView] = []
        self.answered: list[float] = []
        self.failures: list[BaseException] = []
        self.beats = 0
        line: Any = self.controllers
        self.controllers.beat = self._beat  # type: ignore[method-assign]
        self.agent = ControlAgent(
            Speaker(
                cluster="c",
                group="g",
                address="h:1",
                ha_port=2,
                incarnation="i",
                pod_uid=pod_uid,
            ),
            directory,
            line,
            report=lambda: Report(Epoch(5), Offset(0), Offset(0), Offset(0), draining=False),
            learned=self.views.append,
            answered=self.answered.append,
            failed=self.failures.append,
        )

    def _beat(self, _: object) -> None:
        self.beats += 1

    async def start(self) -> None:
        assert await self.agent.join() == 1
        self.agent.start()
        await self.registering()
        self.controllers.answer(RequestCode.CONTROLLER_REGISTER_BROKER, ResponseCode.SUCCESS)
        await eventually(lambda: self.agent.registered, "it is registered")
        await self.looking()

    async def asking(self, wanted: RequestCode) -> None:
        await eventually(lambda: bool(self.controllers.of(wanted)), f"it asks {wanted.name}")

    async def registering(self) -> None:
        await self.asking(RequestCode.CONTROLLER_REGISTER_BROKER)

    async def looking(self) -> None:
        await self.asking(RequestCode.CONTROLLER_GET_REPLICA_INFO)

    async def is_refused_its_id(self, next_id: int) -> None:
        """The controllers have not given it the id, and say which one they would give next."""
        await self.asking(RequestCode.CONTROLLER_APPLY_BROKER_ID)
        taken = ResponseCode.CONTROLLER_BROKER_ID_INVALID
        self.controllers.answer(RequestCode.CONTROLLER_APPLY_BROKER_ID, taken)
        next_one = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
        await self.asking(next_one)
        ext = to_ext(GetNextBrokerIdResponseHeader("c", "g", BrokerId(next_id)))
        self.controllers.answer(next_one, ResponseCode.SUCCESS, ext=ext)

    def told(self, epoch: int, *, group_uid: str | None = None) -> dict[str, Any]:
        """What an answer to a look says."""
        header = GetReplicaInfoResponseHeader(
            master_broker_id=BrokerId(1), master_epoch=epoch, group_uid=group_uid
        )
        body = SyncStateSetBody([BrokerId(1)], Epoch(1))
        return {"ext": to_ext(header), "body": encode_body(body)}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.start()
    yield made
    await made.agent.stop()
    assert made.failures == []


async def test_who_is_registered_says_so_at_once(world: World) -> None:
    assert world.beats == 1


async def test_an_answer_is_learned_and_the_next_look_asks_anew(world: World) -> None:
    look = RequestCode.CONTROLLER_GET_REPLICA_INFO
    world.controllers.answer(look, ResponseCode.SUCCESS, **world.told(5))
    assert [view.master_epoch for view in world.views] == [5]
    world.agent.refresh()
    world.agent.refresh()
    await world.looking()
    await asyncio.sleep(2 * REFRESH_GAP_S)
    assert len(world.controllers.of(look)) == 1, "many wishes make one request"
    heard = len(world.answered)
    world.controllers.answer(look, RequestTimeout("no answer"))
    assert len(world.answered) == heard
    world.agent.refresh()
    await world.looking()
    asked_s = world.agent._refreshed_s
    world.controllers.answer(look, ResponseCode.SUCCESS, **world.told(5))
    assert world.answered[heard:] == [asked_s], "when it was asked, however late the answer"
    world.agent.refresh()
    await world.looking()


async def test_notices_without_end_do_not_put_a_look_off(world: World) -> None:
    """Everybody may give them, and whoever does so all the time must not keep it from asking."""
    look = RequestCode.CONTROLLER_GET_REPLICA_INFO
    world.controllers.answer(look, ResponseCode.SUCCESS, **world.told(5))
    notice = request(
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        {"brokerName": "g", "masterEpoch": "9", "syncStateSetEpoch": "9"},
        encode_body(SyncStateSetBody([BrokerId(1)], Epoch(1))),
    )
    await asyncio.sleep(2 * NOTICE_GAP_S)
    for _ in range(100):  # in each turn of the loop
        world.agent.notice(notice)
        await asyncio.sleep(0)
    assert len(world.controllers.of(look)) == 1, "and it asks once, however many there are"


async def test_a_notice_is_worth_asking_sooner(world: World) -> None:
    look = RequestCode.CONTROLLER_GET_REPLICA_INFO
    world.controllers.answer(look, ResponseCode.SUCCESS, **world.told(5))
    world.agent._refreshed_s = asyncio.get_running_loop().time() + 60  # no stall matters
    world.agent.refresh()
    timer = world.agent._refresh_timer
    assert timer is not None
    world.agent.notice(
        request(
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
            {"brokerName": "g", "masterEpoch": "9", "syncStateSetEpoch": "9"},
            encode_body(SyncStateSetBody([BrokerId(1)], Epoch(1))),
        )
    )
    assert timer.cancelled()
    assert world.agent._refresh_timer is not None
    assert world.agent._refresh_timer.when() < timer.when()


async def test_a_notice_while_a_look_is_due_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer of uvloop that is due at once is a plain handle."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_at", lambda _, call: loop.call_soon(call))
    world.controllers.answer(RequestCode.CONTROLLER_GET_REPLICA_INFO, ResponseCode.SUCCESS)
    world.agent.refresh()
    world.agent.notice(
        request(
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
            {"brokerName": "g", "masterEpoch": "9", "syncStateSetEpoch": "9"},
            encode_body(SyncStateSetBody([BrokerId(1)], Epoch(1))),
        )
    )
    assert world.agent._refresh_timer is not None


def notice(**of: str) -> RemotingCommand:
    header = {"brokerName": "g", "masterEpoch": "9", "syncStateSetEpoch": "9", **of}
    body = encode_body(SyncStateSetBody([BrokerId(1)], Epoch(1)))
    return request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body)


async def test_a_notice_during_a_look_makes_it_look_again(world: World) -> None:
    """The answer that is on its way may be older."""
    look = RequestCode.CONTROLLER_GET_REPLICA_INFO
    world.agent.notice(notice())
    assert len(world.controllers.of(look)) == 1
    world.controllers.answer(look, ResponseCode.SUCCESS, **world.told(5))
    assert world.agent._refresh_timer is not None
    await world.looking()


@pytest.mark.parametrize("of", [{"brokerName": "other"}, {"clusterName": "other"}])
async def test_a_notice_for_another_group_is_no_reason_to_look(
    world: World, of: dict[str, str]
) -> None:
    look = RequestCode.CONTROLLER_GET_REPLICA_INFO
    world.controllers.answer(look, ResponseCode.SUCCESS, **world.told(5))
    assert not world.agent.notice(notice(**of))
    assert world.agent._refresh_timer is None
    assert world.agent.notice(notice(clusterName="c"))
    assert world.agent._refresh_timer is not None


async def test_after_the_stop_nothing_is_learned(world: World) -> None:
    await world.agent.stop()
    world.controllers.answer(
        RequestCode.CONTROLLER_GET_REPLICA_INFO, ResponseCode.SUCCESS, **world.told(6)
    )
    assert world.views == []


async def test_who_was_forgotten_registers_again(world: World) -> None:
    world.controllers.answer(RequestCode.CONTROLLER_GET_REPLICA_INFO, FORGOTTEN)
    await world.registering()


async def test_an_id_that_a_new_quorum_gave_to_another_volume_is_given_up(tmp_path: Path) -> None:
    """It had not issued the id when it was asked first, and has since: two would knock under it."""
    world = World(tmp_path)
    await world.agent.join()
    world.agent.start()
    register = RequestCode.CONTROLLER_REGISTER_BROKER
    await world.registering()
    (asked, _), *_ = world.controllers.of(register)
    assert (asked.ext or {})["registerCheckCode"] == "code", "the volume's"
    unknown = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    world.controllers.answer(register, unknown)
    await world.is_refused_its_id(next_id=1)
    await world.registering()
    assert world.failures == [], "no quorum takes an id that it never issued"
    behind = ResponseCode.CONTROLLER_INVALID_REQUEST
    world.controllers.answer(register, behind, remark="ControllerBehind: broker 1 has written")
    await world.is_refused_its_id(next_id=2)
    await eventually(lambda: bool(world.failures), "it takes another id")
    assert isinstance(world.failures[0], IdStruck)
    assert world.agent.behind
    await world.agent.stop()


async def test_elections_are_asked_for_one_at_a_time_and_again(world: World) -> None:
    elect = RequestCode.CONTROLLER_ELECT_MASTER
    world.agent.elect()
    world.agent.elect()
    assert len(world.controllers.of(elect)) == 1
    world.controllers.answer(elect, RequestTimeout("no answer"))
    world.agent.elect()
    assert len(world.controllers.of(elect)) == 1
    world.controllers.answer(elect, FORGOTTEN)
    await world.registering()


@pytest.fixture
async def world_of_a_pod(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path, pod_uid="p")
    await made.start()
    yield made
    await made.agent.stop()


async def test_a_pod_asks_for_no_election_before_its_group_is_declared(
    world_of_a_pod: World,
) -> None:
    world, elect = world_of_a_pod, RequestCode.CONTROLLER_ELECT_MASTER
    world.agent.elect()
    assert world.controllers.of(elect) == []
    declared = world.told(5, group_uid="u")
    world.controllers.answer(
        RequestCode.CONTROLLER_GET_REPLICA_INFO, ResponseCode.SUCCESS, **declared
    )
    world.agent.elect()
    assert len(world.controllers.of(elect)) == 1


@pytest.mark.parametrize(
    ("how", "end"),
    [
        (ResponseCode.SUCCESS, ev.HandOverFinished(accepted=True)),
        (ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, ev.HandOverFinished(accepted=False)),
        *(
            (how, ev.HandOverFinished(accepted=False, answered=False))
            for how in (
                RequestTimeout("no answer"),
                ResponseCode.CONTROLLER_NOT_LEADER,
                ResponseCode.SYSTEM_BUSY,
            )
        ),
    ],
)
async def test_the_end_of_a_hand_over_is_told_once_and_truly(
    world: World, how: ResponseCode | Exception, end: ev.HandOverFinished
) -> None:
    told: list[ev.HandOverFinished] = []
    world.agent.hand_over(HAND_OVER, told.append)
    world.controllers.answer(RequestCode.CONTROLLER_ELECT_MASTER, how)
    assert told == [end]


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        (RequestTimeout("no answer"), ev.Unknown),
        (ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, ev.Unknown),
        (ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, ev.Refused),
    ],
)
async def test_the_end_of_a_proposal_is_what_is_known_of_it(
    world: World, how: ResponseCode | Exception, kind: type
) -> None:
    ends: list[ev.ProposalFinished] = []
    world.agent.propose(PROPOSAL, ends.append)
    world.controllers.answer(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, how)
    ((attempt, outcome),) = [(one.attempt, one.outcome) for one in ends]
    assert (attempt, type(outcome)) == (7, kind)
