"""One broker's standing with the controllers: joined, registered, heard, and told what is new.

Identity first (GetNextBrokerId, ApplyBrokerId), then registration (RegisterBroker), then for ever:
heartbeats to every controller, a poll (1004) as a safety net, and whatever the replica core asks
for in between. Connections, heartbeats and the time of polls are the process's (``line``).
Notifications (1008) arrive through the broker's own server, which everybody reaches: nothing that
one says is believed, it makes this broker ask at once. All that comes out is views of the group;
they may be late, doubled or out of order, and the core knows.

One owned task, no task per request. Everything that is repeated is repeated with growing waits and
jitter. What it refuses: to go on with an id the controller does not grant to this volume.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gantry_protocol.bodies.batches import LookRow, answer_digest
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import RemotingError, WireError
from gantry_protocol.headers.controller import BrokerHeartbeatRequestHeader
from gantry_protocol.process import log
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.types import BrokerId

from gantry_broker.control import requests
from gantry_broker.control.joining import RETRY_FIRST_S, RETRY_LAST_S, Joining, jittered
from gantry_broker.control.line import CALL_TIMEOUT_S, ControllerLine
from gantry_broker.control.requests import Known, Report, Speaker, ViewAnswer
from gantry_broker.replica import ControllerView
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev

ELECT_TIMEOUT_S = 1.5
REFRESH_GAP_S = 0.1
NOTICE_GAP_S = 0.01  # the same after a notification, which is worth asking sooner
BEHIND = "ControllerBehind"

# Refusals that say for certain that this very attempt changed nothing. Fenced set epochs and equal
# sets are not among them: an earlier copy of the same attempt may be the reason.
DEFINITE = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
    }
)
_UNKNOWN_TO_CONTROLLER = (
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
    ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
)
_UNANSWERED = (ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_BUSY)
"""Answers that say nothing of what was asked: the next leader, or the same later, may do it."""

_log = log.get("control")


class ControlAgent:
    """See the module.

    Args:
        me: who speaks.
        directory: where the identity is kept.
        line: to the controllers, shared with the process's other groups.
        report: the state of our log, for heartbeats.
        learned: takes every view of the group.
        answered: told, after that, when the question was asked that their leader has answered.
        failed: called with what ends this broker: its id is not its own.

    Attributes:
        broker_id: None before ``join`` has ended.
        known: what the controllers said about the group.
        registered: the controllers know this start of this broker.
        behind: why the controllers refused our registration for good; empty while they did not.
    """

    def __init__(
        self,
        me: Speaker,
        directory: Path,
        line: ControllerLine,
        *,
        report: Callable[[], Report],
        learned: Callable[[ControllerView], None],
        answered: Callable[[float], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Nothing is said before ``join``."""
        self.broker_id: BrokerId | None = None
        self.known = Known()
        self.registered = False
        self.behind = ""
        self.heartbeats = 0
        self.peers = line.peers
        self._line = line
        self._me = me
        self._joining = Joining(me, directory, self._call)
        self._report = report
        self._learned = learned
        self._answered = answered
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._register_now = asyncio.Event()
        self._refresh_timer: asyncio.TimerHandle | None = None
        self._refresh_due_s = 0.0  # a timer of uvloop that is due at once does not say it
        self._refreshing = False
        self._noticed = False  # while an answer that may be older was on its way
        self._refreshed_s = 0.0
        self._digest = 0  # of the last answer to GetReplicaInfo
        self._electing = False
        self._stopped = False

    # ---- life

    async def join(self) -> BrokerId:
        """Find or obtain the id of this volume; waits for the controllers as long as it takes.

        Raises:
            DataDirError: the volume belongs to another group.
            CorruptionError: the identity file is damaged.
        """
        self.broker_id = await self._joining.obtain()
        return self.broker_id

    def start(self) -> None:
        """Register, heartbeat and poll from now on."""
        self._line.join(self)
        self._task = asyncio.create_task(self._stay_registered())
        self._task.add_done_callback(self._task_ended)

    async def stop(self) -> None:
        """Say nothing more."""
        self._stopped = True
        self._line.leave(self)
        if self._refresh_timer is not None:
            self._refresh_timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)

    # ---- registration

    def register_again(self) -> None:
        """Make sure that the controllers know this start of this broker, and not an earlier one.

        A registration of an earlier start may arrive after ours, through a controller that stood
        still meanwhile, and take our place.
        """
        self._register_now.set()

    async def _stay_registered(self) -> None:
        wait_s = RETRY_FIRST_S
        while True:
            if await self._register_once():
                wait_s = RETRY_FIRST_S
                self.beat()
                self.refresh()
                self._register_now.clear()
                await self._register_now.wait()
            else:
                await asyncio.sleep(jittered(wait_s))
                wait_s = min(wait_s * 2, RETRY_LAST_S)

    async def _register_once(self) -> bool:
        assert self.broker_id is not None
        code = self._joining.check_code
        answer = await self._call(requests.register(self._me, self.broker_id, code, self._report()))
        if not isinstance(answer, RemotingCommand):
            return False
        if answer.code == ResponseCode.SUCCESS:
            self.registered, self.behind = True, ""
            with suppress(WireError):
                self._take(requests.read_registration(answer, self.known))
            return True
        _log.warning("registration was refused", code=answer.code, reason=answer.remark)
        is_behind = BEHIND in (answer.remark or "")
        if is_behind:
            self.behind = answer.remark or BEHIND
        if is_behind or answer.code in _UNKNOWN_TO_CONTROLLER:
            await self._joining.apply_again()
        return False

    # ---- the regular part

    @property
    def group(self) -> str:
        """The group's name."""
        return self._me.group

    def beat(self) -> None:
        """A heartbeat to every controller, now."""
        self._line.beat(self)

    def heartbeat(self) -> BrokerHeartbeatRequestHeader | None:
        """Our heartbeat; None while we are not registered."""
        if self.broker_id is None or not self.registered:
            return None
        self.heartbeats += 1
        return requests.heartbeat(
            self._me, self.broker_id, self._report(), timeout_ms=self._line.timeout_ms
        )

    def look(self) -> LookRow | None:
        """Our copy of the controllers' last word; None while we are not registered."""
        if self.broker_id is None or not self.registered:
            return None
        return LookRow(self._me.group, self.broker_id, self._me.incarnation, self._digest)

    def refresh(self) -> None:
        """Read the group from the controllers soon; many wishes make one request."""
        if self._refreshing or self._refresh_timer is not None or not self.registered:
            return
        self._refresh_after(REFRESH_GAP_S)

    def _refresh_after(self, gap_s: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = max(loop.time(), self._refreshed_s + gap_s)
        if self._refresh_timer is not None:
            if self._refresh_due_s <= due_s:
                return  # or whoever gives notice all the time would put it off for ever
            self._refresh_timer.cancel()
        self._refresh_due_s = due_s
        self._refresh_timer = loop.call_at(due_s, self._refresh)

    def _refresh(self) -> None:
        self._refresh_timer = None
        self._refreshing = True
        self._refreshed_s = asyncio.get_running_loop().time()
        command = requests.replica_info(self._me, self.broker_id)
        self.peers.ask(command, self._refresh_done, CALL_TIMEOUT_S)

    def _refresh_done(self, outcome: Outcome) -> None:
        self._refreshing = False
        if self._noticed and not self._stopped:
            self._noticed = False
            self._refresh_after(NOTICE_GAP_S)
        if not isinstance(outcome, RemotingCommand):
            return
        if outcome.code in _UNKNOWN_TO_CONTROLLER:
            self.register_again()
        elif outcome.code == ResponseCode.SUCCESS:
            self._digest = answer_digest(outcome)
            with suppress(WireError):
                self._take(requests.read_replica_info(outcome, self.known))
                self.heard(self._refreshed_s)

    def heard(self, asked_s: float) -> None:
        """The controllers' leader answered what was asked about this group then."""
        if not self._stopped:
            self._answered(asked_s)

    def notice(self, notice: RemotingCommand) -> bool:
        """Take NotifyBrokerRoleChanged for a reason to ask; False if it is about another group.

        Raises:
            WireError: it is malformed.
        """
        cluster, group = requests.notice_group(notice)
        if cluster not in (None, self._me.cluster) or group not in (None, self._me.group):
            return False
        requests.read_notice(notice, self.known)
        if self._stopped or not self.registered:
            return True
        if self._refreshing:
            self._noticed = True
            return True
        self._refresh_after(NOTICE_GAP_S)
        return True

    def _take(self, answer: ViewAnswer) -> None:
        if self._stopped:
            return  # the line goes on for others, and so do answers that are on their way
        self.known = answer.known
        if answer.view is not None:
            self._learned(answer.view)

    # ---- what the core wants

    def elect(self) -> None:
        """ElectMaster (1002): see to it that there is a master.

        A broker in a pod belongs to a group whose owner declares it. Until then a master would
        acknowledge what it alone has, and be the first to ask instead of the one whose log is
        newest; with the declaration the controllers hold the first election themselves.
        """
        if self._electing or self.broker_id is None or not self.registered:
            return
        if self._me.pod_uid is not None and not self.known.group_uid:
            return
        self._electing = True
        command = requests.elect(self._me, self.broker_id)
        self.peers.ask(command, self._elected, ELECT_TIMEOUT_S)

    def _elected(self, outcome: Outcome) -> None:
        self._electing = False
        if not isinstance(outcome, RemotingCommand):
            return
        if outcome.code in _UNKNOWN_TO_CONTROLLER:
            self.register_again()
            return
        with suppress(WireError):
            self._take(requests.read_election(outcome, self.known))

    def propose(self, proposal: fx.Propose, done: Callable[[ev.ProposalFinished], None]) -> None:
        """AlterSyncStateSet (1001); ``done`` comes exactly once."""
        assert self.broker_id is not None

        def finished(outcome: Outcome) -> None:
            done(ev.ProposalFinished(proposal.attempt, _proposal_outcome(outcome)))

        command = requests.alter(self._me, self.broker_id, proposal)
        self.peers.ask(command, finished, CALL_TIMEOUT_S)

    def hand_over(self, effect: fx.HandOver, done: Callable[[ev.HandOverFinished], None]) -> None:
        """ElectMaster (1002), designated.

        ``done`` comes exactly once, and a view if there is one.
        """

        def finished(outcome: Outcome) -> None:
            code = outcome.code if isinstance(outcome, RemotingCommand) else None
            answered = code is not None and code not in _UNANSWERED
            done(ev.HandOverFinished(accepted=code == ResponseCode.SUCCESS, answered=answered))
            if isinstance(outcome, RemotingCommand):
                with suppress(WireError):
                    self._take(requests.read_election(outcome, self.known))

        self.peers.ask(requests.hand_over(self._me, effect), finished, ELECT_TIMEOUT_S)

    async def _call(self, command: RemotingCommand) -> Outcome:
        """Ask and wait; errors are values here."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def settle(outcome: Outcome) -> None:
            if not done.done():
                done.set_result(outcome)

        self.peers.ask(command, settle, CALL_TIMEOUT_S)
        return await done


def _proposal_outcome(outcome: Outcome) -> ev.Adopted | ev.Refused | ev.Unknown:
    if isinstance(outcome, RemotingError):
        return ev.Unknown()
    if outcome.code == ResponseCode.SUCCESS:
        try:
            return requests.read_alteration(outcome)
        except WireError:
            return ev.Unknown()
    if outcome.code in DEFINITE:
        return ev.Refused(outcome.remark or str(outcome.code))
    return ev.Unknown()
