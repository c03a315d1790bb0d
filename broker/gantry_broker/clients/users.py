"""Requests of tools about users, 3001 to 3010: passed on to the controllers, which have them.

Each is judged here, also while access is off; the controllers believe this broker. Their answers
are passed back as they are: they hold no secret.
"""

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.command import request as make_request
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.signatures import ACCESS_KEY_FIELD, SIGNATURE_FIELD

from gantry_broker.clients.access import ClusterUsers, Gate

CALL_TIMEOUT_S = 2.5


class UserRequests:
    """Passes requests about users on.

    Args:
        access: the users, as this process knows them.
    """

    def __init__(self, access: ClusterUsers) -> None:
        self._access = access
        self._gate = Gate(access)

    def pass_on(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Answer as the controllers do."""
        objection = self._gate.judged(conn, request)
        if objection is not None:
            return objection
        ext = {**(request.ext or {}), "clusterName": self._access.cluster}
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

        self._access.peers.ask(command, answered, CALL_TIMEOUT_S)
        return None
