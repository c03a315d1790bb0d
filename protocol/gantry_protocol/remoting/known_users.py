"""The users of a cluster as a process knows them, and what it says of its decisions.

The controllers have the users (ADR 0082). One reader asks for all of them (GetAccess, 31017); the
question waits at a controller for news, so that a change is known here a moment after it was
committed. They are kept in memory alone: who restarts asks again. What was known stays while the
controllers are away.

Each denial is counted and logged, at most once in ``LOG_GAP_S`` for a user with the number of those
between. Who has not signed as a user may write any name, so all of these are one. With ``logs_all``
every decision is logged, one line each.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from gantry_protocol.bodies import decode_body
from gantry_protocol.bodies.access import ClusterAccess
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.command import request as make_request
from gantry_protocol.errors import ConfigError, WireError
from gantry_protocol.headers.access import GetAccessRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.process import log
from gantry_protocol.quorum_key import NO_KEY, KeyFile
from gantry_protocol.remoting.admission import NOBODYS, Denied, Users, signed
from gantry_protocol.remoting.asking import Asker, Outcome
from gantry_protocol.remoting.signatures import ACCESS_KEY

CALL_TIMEOUT_S = 2.0
WAIT_S = 3.0  # of a question, at the controller
GAP_S = 0.005  # between an answer and the next question
LOOK_EVERY_S = 1.0  # the same where questions do not wait
RETRY_S = 0.1  # clients may wait for the first answer
UNSUPPORTED_S = 5.0  # controllers of an older version
KEY_AGE_S = 1.0  # after which the quorum's key is read anew
LOG_GAP_S = 1.0
LOGGED_USERS_MAX = 256

_NO_USERS = Users("", {})

_log = log.get("access")


class KnownUsers:
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
        self._keys: tuple[bytes, ...] = ()
        self._keys_until_s = 0.0
        self.logs_all = logs_all
        self._wait_s, self._gap_s = (WAIT_S, GAP_S) if may_wait else (0.0, LOOK_EVERY_S)
        self._index = -1
        self._listeners: list[Callable[[], None]] = []
        self._news_listeners: list[Callable[[], None]] = []
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

    def listen_for_news(self, changed: Callable[[], None]) -> None:
        """Have ``changed`` called whenever a user, a rule or the switch has changed."""
        self._news_listeners.append(changed)

    def forget(self, changed: Callable[[], None]) -> None:
        """Call it no more; twice is harmless."""
        self._listeners = [listener for listener in self._listeners if listener != changed]

    def sign(self, command: RemotingCommand) -> RemotingCommand:
        """``command`` as one of this cluster's own processes says it to another."""
        if not self.enabled or not self.key.is_set:
            return command
        try:
            shown, *_ = self.keys()
        except ConfigError as error:
            _log.warning("request to another master is not signed", reason=error)
            return command
        return signed(command, ACCESS_KEY, shown)

    def keys(self) -> tuple[bytes, ...]:
        """The quorum's keys; the file is looked at once in ``KEY_AGE_S``.

        Raises:
            ConfigError: it cannot be read, or holds no key.
        """
        now_s = time.monotonic()
        if now_s >= self._keys_until_s:
            self._keys, self._keys_until_s = self.key.keys(), now_s + KEY_AGE_S
        return self._keys

    # ---- decisions

    def note(self, what: object, source: str, denied: Denied | None, user: str) -> None:
        """Count and log a decision about a request: its code, or its method."""
        if denied is None:
            self.allowed += 1
            if self.logs_all:
                _log.info("request allowed", code=what, user=user, address=source)
            return
        self.denied[denied.reason] += 1
        silent = 0
        if not self.logs_all:
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
            code=what,
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
        if told.is_news:
            for changed in list(self._news_listeners):
                changed()
