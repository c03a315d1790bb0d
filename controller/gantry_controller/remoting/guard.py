"""The guard of requests that change what the quorum holds.

A request whose row says ``needs_key`` is served for a connection on which the quorum's key was
shown (31005), for one that carries a signature made with it (unmodified Java tools and brokers),
and for everybody where ``allow_unauthenticated`` is set; but not where it is about users, and there
is a key. The dispatcher asks here before it does anything else with a request, at the first node it
comes to; the others believe that node, which shows its key when it passes requests on.
"""

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.errors import ConfigError
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
REFUSAL = (
    "The request changes the quorum's state, and no quorum key was shown: set quorum_key_file "
    "where it comes from, or sign it (access key gantry, the quorum's key as secret key)."
)
MISSIGNED = (
    "The request changes the quorum's state, and its signature was not made with the quorum's key: "
    "use the access key gantry, and the line in quorum_key_file as the secret key."
)

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

    @property
    def has_key(self) -> bool:
        """Whether this node can tell who has the quorum's key."""
        return self._key.is_set

    def objection(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """The answer to ``command``, which needs the key, if the sender may not give it."""
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

    def _is_signed(self, command: RemotingCommand) -> bool:
        if not carries_signature(command):
            return False  # strangers cost no look at the file
        try:
            return is_signed(command, self._key.keys())
        except ConfigError as error:
            if self.refused % LOG_EVERY == 0:
                _log.warning("signature cannot be judged", reason=error)
            return False


def _name(code: int) -> str:
    return RequestCode(code).name
