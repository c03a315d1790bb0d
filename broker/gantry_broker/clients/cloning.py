"""CloneGroupOffset (314): a consumer group begins where another one is.

Upstream: ``ConsumerOffsetManager.cloneOffset``. What is taken over are committed offsets; messages
that members of the source have in hand reach the new group as well.
"""

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers.brokeradmin import CloneGroupOffsetRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.offsets import OffsetWriter
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.topic_rules import is_system_group
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import SendOutcome


class Cloning:
    """Serves CloneGroupOffset on one group.

    Args:
        view: the group.
        sessions: who subscribed to what.
        writer: brings offsets into the log.
    """

    def __init__(self, view: GroupView, sessions: Sessions, writer: OffsetWriter) -> None:
        self._view = view
        self._sessions = sessions
        self._writer = writer

    def clone(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Answer once the log says so; a group without offsets gives nothing."""
        header = from_ext(CloneGroupOffsetRequestHeader, request.ext)
        refusal = self._view.accepting_writes()
        if refusal is not None:
            return reply(request, *refusal)
        for group in (header.src_group, header.dest_group):
            if is_system_group(group):
                remark = f"the group[{group}] belongs to the broker"
                return reply(request, ResponseCode.NO_PERMISSION, remark)
        committed = self._view.store.committed
        present = None if header.offline else self._sessions.group(header.src_group)
        for _, topic, queue_id, offset in committed.of_group(header.src_group):
            is_read = present is None or topic in present.topics
            if is_read and header.topic in (None, "", topic):
                committed.commit(header.dest_group, topic, queue_id, offset)

        def written(outcome: SendOutcome) -> None:
            code = outcome.code and ResponseCode.SYSTEM_BUSY
            conn.reply(request, reply(request, code, outcome.remark))

        self._writer.now(written)
        return None
