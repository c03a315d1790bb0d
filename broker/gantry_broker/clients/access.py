"""The users of a cluster as a process knows them, and the gate before its clients' requests.

The controllers have the users (ADR 0082). One reader asks for all of them (GetAccess, 31017); the
question waits at a controller for news, so that a change is known here a moment after it was
committed. They are kept in memory alone: who restarts asks again.

Rules protected:

* Nobody is served before the controllers have said whether clients need users: a request waits for
  that, and is refused then so that it is sent again. What was known stays while they are away.
* Whatever a process answers itself has come through a gate: a master's, and that of a front that
  serves from a tier. Where access is on, replicas and fronts leave all else to the master.
* Who has signed with the quorum's key is one of the cluster's own processes, or its administrator.
* Requests that read or change users need a user, or the key, also where access is off: nobody makes
  a super user for later.

Each denial is counted and logged, at most once in ``LOG_GAP_S`` for a user with the number of those
between. Who has not signed as a user may write any name, so all of these are one. With ``logs_all``
every decision is logged, one line each.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol

from gantry_protocol.access.judgement import Judge
from gantry_protocol.access.rules import Action
from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.access import ClusterAccess
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.command import request as make_request
from gantry_protocol.errors import ConfigError, ResolveError, WireError
from gantry_protocol.headers.access import GetAccessRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.hosts import split_address
from gantry_protocol.process import log
from gantry_protocol.quorum_key import NO_KEY, KeyFile
from gantry_protocol.remoting.admission import NOBODYS, Denied, Users, signed
from gantry_protocol.remoting.asking import Asker, Outcome
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.demands import OPEN, topic
from gantry_protocol.remoting.signatures import ACCESS_KEY, carries_signature, is_signed

CALL_TIMEOUT_S = 2.0
WAIT_S = 3.0  # of a question, at the controller
GAP_S = 0.005  # between an answer and the next question
LOOK_EVERY_S = 1.0  # the same where questions do not wait
RETRY_S = 0.1  # clients may wait for the first answer
UNSUPPORTED_S = 5.0  # controllers of an older version
LOG_GAP_S = 1.0
LOGGED_USERS_MAX = 256

MAY = "may"  # in a connection's attrs: what its user may do on a topic; for one request
HEARD_AS = "heard as"  # in a connection's attrs: user and address of its last heartbeat
_HEART_BEAT = RequestCode.HEART_BEAT
_LATER = {  # requests that name a message by its place: judged again once its topic is known
    RequestCode.CONSUMER_SEND_MSG_BACK: Action.SUB,
    RequestCode.END_TRANSACTION: Action.PUB,
}
USER_CODES = frozenset(range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1))
_NO_USERS = Users("", {})

MayTouch = Callable[[str], bool]
"""Whether a user may do something on the topic of that name."""

_log = log.get("access")


class ClusterUsers:
    """The users of the cluster; one for all groups of a process.

    Args:
        cluster: whose users.
        peers: the controllers.
        key: signs what this process asks of other masters; theirs is believed.
        logs_all: whether requests that are allowed are logged, too.
        may_wait: whether a question may wait at a controller; not where all controllers that owe
            no answer are asked for the master, as fronts do.

    Attributes:
        cluster: whose users.
        users: as last told.
        is_known: whether the controllers have ever said whether access is on.
        enabled: whether it is.
        allowed: requests that were let in since they needed a user.
        denied: requests that were not, by reason.
    """

    def __init__(
        self,
        cluster: str,
        peers: Asker,
        key: KeyFile = NO_KEY,
        *,
        logs_all: bool = False,
        may_wait: bool = True,
    ) -> None:
        """Nothing is asked before ``start``."""
        self.cluster = cluster
        self.users = _NO_USERS
        self.is_known = False
        self.enabled = False
        self.allowed = 0
        self.denied: Counter[str] = Counter()
        self.peers = peers
        self.key = key
        self._logs_all = logs_all
        self._wait_s, self._gap_s = (WAIT_S, GAP_S) if may_wait else (0.0, LOOK_EVERY_S)
        self._index = -1
        self._listeners: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._quiet: dict[str, tuple[float, int]] = {}  # by user: until when, and how many came

    def start(self) -> None:
        """Ask from now on."""
        self._is_running = True
        self._ask()

    def stop(self) -> None:
        """Ask no more."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def listen(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called when access is known at first, or turned on or off."""
        self._listeners.append(changed)

    def forget(self, changed: Callable[[], None]) -> None:
        """Call it no more; twice is harmless."""
        self._listeners = [listener for listener in self._listeners if listener != changed]

    def sign(self, command: RemotingCommand) -> RemotingCommand:
        """``command`` as one of this cluster's own processes says it to another."""
        if not self.enabled or not self.key.is_set:
            return command
        try:
            shown, *_ = self.key.keys()
        except ConfigError as error:
            _log.warning("request to another master is not signed", reason=error)
            return command
        return signed(command, ACCESS_KEY, shown)

    # ---- decisions

    def may_be_asked(self, conn: Connection, name: str) -> bool:
        """Whether a producer may be shown a message of the topic ``name``, and asked its outcome.

        Anybody may say that it is a member of a producer group; its last heartbeat says who it is.
        """
        if not self.enabled:
            return True
        user, source = conn.attrs.get(HEARD_AS, (None, ""))
        if user is None:
            return False
        return user == ACCESS_KEY or self.users.may(user, topic(name, Action.PUB), source)

    def note(self, command: RemotingCommand, source: str, denied: Denied | None, user: str) -> None:
        """Count and log a decision."""
        if denied is None:
            self.allowed += 1
            if self._logs_all:
                _log.info("request allowed", code=command.code, user=user, address=source)
            return
        self.denied[denied.reason] += 1
        silent = 0
        if not self._logs_all:
            now_s = time.monotonic()
            who = f"({denied.reason})" if denied.reason in NOBODYS else user  # no user's name
            until_s, count = self._quiet.get(who, (0.0, 0))
            if now_s < until_s:
                self._quiet[who] = (until_s, count + 1)
                return
            if who not in self._quiet and len(self._quiet) >= LOGGED_USERS_MAX:
                self._quiet.clear()
            self._quiet[who] = (now_s + LOG_GAP_S, 0)
            silent = count
        _log.warning(
            "request denied",
            code=command.code,
            user=user,
            address=source,
            why=denied.reason,
            sentence=denied.sentence,
            unsaid=silent,
        )

    # ---- asking

    def _ask(self) -> None:
        self._timer = None
        wait_s = self._wait_s if self.is_known else 0.0
        header = GetAccessRequestHeader(self.cluster, self._index, int(wait_s * 1000))
        command = make_request(RequestCode.GANTRY_GET_ACCESS, to_ext(header))
        self.peers.ask(command, self._answered, CALL_TIMEOUT_S, wait_s)

    def _answered(self, outcome: Outcome) -> None:
        again_s, told = RETRY_S, None
        if isinstance(outcome, RemotingCommand):
            if outcome.code == ResponseCode.SUCCESS:
                try:
                    told = decode_body(ClusterAccess, outcome.body)
                except WireError as error:
                    _log.warning("users cannot be read", reason=error)
                else:
                    again_s = self._gap_s
            elif outcome.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and not self.is_known:
                told, again_s = ClusterAccess(-1), UNSUPPORTED_S  # an older one, without users
            elif self.is_known:
                again_s = UNSUPPORTED_S
        if self._is_running:
            self._timer = asyncio.get_running_loop().call_later(again_s, self._ask)
        if told is not None:
            self._take(told)

    def _take(self, told: ClusterAccess) -> None:
        was = (self.is_known, self.enabled)
        if told.is_news:
            self.users = Users(self.cluster, told.users)
        self._index, self.enabled, self.is_known = told.index, told.enabled, True
        if was != (True, told.enabled):
            if was[1] != told.enabled:
                _log.info("access", enabled=told.enabled, users=len(self.users))
            for changed in list(self._listeners):
                changed()


