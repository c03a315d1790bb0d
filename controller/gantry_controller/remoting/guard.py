"""The guard of requests that change what the quorum holds.

A request whose row says ``needs_key`` is served for a connection on which the quorum's key was
shown (31005), for one that carries a signature made with it (unmodified Java tools and brokers),
and for everybody where ``allow_unauthenticated`` is set; but not where it is about users, and there
is a key. The dispatcher asks here before it does anything else with a request, at the first node it
comes to; the others believe that node, which shows its key when it passes requests on.

Where TLS between members is enforced the key does not do: what only members say (``SPOKEN_BY``) is
served for a certificate that names the sender, of the group that it speaks of, and everything else
that needs the key for any member, or with a signature. The name service's port is as before.
"""

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import ConfigError
from gantry_protocol.key_gate import CONTROLLER
from gantry_protocol.member_tls.mixed import names_of
from gantry_protocol.member_tls.names import MemberKind, MemberName, Names
from gantry_protocol.process import log
from gantry_protocol.quorum_key import KeyFile
from gantry_protocol.remoting.key_requests import KeyRequests
from gantry_protocol.remoting.server import Connection
from gantry_protocol.remoting.signatures import (
    carries_any_signature,
    carries_signature,
    is_signed,
)

LOG_EVERY = 100
OF_USERS = frozenset(
    {
        RequestCode.GANTRY_SET_ACCESS,
        *range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1),
    }
)
SPOKEN_BY = {
    RequestCode.BROKER_HEARTBEAT: (MemberKind.BROKER,),
    RequestCode.GANTRY_HEARTBEATS: (MemberKind.BROKER,),
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: (MemberKind.BROKER,),
    RequestCode.CONTROLLER_ELECT_MASTER: (MemberKind.BROKER,),
    RequestCode.CONTROLLER_REGISTER_BROKER: (MemberKind.BROKER,),
    RequestCode.CONTROLLER_APPLY_BROKER_ID: (MemberKind.BROKER,),
    RequestCode.GANTRY_REPORT_CONSUMERS: (MemberKind.BROKER,),
    RequestCode.GANTRY_REPORT_LOCKS: (MemberKind.BROKER,),
    RequestCode.GANTRY_REPORT_TOPICS: (MemberKind.BROKER,),
    RequestCode.GANTRY_SEAL_QUEUES: (MemberKind.BROKER,),
    RequestCode.GANTRY_RELEASE_SEGMENTS: (MemberKind.BROKER,),
    RequestCode.GANTRY_GET_ACCESS: (MemberKind.FRONT, MemberKind.BROKER),
}
"""Requests that need the key and that only members send. An election by mqadmin is one of them: a
signature can be sent again by whoever has read it, and would move a mastership."""

OF_MANY = frozenset({RequestCode.GANTRY_HEARTBEATS, RequestCode.GANTRY_GET_ACCESS})
"""Those that name no group: each row of heartbeats is judged by itself, users are the cluster's."""

REFUSAL = (
    "The request changes the quorum's state, and no quorum key was shown: set quorum_key_file "
    "where it comes from, or sign it (access key gantry, the quorum's key as secret key)."
)
NO_MEMBER = (
    "The request changes the quorum's state, and TLS between members is enforced here: send it by "
    "TLS and show a certificate {}."
)
MEMBERS = (CONTROLLER, MemberName(MemberKind.BROKER), MemberName(MemberKind.FRONT))
"""Whose certificates are believed at the controllers' port."""

MISSIGNED = (
    "The request changes the quorum's state, and its signature was not made with the quorum's key: "
    "use the access key gantry, and the line in quorum_key_file as the secret key."
)

_SPOKEN_BY: dict[int, tuple[MemberKind, ...]] = {int(code): who for code, who in SPOKEN_BY.items()}

_log = log.get("guard")


