"""The name service's codes for brokers and clients; administrators' are in ``administration``.

Every body is compact JSON with quoted keys: Go clients split the text by hand, all others read
either form. While no leader can be reached the answer is 1, on which clients keep the route they
have; 17 would be a statement about the topic.
"""

from collections.abc import Callable

from gantry_protocol.bodies import (
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    TopicList,
    decode_registration,
    decode_request,
    encode_body,
)
from gantry_protocol.bodies.route import KVTable, TopicQueues
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers import from_ext, to_ext
from gantry_protocol.headers.nameserver import (
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from gantry_protocol.names import LONG_TOPIC_CHARS_MAX
from gantry_protocol.records import masked_crc
from gantry_protocol.types import BrokerId

from gantry_controller.metadata.events import DeleteTopic, ForgetImport, ImportBroker, ReportTopic
from gantry_controller.metadata.imported import ImportedBroker
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.names import ORDER_NAMESPACE, ORDER_TO_BROKERS, setting
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import GroupKey, MetadataState
from gantry_controller.metadata.topic_table import Topic
from gantry_controller.metadata.topics import is_news
from gantry_controller.nameserver import routes
from gantry_controller.nameserver.administration import NameAdministration
from gantry_controller.nameserver.imports import Imports
from gantry_controller.remoting.dispatcher import Dispatcher, Exchange
from gantry_controller.turns import BITS, Work

NO_ROUTE = (
    "No topic route info in name server for the topic: {topic}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)
TWICE = (
    "The topic {topic} is on broker groups {name} of several clusters, which a client cannot tell "
    "apart: rename one group, or delete the topic from one of the clusters"
)
MASTER_ID = 0


class NameRequests:
    """Handlers of the name service's codes on one node.

    Args:
        dispatcher: the way into the log and back.
        machine: the applied state.
        imports: who of the old kind is there.
        listing: the settings of this node, for administrators.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        machine: MetadataStateMachine,
        imports: Imports,
        listing: Callable[[], dict[str, str]],
    ) -> None:
        self._dispatcher = dispatcher
        self._machine = machine
        self._imports = imports
        code = RequestCode
        dispatcher.add(
            {
                code.GET_UNIT_TOPIC_LIST: self._no_topics,
                code.GET_HAS_UNIT_SUB_TOPIC_LIST: self._no_topics,
                code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._no_topics,
                code.QUERY_DATA_VERSION: self._always_register,
                code.REGISTER_BROKER: self._register,
                code.UNREGISTER_BROKER: self._unregister,
                code.REGISTER_TOPIC_IN_NAMESRV: self._report_topic,
                code.GET_ROUTEINFO_BY_TOPIC: self._topic_route,
                code.GET_BROKER_CLUSTER_INFO: self._cluster_info,
                code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
                code.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
                code.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
                code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
                code.GET_BROKER_MEMBER_GROUP: self._member_group,
            }
        )
        dispatcher.add(NameAdministration(dispatcher, machine, listing).handlers())

    def _topic_route(self, exchange: Exchange) -> None:
        topic = from_ext(GetRouteInfoRequestHeader, exchange.request.ext).topic

        def answer() -> Work[RemotingCommand]:
            route = yield from routes.topic_route(self._machine.state, topic, exchange.listener)
            if route is None:
                remark = NO_ROUTE.format(topic=topic)
                return reply(exchange.request, ResponseCode.TOPIC_NOT_EXIST, remark)
            if route.twice is not None:  # clients keep addresses by name alone
                remark = TWICE.format(topic=topic, name=route.twice)
                return reply(exchange.request, ResponseCode.SYSTEM_ERROR, remark)
            return reply(exchange.request, body=route.body)

        self._dispatcher.read_in_turns(
            exchange, answer, is_short=lambda: routes.is_short(self._machine.state, topic)
        )

    def _cluster_info(self, exchange: Exchange) -> None:
        def answer() -> Work[RemotingCommand]:
            body = yield from routes.cluster_info(self._machine.state, exchange.listener)
            return reply(exchange.request, body=body)

        self._dispatcher.read_in_turns(exchange, answer)

    def _all_topics(self, exchange: Exchange) -> None:
        def answer() -> Work[RemotingCommand]:
            topics = yield from routes.all_topics(self._machine.state)
            return reply(exchange.request, body=encode_body(TopicList(topics)))

        self._dispatcher.read_in_turns(exchange, answer)

    def _topics_of_cluster(self, exchange: Exchange) -> None:
        cluster = from_ext(GetTopicsByClusterRequestHeader, exchange.request.ext).cluster

        def answer() -> Work[RemotingCommand]:
            topics = yield from routes.topics_of_cluster(self._machine.state, cluster)
            return reply(exchange.request, body=encode_body(TopicList(topics)))

        self._dispatcher.read_in_turns(exchange, answer)

    def _system_topics(self, exchange: Exchange) -> None:
        """GetSystemTopicListFromNs (304): names of clusters and groups, and a broker's address."""

        def answer() -> Work[RemotingCommand]:
            state = self._machine.state
            keys = yield from routes.known_keys(state)
            names = dict.fromkeys([*(key[0] for key in keys), *(key[1] for key in keys)])
            address: str | None = None
            for place, key in enumerate(keys, start=1):
                address = next(iter(routes.broker_data(state, key).broker_addrs.values()), None)
                if address is not None:
                    break
                if place % BITS == 0:
                    yield
            return reply(exchange.request, body=encode_body(TopicList(list(names), address)))

        self._dispatcher.read_in_turns(exchange, answer)

    def _member_group(self, exchange: Exchange) -> None:
        header = from_ext(GetBrokerMemberGroupRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            key = (header.cluster_name, header.broker_name)
            data = routes.broker_data(self._machine.state, key)
            addresses = {BrokerId(addr): data.broker_addrs[addr] for addr in data.broker_addrs}
            group = BrokerMemberGroup(addresses, header.broker_name, header.cluster_name)
            return reply(exchange.request, body=encode_body(BrokerMemberGroupBody(group)))

        self._dispatcher.read(exchange, answer)

    def _no_topics(self, exchange: Exchange) -> RemotingCommand:
        """Lists of topics by unit (311, 312, 313): there are no units, so they are empty."""
        return reply(exchange.request, body=encode_body(TopicList([])))

    def _always_register(self, exchange: Exchange) -> RemotingCommand:
        """QueryDataVersion (322): every broker is told to report; the report is compared."""
        return reply(exchange.request, ext={"changed": "true"})

    def _delete_topic(self, exchange: Exchange) -> None:
        header = from_ext(DeleteTopicFromNamesrvRequestHeader, exchange.request.ext)
        event = DeleteTopic(cluster=header.cluster_name or "", name="", topic=header.topic)
        self._dispatcher.write(
            exchange, event, lambda result: reply(exchange.request, result.code, result.remark)
        )

    def _register(self, exchange: Exchange) -> RemotingCommand | None:
        """RegisterBroker (103): a broker of the old kind; only news goes into the log."""
        header = from_ext(RegisterBrokerRequestHeader, exchange.request.ext)
        data = exchange.request.body
        if header.body_crc32 and header.body_crc32 != masked_crc(data):
            return reply(exchange.request, ResponseCode.SYSTEM_ERROR, "crc32 not match")
        wrapper = decode_registration(
            data, compressed=header.compressed
        ).topic_config_serialize_wrapper
        key = (header.cluster_name, header.broker_name)
        known = self._machine.state.imports.get(key, ())
        if len(wrapper.topic_config_table) == 1 and all(
            item.address != header.broker_addr for item in known
        ):  # an increment, and there is nothing to add it to
            return reply(exchange.request, ResponseCode.SYSTEM_ERROR, "register broker failed")
        event = ImportBroker(
            cluster=header.cluster_name,
            name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            ha_address=header.ha_server_addr,
            state_version=wrapper.data_version.state_version,
            topics={
                topic: Topic(
                    read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums,
                    perm=config.perm,
                    topic_sys_flag=config.topic_sys_flag,
                    order=config.order,
                )
                for topic, config in wrapper.topic_config_table.items()
                # A replica's table is its master's.
                if header.broker_id == MASTER_ID and len(topic) <= LONG_TOPIC_CHARS_MAX
            },
        )
        timeout_ms = header.heartbeat_timeout_ms
        timeout_s = None if timeout_ms is None or timeout_ms <= 0 else timeout_ms / 1000
        if not self._imports.reported(key, header.broker_addr, timeout_s, exchange.origin):
            return reply(exchange.request, ResponseCode.SYSTEM_ERROR, "register broker failed")

        def write() -> None:
            self._dispatcher.write(
                exchange,
                event,
                lambda result: self._registered(exchange, key, header.broker_id, result),
            )

        def known_already() -> RemotingCommand | None:
            if is_news(self._machine.state, event):
                write()
                return None
            return self._registered(exchange, key, header.broker_id, Result())

        if is_news(self._machine.state, event):
            write()
        else:
            self._dispatcher.look_again(exchange, known_already)
        return None

    def _registered(
        self, exchange: Exchange, key: GroupKey, broker_id: int, result: Result
    ) -> RemotingCommand:
        """A replica learns its master, and where that one replicates, from this answer."""
        header = RegisterBrokerResponseHeader()
        master = _reported_master(self._machine.state, key)
        if master is not None and broker_id != MASTER_ID:
            header = RegisterBrokerResponseHeader(
                ha_server_addr=master.ha_address, master_addr=master.address
            )
        ordered = self._ordered_topics() if result.ok else b""
        return reply(exchange.request, result.code, result.remark, to_ext(header), ordered)

    def _ordered_topics(self) -> bytes:
        """Which topics are ordered, for brokers to mark them."""
        state = self._machine.state
        orders = state.kv.get(ORDER_NAMESPACE)
        if orders is None or not setting(state, ORDER_TO_BROKERS):
            return b""
        return encode_body(KVTable(dict(sorted(orders.entries.items()))))

    def _report_topic(self, exchange: Exchange) -> None:
        """RegisterTopicInNamesrv (217), by old brokers with ``enableSingleTopicRegister``."""
        header = from_ext(RegisterTopicRequestHeader, exchange.request.ext)
        queues = decode_request(TopicQueues, exchange.request.body).queue_datas
        event = ReportTopic(
            topic=header.topic,
            queues={
                queue.broker_name: Topic(
                    queue.read_queue_nums, queue.write_queue_nums, queue.perm, queue.topic_sys_flag
                )
                for queue in queues
            },
        )
        self._dispatcher.write(
            exchange, event, lambda result: reply(exchange.request, result.code, result.remark)
        )

    def _unregister(self, exchange: Exchange) -> None:
        header = from_ext(UnRegisterBrokerRequestHeader, exchange.request.ext)
        event = ForgetImport(
            cluster=header.cluster_name, name=header.broker_name, address=header.broker_addr
        )
        self._dispatcher.write(
            exchange, event, lambda result: reply(exchange.request, result.code, result.remark)
        )


def _reported_master(state: MetadataState, key: GroupKey) -> ImportedBroker | None:
    """The broker that replicas replicate from, as it reported itself.

    In controller mode that is the elected one, although its last report may be that of a replica,
    and that of its predecessor says master until it reports again. A Java replica that is sent to
    the predecessor stays connected to it, without any data, until one of the two ends.
    """
    brokers = state.imports.get(key, ())
    group = state.groups.get(key)
    if group is None or group.removed or not group.had_master:
        return next((broker for broker in brokers if broker.broker_id == MASTER_ID), None)
    elected = group.master
    return next(
        (broker for broker in brokers if elected and broker.address == elected.address), None
    )