class Gated(Protocol):
    """A router of clients' requests."""

    gate: "Gate | None"

    def role_changed(self) -> None:
        """Look again at everything that waits."""


def stand_before(router: Gated, access: ClusterUsers) -> Callable[[], None]:
    """Have a gate before ``router`` but while access is known to be off; returns how to end it."""
    gate = Gate(access)

    def changed() -> None:
        router.gate = gate if access.enabled or not access.is_known else None
        router.role_changed()

    changed()
    access.listen(changed)
    return partial(access.forget, changed)


class Gate:
    """The gate before one router's requests, while access is on or not known.

    Args:
        access: the users.
    """

    def __init__(self, access: ClusterUsers) -> None:
        """Nobody came."""
        self._access = access

    @property
    def is_ready(self) -> bool:
        """Whether it is known who may pass."""
        return self._access.is_known

    def objection(self, conn: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """The answer to a request that may not be served; None if it may."""
        if command.code in USER_CODES:
            return None  # judged where they are served, also where there is no gate
        return self.judged(conn, command)

    def judged(self, conn: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """The same, whether access is on or off."""
        access, code = self._access, command.code
        if code in OPEN or conn.believed or self._is_ours(command):
            conn.attrs.pop(MAY, None)
            if code == _HEART_BEAT:
                conn.attrs[HEARD_AS] = (ACCESS_KEY, "")
            return None
        if not access.is_known:
            remark = "the users of the cluster are not known here yet"
            return reply(command, ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        source = _source(conn)
        verdict = access.users.admit(command, source)
        if isinstance(verdict, Denied):
            access.note(command, source, verdict, verdict.user)
            return reply(command, ResponseCode.NO_PERMISSION, verdict.sentence)
        access.note(command, source, None, verdict.user)
        if code == _HEART_BEAT:
            conn.attrs[HEARD_AS] = (verdict.user, source)
        if code in _LATER:
            conn.attrs.pop(MAY, None)
            if verdict.judge is not None:
                conn.attrs[MAY] = partial(_may, verdict.judge, _LATER[RequestCode(code)], source)
        return None

    def _is_ours(self, command: RemotingCommand) -> bool:
        """Whether the quorum's key has signed it; strangers cost no look at the file."""
        key = self._access.key
        if not key.is_set or not carries_signature(command):
            return False
        try:
            return is_signed(command, key.keys())
        except ConfigError as error:
            _log.warning("signature cannot be judged", reason=error)
            return False


def taken_judgement(conn: Connection) -> MayTouch:
    """Whether the user of the request that is served now may do on a topic what it asks for."""
    judgement: MayTouch = conn.attrs.pop(MAY, _anybody)
    return judgement


def _anybody(name: str) -> bool:
    return True


def _may(judge: Judge, action: Action, source: str, name: str) -> bool:
    return judge.refused((topic(name, action),), source) is None


def _source(conn: Connection) -> str:
    try:
        return split_address(conn.peer)[0]
    except ResolveError:
        return ""
