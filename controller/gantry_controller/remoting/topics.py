"""Topics at the controller: created, listed and deleted, as brokers and mqadmin ask.

The controller commits a topic first; a broker reads the table of its group when it learns of a
newer version.
"""

from functools import partial

from gantry_protocol.bodies import TopicConfig, TopicConfigTable, decode_body, encode_body
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers import from_ext, to_ext
from gantry_protocol.headers.brokeradmin import (
    CreateTopicRequestHeader,
    CreateTopicResponseHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    ReportTopicsRequestHeader,
)
from gantry_protocol.settings.readers import READERS

from gantry_controller.liveness.watchman import Watchman
from gantry_controller.metadata.events import CreateTopic, DeleteTopic, ReportTopics
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.topic_table import Topic
from gantry_controller.remoting.dispatcher import Dispatcher, Exchange, Serve
from gantry_controller.turns import BITS, Work, sorted_in_turns


class TopicRequests:
    """Handlers of the topic codes on one node."""

    def __init__(
        self, dispatcher: Dispatcher, machine: MetadataStateMachine, watchman: Watchman
    ) -> None:
        """``watchman`` tells whether all controllers know what this one knows."""
        self._dispatcher = dispatcher
        self._machine = machine
        self._watchman = watchman

    def handlers(self) -> dict[RequestCode, Serve]:
        """The handlers of this module's requests."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.GANTRY_REPORT_TOPICS: self._report,
        }

    def _create_topic(self, exchange: Exchange) -> RemotingCommand | None:
        header = from_ext(CreateTopicRequestHeader, exchange.request.ext)
        if READERS in (header.attributes or "") and not self._watchman.may_raise():
            remark = f"Not all controllers know {READERS} yet: finish their roll-out first"
            return reply(exchange.request, ResponseCode.INVALID_PARAMETER, remark)
        config = Topic(
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_sys_flag=header.topic_sys_flag,
            order=header.order,
        )
        event = CreateTopic(
            cluster=header.cluster_name or "",
            name=header.broker_name or "",
            topic=header.topic,
            config=config,
            if_absent=header.if_absent,
            attributes=header.attributes or "",
        )
        self._dispatcher.write(exchange, event, partial(_topics_changed, exchange.request))
        return None

    def _delete_topic(self, exchange: Exchange) -> None:
        header = from_ext(DeleteTopicRequestHeader, exchange.request.ext)
        event = DeleteTopic(
            cluster=header.cluster_name or "", name=header.broker_name or "", topic=header.topic
        )
        self._dispatcher.write(exchange, event, partial(_topics_changed, exchange.request))

    def _report(self, exchange: Exchange) -> None:
        """ReportTopics (31009)."""
        header = from_ext(ReportTopicsRequestHeader, exchange.request.ext)
        body = decode_body(TopicConfigTable, exchange.request.body)
        event = ReportTopics(
            cluster=header.cluster_name,
            name=header.broker_name,
            broker_id=header.broker_id,
            master_epoch=header.master_epoch,
            incarnation=header.incarnation,
            topics={name: _topic(one) for name, one in body.topic_config_table.items()},
            more=header.more,
        )
        self._dispatcher.write(exchange, event, partial(_topics_changed, exchange.request))

    def _topics(self, exchange: Exchange) -> None:
        header = from_ext(GetAllTopicConfigRequestHeader, exchange.request.ext)

        def answer() -> Work[RemotingCommand]:
            group = self._machine.group(header.cluster_name, header.broker_name or "")
            if group is None:
                remark = f"There is no broker group {header.broker_name}"
                return reply(exchange.request, ResponseCode.SYSTEM_ERROR, remark)
            table = self._machine.state.topic_table(group.key)  # a value: it stays as it is
            if table.is_partial:
                code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
                remark = f"The master of {group.name} has not said yet which topics its log has"
                return reply(exchange.request, code, remark)
            configs: dict[str, TopicConfig] = {}
            for place, topic in enumerate((yield from sorted_in_turns(table.topics)), start=1):
                if place % BITS == 0:
                    yield
                configs[topic] = _topic_config(topic, table.topics[topic])
            body = TopicConfigTable(
                topic_config_table=configs,
                topics_version=table.version,
                topics_since={topic: config.since for topic, config in table.topics.items()},
            )
            return reply(exchange.request, body=encode_body(body))

        self._dispatcher.read_in_turns(exchange, answer)


def _topics_changed(to: RemotingCommand, result: Result) -> RemotingCommand:
    ext = to_ext(CreateTopicResponseHeader(result.topics_version))
    return reply(to, result.code, result.remark, ext)


def _topic(config: TopicConfig) -> Topic:
    return Topic(
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=config.attributes,
    )


def _topic_config(name: str, topic: Topic) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm,
        topic_sys_flag=topic.topic_sys_flag,
        order=topic.order,
        attributes=topic.attributes,
    )
