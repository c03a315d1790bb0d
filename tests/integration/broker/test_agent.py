"""A broker's standing with real controller handlers: ids, registration, heartbeats, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from gantry_broker.control import identity
from gantry_broker.control.agent import ControlAgent
from gantry_broker.control.joining import IdStruck
from gantry_broker.control.line import ControllerLine
from gantry_broker.control.requests import Report, Speaker
from gantry_broker.replica import ControllerView
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_controller.metadata.events import CleanBrokerData, encode_event
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.broker_cluster import eventually
from support.loopback_controller import CLUSTER, GROUP, LoopbackController
from support.patience import PATIENCE_S


class Caller:
    """One agent and what it was told."""

    def __init__(
        self, directory: Path, controllers: list[str], incarnation: str = "aa", epoch: int = 0
    ) -> None:
        self.views: list[ControllerView] = []
        self.failures: list[BaseException] = []
        self.report = Report(Epoch(epoch), Offset(0), Offset(10), Offset(5), draining=False)
        directory.mkdir(exist_ok=True)
        self.line = ControllerLine(
            CLUSTER,
            controllers,
            pod_uid="pod",
            heartbeat_interval_ms=50,
            heartbeat_timeout_ms=2_500,
        )
        self.answered: list[float] = []
        self.agent = ControlAgent(
            Speaker(CLUSTER, GROUP, "127.0.0.1:1", 2, incarnation, "pod"),
            directory,
            self.line,
            report=lambda: self.report,
            learned=self.views.append,
            answered=self.answered.append,
            failed=self.failures.append,
        )

    async def join(self) -> BrokerId:
        self.line.start()
        async with asyncio.timeout(PATIENCE_S):
            return await self.agent.join()

    async def stop(self) -> None:
        await self.agent.stop()
        await self.line.stop()


async def registered(tmp_path: Path, controller: LoopbackController) -> Caller:
    """One that has an id and is registered."""
    caller = Caller(tmp_path / "a", [controller.address])
    await caller.join()
    caller.agent.start()
    await eventually(lambda: caller.agent.registered, "it is registered")
    return caller


@pytest.fixture
async def controller() -> AsyncIterator[LoopbackController]:
    made = LoopbackController()
    await made.start()
    made.declare(replicas=1, min_in_sync=1)
    yield made
    await made.stop()


class Answering:
    """Lets a test lose or change answers of one code."""

    def __init__(self, controller: LoopbackController) -> None:
        self.lose: set[int] = set()
        self.seen: list[int] = []
        self._handle: Callable[..., RemotingCommand | None] = controller.dispatcher.handle
        controller.server.handler = self

    def __call__(self, conn: object, command: RemotingCommand) -> RemotingCommand | None:
        self.seen.append(command.code)
        if command.code in self.lose:
            self.lose.discard(command.code)
            connection = _Deaf(conn)
            self._handle(connection, command)
            conn.close()  # type: ignore[attr-defined]  # a connection
            return None
        return self._handle(conn, command)


class _Deaf:
    """A connection whose answers get lost."""

    def __init__(self, conn: object) -> None:
        self.id = conn.id  # type: ignore[attr-defined]  # a connection

    def reply(self, *_: object) -> None:
        pass


async def test_ids_are_given_once_and_kept(tmp_path: Path, controller: LoopbackController) -> None:
    for volume, expected in (("a", 1), ("b", 2), ("a", 1)):
        caller = Caller(tmp_path / volume, [controller.address])
        assert await caller.join() == expected
        await caller.stop()
    assert [one.broker_id for one in controller.group.members] == [1, 2]


async def test_a_lost_answer_costs_no_second_id(
    tmp_path: Path, controller: LoopbackController
) -> None:
    answering = Answering(controller)
    answering.lose = {RequestCode.CONTROLLER_APPLY_BROKER_ID}
    caller = Caller(tmp_path / "a", [controller.address])
    assert await caller.join() == 1
    assert answering.seen.count(RequestCode.CONTROLLER_APPLY_BROKER_ID) == 2
    assert [one.broker_id for one in controller.group.members] == [1]
    await caller.stop()


async def test_two_that_want_the_same_id_get_two(
    tmp_path: Path, controller: LoopbackController
) -> None:
    callers = [Caller(tmp_path / name, [controller.address]) for name in "abc"]
    found = await asyncio.gather(*(one.join() for one in callers))
    assert sorted(found) == [1, 2, 3]
    for caller in callers:
        await caller.stop()


async def test_registration_heartbeats_and_election(
    tmp_path: Path, controller: LoopbackController
) -> None:
    caller = Caller(tmp_path / "a", [controller.address])
    await caller.join()
    caller.agent.start()
    await eventually(
        lambda: bool(caller.views) and caller.views[-1].master_id == 1, "it is elected"
    )
    view = caller.views[-1]
    assert (view.master_epoch, view.master_incarnation) == (1, "aa")
    assert (view.master_ha_address, view.replicas, view.min_in_sync) == ("127.0.0.1:2", 1, 1)
    assert caller.agent.known.group_uid == "u"
    beats = caller.agent.heartbeats
    await eventually(lambda: caller.agent.heartbeats > beats + 2, "it goes on beating")
    await caller.stop()


async def test_no_controller_is_waited_for(tmp_path: Path, controller: LoopbackController) -> None:
    port = int(controller.address.rpartition(":")[2])
    await controller.server.stop(0)
    caller = Caller(tmp_path / "a", [controller.address])
    joining = asyncio.create_task(caller.join())
    await asyncio.sleep(0.05)
    assert not joining.done()
    again = LoopbackController(controller.machine)
    await again.start(port)
    assert await joining == 1
    await caller.stop()
    await again.stop()


async def test_an_unreachable_controller_among_others_costs_nothing(
    tmp_path: Path, controller: LoopbackController
) -> None:
    caller = Caller(tmp_path / "a", ["127.0.0.1:1", controller.address, "127.0.0.1:2"])
    assert await caller.join() == 1
    assert caller.agent.peers.connections == 1
    await caller.stop()


async def test_it_registers_again_when_asked_to(
    tmp_path: Path, controller: LoopbackController
) -> None:
    caller = await registered(tmp_path, controller)
    answering = Answering(controller)
    caller.agent.register_again()
    await eventually(
        lambda: RequestCode.CONTROLLER_REGISTER_BROKER in answering.seen, "it registers again"
    )
    await caller.stop()


async def test_a_group_that_is_behind_is_told_and_asked_again(
    tmp_path: Path, controller: LoopbackController
) -> None:
    caller = Caller(tmp_path / "a", [controller.address], epoch=9)
    await caller.join()
    caller.agent.start()
    await eventually(lambda: "ControllerBehind" in caller.agent.behind, "it says why")
    assert not caller.agent.registered
    caller.report = caller.report._replace(epoch=Epoch(0))
    await eventually(lambda: caller.agent.registered, "it tries again")
    assert caller.agent.behind == ""
    await caller.stop()


async def test_proposals_and_hand_overs_end_exactly_once(
    tmp_path: Path, controller: LoopbackController
) -> None:
    caller = Caller(tmp_path / "a", [controller.address])
    await caller.join()
    caller.agent.start()
    await eventually(lambda: bool(caller.views), "it knows the group")
    finished: list[ev.ProposalFinished] = []
    proposal = fx.Propose(
        attempt=4,
        master_epoch=Epoch(1),
        sync_state_set=frozenset({BrokerId(1), BrokerId(9)}),
        sync_state_set_epoch=1,
    )
    caller.agent.propose(proposal, finished.append)
    await eventually(lambda: bool(finished), "the proposal is answered")
    assert finished[0].attempt == 4
    assert isinstance(finished[0].outcome, ev.Refused)
    ends: list[ev.HandOverFinished] = []
    handover = fx.HandOver(target=BrokerId(1), epoch=Epoch(8))
    caller.agent.hand_over(handover, ends.append)
    await eventually(lambda: bool(ends), "a hand-over of another epoch is answered")
    assert ends == [ev.HandOverFinished(accepted=False, answered=True)]
    await controller.server.stop(0)
    caller.agent.hand_over(handover, ends.append)
    await eventually(lambda: len(ends) == 2, "silence is its end, too")
    assert ends[1] == ev.HandOverFinished(accepted=False, answered=False)
    caller.agent.propose(proposal, finished.append)
    await eventually(lambda: len(finished) == 2, "silence is an end, too")
    assert isinstance(finished[1].outcome, ev.Unknown)
    await caller.stop()


async def test_a_struck_id_is_not_taken_back_by_force(
    tmp_path: Path, controller: LoopbackController
) -> None:
    """The controllers have struck the broker from the record and never issue an id twice."""
    caller = await registered(tmp_path, controller)
    event = CleanBrokerData(
        cluster=CLUSTER, name=GROUP, broker_ids=(BrokerId(1),), clean_living=True
    )
    controller.quorum._apply(encode_event(event))
    await eventually(lambda: bool(caller.failures), "it says that it was struck")
    assert isinstance(caller.failures[0], IdStruck)
    assert "broker 1 of group c/g" in str(caller.failures[0])
    await caller.stop()
    again = Caller(tmp_path / "a", [controller.address])
    await again.join()
    assert again.agent.broker_id == 2, "the same volume, another id"
    await again.stop()


async def test_a_quorum_that_never_issued_the_id_does_not_take_it_away(
    tmp_path: Path, controller: LoopbackController
) -> None:
    """It is another quorum, or has lost everything: the volume keeps its place in its own."""
    first = Caller(tmp_path / "first", [controller.address])
    await first.join()
    await first.stop()
    caller = Caller(tmp_path / "a", [controller.address])
    await caller.join()
    kept = identity.load(tmp_path / "a")
    await caller.stop()
    stranger = LoopbackController()
    await stranger.start()
    lost = Caller(tmp_path / "a", [stranger.address])
    await lost.join()
    lost.agent.start()
    asked = [0]
    handle = stranger.dispatcher.handle

    def counted(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        asked[0] += command.code == RequestCode.CONTROLLER_GET_NEXT_BROKER_ID
        return handle(connection, command)

    stranger.server.handler = counted
    await eventually(lambda: asked[0] > 1, "it asks, and asks again")
    assert lost.failures == []
    assert identity.load(tmp_path / "a") == kept
    await lost.stop()
    await stranger.stop()


async def test_a_notice_is_believed_of_nobody(
    tmp_path: Path, controller: LoopbackController
) -> None:
    """Anybody may send 1008 to the port of clients: it makes the broker ask, and that is all."""
    caller = await registered(tmp_path, controller)
    asked = controller.dispatcher.requests.get(RequestCode.CONTROLLER_GET_REPLICA_INFO, 0)
    ext = {
        "clusterName": CLUSTER,
        "brokerName": GROUP,
        "masterEpoch": "99",
        "syncStateSetEpoch": "99",
        "masterBrokerId": "7",
        "masterAddress": "127.0.0.1:1",
    }
    body = b'{"syncStateSet":[7],"syncStateSetEpoch":99}'
    forged = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, ext, body)
    assert caller.agent.notice(forged)
    await eventually(
        lambda: (
            controller.dispatcher.requests.get(RequestCode.CONTROLLER_GET_REPLICA_INFO, 0) > asked
        ),
        "it asks",
    )
    assert all(view.master_epoch < 99 for view in caller.views)
    await caller.stop()
