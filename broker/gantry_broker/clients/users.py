"""Requests of tools about users, 3001 to 3010: passed on to the controllers, which have them.

The gate has let them in; the controllers believe this broker. Their answers are passed back as they
are: they hold no secret.
"""

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.command import request as make_request
from gantry_protocol.remoting.asking import Asker, Outcome
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.signatures import ACCESS_KEY_FIELD, SIGNATURE_FIELD

CALL_TIMEOUT_S = 2.5


class UserRequests:
    """Passes requests about users on.

    Args:
        cluster: whose users.
        peers: the controllers.
    """

    def __init__(self, cluster: str, peers: Asker) -> None:
        self._cluster = cluster
        self._peers = peers

    def pass_on(self, conn: Connection, request: RemotingCommand) -> None:
        """Answer as the controllers do."""
        ext = {**(request.ext or {}), "clusterName": self._cluster}
        for field in (ACCESS_KEY_FIELD, SIGNATURE_FIELD):
            ext.pop(field, None)
        command = make_request(request.code, ext, request.body)

        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, RemotingCommand):
                answer = reply(request, outcome.code, outcome.remark, body=outcome.body)
            else:
                remark = f"the controllers did not answer: {outcome}"
                answer = reply(request, ResponseCode.SYSTEM_BUSY, remark)
            conn.reply(request, answer)

        self._peers.ask(command, answered, CALL_TIMEOUT_S)
