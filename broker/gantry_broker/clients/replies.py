"""Request and reply: SendReplyMessage (324), SendReplyMessageV2 (325).

A request is a message like any other; its producer waits for an answer, and the message names the
producer's client (``REPLY_TO_CLIENT``). Whoever consumes it sends the answer to the reply topic of
what ``CLUSTER`` says there, and the broker hands it to that client by PushReplyMessageToClient
(326), whose answer is the answer to the reply. Upstream: ``ReplyMessageProcessor``.

Two things are done in another way than upstream does them:

* A reply is not stored. It is of use to one client, for as long as that client waits.
* ``CLUSTER`` of a request is its broker group. The topic of that name leads to this group alone, so
  a reply comes to where the producer is connected. Upstream's leads to all groups of the cluster.
"""

from collections.abc import Callable, Iterator

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.command import request as make_request
from gantry_protocol.headers.client import ReplyMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.names import CLIENT_CHARS_MAX
from gantry_protocol.records import append_properties, decode_properties, without_property
from gantry_protocol.records.properties import CLUSTER, PUSH_REPLY_TIME, REPLY_TO_CLIENT
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import topic_rules
from gantry_broker.clients.plain_sends import ANSWER_EXT, SendHeader, refuse_send, send_header
from gantry_broker.clients.questions import Question, Questions
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import Refusal

TAKEN_WITHIN_S = 2.0  # Java's consumer gives its reply 3 s
MAX_UNDER_WAY = 4096
_STORED_NOWHERE = {"msgId": "0", "queueOffset": "0", **ANSWER_EXT}  # Java looks for them
_TOO_MANY = Refusal(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many replies are under way")


class Replies(Questions):
    """Replies under way to the clients that wait for them.

    Args:
        view: the group.
        sessions: its clients.
        clock: seconds since 1970.
        numbers: see ``Questions``.

    Attributes:
        pushed: replies that clients have taken, in this mastership.
        homeless: replies to clients that were not here.
    """

    def __init__(
        self,
        view: GroupView,
        sessions: Sessions,
        clock: Callable[[], float],
        numbers: Iterator[int],
    ) -> None:
        super().__init__("client", MAX_UNDER_WAY, TAKEN_WITHIN_S, numbers)
        self.pushed = self.homeless = 0
        self._view = view
        self._sessions = sessions
        self._clock = clock

    def expected(self, conn: Connection, client_id: str) -> None:
        """A client waits for a reply to what it has sent on ``conn``.

        After a change of master it may have sent this before its next heartbeat.
        """
        if len(client_id) <= CLIENT_CHARS_MAX:
            self._sessions.heard(conn, client_id)

    def push(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Hand a reply to its client; the client's answer is answered."""
        header = send_header(request)
        refusal = topic_rules.check_target(header.topic)
        if refusal is not None:
            return refuse_send(request, refusal)
        client_id = decode_properties(header.properties or "").get(REPLY_TO_CLIENT)
        if client_id is None:
            return _fail(request, f"reply message properties[{REPLY_TO_CLIENT}] is null")
        client = self._sessions.client(client_id)
        if client is None:
            self.homeless += 1
            return _fail(request, f"push reply message fail, channel of <{client_id}> not found.")
        if self.is_full():
            return refuse_send(request, _TOO_MANY)

        def answered(code: int, remark: str | None, ext: object, body: bytes) -> None:
            if code == ResponseCode.SUCCESS:
                self.pushed += 1
                answer = reply(request, ext={**_STORED_NOWHERE, "queueId": str(queue_id)})
            else:
                answer = _fail(request, f"push reply message to {client_id} fail: {remark}")
            conn.reply(request, answer)

        queue_id = max(header.queue_id, 0)
        self.ask(Question(conn, client, answered), self._reply(conn, header, request.body))
        return None

    def _reply(self, conn: Connection, header: SendHeader, body: bytes) -> RemotingCommand:
        now_ms = int(self._clock() * 1000)
        host, port = self._view.store_host
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=conn.peer,
            store_host=f"{host}:{port}",
            store_timestamp=now_ms,
            properties=append_properties(header.properties or "", {PUSH_REPLY_TIME: str(now_ms)}),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )
        return make_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, to_ext(pushed), body)


def request_properties(properties: str, broker_name: str) -> str:
    """Properties of a message, with the group to whose reply topic a reply goes."""
    return append_properties(without_property(properties, CLUSTER), {CLUSTER: broker_name})


def _fail(request: RemotingCommand, remark: str) -> RemotingCommand:
    return refuse_send(request, Refusal(ResponseCode.SYSTEM_ERROR, remark))
