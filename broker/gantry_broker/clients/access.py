"""The gate before clients' requests: who has made one, and whether that user may.

Rules protected:

* Nobody is served before the controllers have said whether clients need users: a request waits for
  that, and is refused then so that it is sent again.
* Whatever a process answers itself has come through a gate: a master's, and that of a front that
  serves from a tier. Where access is on, replicas and fronts leave all else to the master.
* Who has signed with the quorum's key is one of the cluster's own processes, or its administrator.
  One that names a user is a proxy, and may do what that user may.
* Requests that read or change users need a user, or the key, also where access is off: nobody makes
  a super user for later.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from gantry_protocol.access.judgement import Judge
from gantry_protocol.access.rules import Action
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import ConfigError, ResolveError
from gantry_protocol.hosts import split_address
from gantry_protocol.process import log
from gantry_protocol.remoting.admission import BEHALF_FIELD, SOURCE_FIELD, Admitted, Denied
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.demands import OPEN, topic
from gantry_protocol.remoting.known_users import KnownUsers
from gantry_protocol.remoting.signatures import ACCESS_KEY, carries_signature, is_signed

MAY = "may"  # in a connection's attrs: what its user may do on a topic; for one request
HEARD_AS = "heard as"  # in a connection's attrs: user and address of its last heartbeat
_HEART_BEAT = RequestCode.HEART_BEAT
_LATER = {  # requests that name a message by its place: judged again once its topic is known
    RequestCode.CONSUMER_SEND_MSG_BACK: Action.SUB,
    RequestCode.END_TRANSACTION: Action.PUB,
}
USER_CODES = frozenset(range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1))

MayTouch = Callable[[str], bool]
"""Whether a user may do something on the topic of that name."""

_log = log.get("access")


class ClusterUsers(KnownUsers):
    """The users of the cluster; one for all groups of a process."""

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
        ext, is_ours = command.ext or {}, self._is_ours(command)
        is_behalf = is_ours and BEHALF_FIELD in ext
        if code in OPEN or conn.believed or (is_ours and not is_behalf):
            conn.attrs.pop(MAY, None)
            if code == _HEART_BEAT:
                conn.attrs[HEARD_AS] = (ACCESS_KEY, "")
            return None
        if not access.is_known:
            remark = "the users of the cluster are not known here yet"
            return reply(command, ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        verdict: Admitted | Denied
        if is_behalf:
            source = ext.get(SOURCE_FIELD, "")
            verdict = access.users.admit_for(ext[BEHALF_FIELD], command, source)
        else:
            source = _source(conn)
            verdict = access.users.admit(command, source)
        if isinstance(verdict, Denied):
            access.note(code, source, verdict, verdict.user)
            return reply(command, ResponseCode.NO_PERMISSION, verdict.sentence)
        access.note(code, source, None, verdict.user)
        if code == _HEART_BEAT:
            conn.attrs[HEARD_AS] = (verdict.user, source)
        if code in _LATER:
            conn.attrs.pop(MAY, None)
            if verdict.judge is not None:
                conn.attrs[MAY] = partial(_may, verdict.judge, _LATER[RequestCode(code)], source)
        return None

    def _is_ours(self, command: RemotingCommand) -> bool:
        """Whether the quorum's key has signed it."""
        if not self._access.key.is_set or not carries_signature(command):
            return False
        try:
            return is_signed(command, self._access.keys())
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
