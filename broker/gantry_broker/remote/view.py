"""A broker group whose store is another process, seen from its clients."""

from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode

from gantry_broker.clients.view import ConsumerBook, Created
from gantry_broker.remote.store import RemoteStore
from gantry_broker.store.contract import Refusal

_SILENT = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. the store has not said yet whether it accepts writes",
)


class RemoteView:
    """Implements ``GroupView`` over a ``RemoteStore``.

    Args:
        store: whose tables have been told.
        cluster: of the group.
        broker_name: of the group.
        store_host: where this broker can be asked for a record by its offset id.
        consumers: subscription groups, and who is in them.
    """

    def __init__(
        self,
        store: RemoteStore,
        *,
        cluster: str,
        broker_name: str,
        store_host: tuple[str, int],
        consumers: ConsumerBook,
    ) -> None:
        self.store = store
        self.cluster = cluster
        self.broker_name = broker_name
        self.store_host = store_host
        self.consumers = consumers

    def accepting_writes(self) -> Refusal | None:
        """None when the storage process said last that it accepts them; it decides for each."""
        state = self.store.state
        return _SILENT if state is None else state.refusal

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        """Create or change a topic: by the controllers first, then by a record in the log."""
        self.store.change_topic(topic.topic_name, topic, done, if_absent=if_absent)

    def delete_topic(self, topic: str, done: Created) -> None:
        """Delete a topic: by the controllers first, then by a record in the log."""
        self.store.change_topic(topic, None, done, if_absent=False)
