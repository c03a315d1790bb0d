"""Topics and connections as tools list them, and the deletion of a topic."""

from gantry_protocol.bodies import (
    ClientConnection,
    ProducerConnections,
    TopicConfigTable,
    encode_body,
)
from gantry_protocol.bodies.route import DataVersion
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers.brokeradmin import (
    DeleteTopicRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients import topic_rules
from gantry_broker.clients.sessions import Sessions
from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import Refusal


class Listings:
    """Serves listings of one group."""

    def __init__(self, view: GroupView, sessions: Sessions) -> None:
        self._view = view
        self._sessions = sessions

    def topics(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetAllTopicConfig: the version changes when a topic does, and only then."""
        topics = self._view.store.topics
        table = {item.topic_name: item for item in topics.all()}
        body = TopicConfigTable(dict(sorted(table.items())), DataVersion(counter=topics.version))
        return reply(request, ext={"totalTopicNum": str(len(table))}, body=encode_body(body))

    def delete_topic(self, conn: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """DeleteTopicInBroker (215): the controllers strike it, then its end comes through the log.

        Deleting what is not there succeeds, as upstream's does; the controllers decide what is.
        """
        name = from_ext(DeleteTopicRequestHeader, request.ext).topic
        refusal = self._view.accepting_writes() or topic_rules.check_deletable(name)
        if refusal is not None:
            return reply(request, *refusal)

        def deleted(refusal: Refusal | None) -> None:
            answer = reply(request) if refusal is None else reply(request, *refusal)
            conn.reply(request, answer)

        self._view.delete_topic(name, deleted)
        return None

    def producers(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetProducerConnectionList (204)."""
        name = from_ext(GetProducerConnectionListRequestHeader, request.ext).producer_group
        members = self._sessions.producers(name)
        if not members:
            remark = f"the producer group[{name}] not exist"
            return reply(request, ResponseCode.SYSTEM_ERROR, remark)
        listed = [
            ClientConnection(
                member.client_id, member.connection.peer, member.language, member.version
            )
            for member in members
        ]
        return reply(request, body=encode_body(ProducerConnections(listed)))