class Guard:
    """See the module.

    Args:
        key: what has to be shown.
        is_open: whether nothing has to be.

    Attributes:
        refused: requests without a key.
    """

    def __init__(self, key: KeyFile, *, is_open: bool) -> None:
        """Nobody was refused."""
        self.refused = 0
        self.is_open = is_open
        self.key_requests = KeyRequests(key)
        self._key = key
        self._tls = key.tls

    @property
    def has_key(self) -> bool:
        """Whether this node can tell who has the quorum's key."""
        return self._key.is_set

    def objection(
        self,
        connection: Connection,
        command: RemotingCommand,
        *,
        at_name_service: bool = False,
    ) -> RemotingCommand | None:
        """The answer to ``command``, which needs the key, if the sender may not give it.

        Args:
            connection: that it came on.
            command: the request.
            at_name_service: whether it came to that port.
        """
        if self._tls.is_on and not at_name_service:
            objection = self._members_objection(connection, command)
            if objection is not None:
                return objection
        is_open = self.is_open and not (self.has_key and command.code in OF_USERS)
        if is_open or connection.believed or self._is_signed(command):
            return None
        self.refused += 1
        if self.refused % LOG_EVERY == 1:
            _log.warning(
                "request refused, its sender has not shown the quorum's key",
                code=_name(command.code),
                peer=connection.peer,
                refused=self.refused,
            )
        why = MISSIGNED if carries_any_signature(command) else REFUSAL
        return reply(command, ResponseCode.NO_PERMISSION, why)

    def speaks_for(self, connection: Connection, cluster: str, group: str) -> bool:
        """Whether the sender may speak for a member of that group."""
        names = names_of(connection.attrs)
        if self._tls.takes(names, CONTROLLER):
            return True
        broker = MemberName(MemberKind.BROKER, cluster, group)
        return bool(cluster and group) and self._tls.takes(names, broker)

    def _members_objection(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        """The answer to a request of whoever shows no certificate, or another member's."""
        names = names_of(connection.attrs)
        spoken_by = _SPOKEN_BY.get(command.code, ())
        if names is not None and spoken_by and command.code not in OF_MANY:
            name_cluster(command, names)
        ext = command.ext or {}
        cluster, group = ext.get("clusterName") or "", ext.get("brokerName") or ""
        wanted = [CONTROLLER, *(MemberName(kind, cluster, group) for kind in spoken_by)]
        if names is not None and not (cluster and group) and command.code not in OF_MANY:
            wanted = [CONTROLLER]  # it would stand for any group
        if names is None and not spoken_by and self._is_signed(command):
            return None
        if any(self._tls.takes(names, member) for member in (wanted if spoken_by else MEMBERS)):
            return None
        last = wanted[-1]
        of = f" of {'/'.join(filter(None, (last.cluster, last.group)))}" if last.cluster else ""
        whose = f"of a {last.kind}{of}" if spoken_by else "of a member"
        said = "no certificate was shown" if names is None else f"it shows that of {names}"
        self.refused += 1
        self._tls.note_refused(
            "plain" if names is None else "name",
            "control",
            connection.peer,
            f"{_name(command.code)} needs a certificate {whose}, {said}",
        )
        return reply(command, ResponseCode.NO_PERMISSION, NO_MEMBER.format(whose))

    def _is_signed(self, command: RemotingCommand) -> bool:
        if not carries_signature(command):
            return False  # strangers cost no look at the file
        try:
            return is_signed(command, self._key.keys())
        except ConfigError as error:
            if self.refused % LOG_EVERY == 0:
                _log.warning("signature cannot be judged", reason=error)
            return False


def name_cluster(command: RemotingCommand, names: Names) -> None:
    """A request that names a group and no cluster is of the cluster in the certificate.

    Brokers of the old kind leave it out, and the group of that name could be another cluster's.
    """
    ext = command.ext or {}
    group = ext.get("brokerName") or ""
    if group and not ext.get("clusterName"):
        asked = MemberName(MemberKind.BROKER, "", group)
        cluster = next((one.cluster for one in names.members if names.only(one).has(asked)), "")
        if cluster:
            command.ext = {**ext, "clusterName": cluster}


def _name(code: int) -> str:
    return RequestCode(code).name
