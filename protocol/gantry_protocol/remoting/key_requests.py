"""Showing the quorum's key on a remoting connection (31005), and asking for it.

Two requests, made once after connecting, so that nothing that follows costs more: the first brings
the client's nonce and takes the server's away, the second brings the client's proof and takes the
server's away (``quorum_key``). From then on the server believes the connection (``believed``), and
the client knows that it does not speak to an impostor. A proof belongs to the two nonces before it:
one that is wrong costs the nonces, too.

The client proves itself first, so a stranger learns nothing that was made from the key.
"""

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply, request
from gantry_protocol.errors import ConfigError, KeyRefused
from gantry_protocol.process import log
from gantry_protocol.quorum_key import (
    NONCE_BYTES,
    PROOF_BYTES,
    KeyFile,
    Nonces,
    Purpose,
    Side,
    believed,
    new_nonce,
    prove,
)
from gantry_protocol.remoting.client import CONNECT_TIMEOUT_S, RemotingClient
from gantry_protocol.remoting.connection import Connection

LOG_EVERY = 100
_NONCES = "quorum key nonces"  # in a connection's attrs

_log = log.get("key")


async def show_key(
    client: RemotingClient, key: KeyFile, timeout_s: float = CONNECT_TIMEOUT_S
) -> None:
    """Both sides of the connection show the key; nothing happens without one.

    Raises:
        KeyRefused: one side does not believe the other; the connection is closed.
        RemotingError: no answer.
        ConfigError: this process's own key cannot be read; the connection is closed.
    """
    if not key.is_set:
        return
    try:
        shown, *_ = key.keys()
        nonces = Nonces(new_nonce(), b"")
        answer = await client.call(request(RequestCode.GANTRY_SHOW_KEY, body=nonces.dialler))
        if answer.code != ResponseCode.SUCCESS or len(answer.body) != NONCE_BYTES:
            raise KeyRefused(
                f"{client.address} does not ask for the quorum's key ({answer.remark}): it has "
                "none, or is of another version."
            )
        nonces = nonces._replace(listener=answer.body)
        proof = prove(shown, Purpose.CONTROL, Side.DIALLER, nonces)
        answer = await client.call(request(RequestCode.GANTRY_SHOW_KEY, body=proof), timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise KeyRefused(f"{client.address} does not believe this process: {answer.remark}")
        if believed((shown,), Purpose.CONTROL, Side.LISTENER, nonces, answer.body) is None:
            raise KeyRefused(f"{client.address} is an impostor, or has another quorum key.")
    except BaseException:
        client.close()
        raise


class KeyRequests:
    """Serves ShowKey.

    Args:
        key: what has to be shown.

    Attributes:
        refused: proofs that were none.
    """

    def __init__(self, key: KeyFile) -> None:
        """Nobody has shown anything."""
        self.refused = 0
        self._key = key

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """The answer to one step."""
        if not self._key.is_set:
            return self._refuse(connection, command, "no quorum key is set here")
        nonces: Nonces | None = connection.attrs.pop(_NONCES, None)
        if nonces is None:
            return self._challenge(connection, command)
        try:
            keys = self._key.keys()
        except ConfigError as error:
            return self._refuse(connection, command, str(error))
        key = None
        if len(command.body) == PROOF_BYTES:
            key = believed(keys, Purpose.CONTROL, Side.DIALLER, nonces, command.body)
        if key is None:
            return self._refuse(connection, command, "its quorum key is another one")
        connection.believed = True
        return reply(command, body=prove(key, Purpose.CONTROL, Side.LISTENER, nonces))

    def _challenge(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        if len(command.body) != NONCE_BYTES:
            return self._refuse(connection, command, "it begins with no nonce")
        nonces = connection.attrs[_NONCES] = Nonces(command.body, new_nonce())
        return reply(command, body=nonces.listener)

    def _refuse(
        self, connection: Connection, command: RemotingCommand, why: str
    ) -> RemotingCommand:
        self.refused += 1
        if self.refused % LOG_EVERY == 1:
            _log.warning(
                "quorum key refused", peer=connection.peer, reason=why, refused=self.refused
            )
        return reply(command, ResponseCode.NO_PERMISSION, why)
