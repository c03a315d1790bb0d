"""A fake group that answers administrators, too: listings, settings, members, progress, resets."""

from __future__ import annotations

from gantry_protocol.bodies import (
    ClientConnection,
    ConsumerConnections,
    ConsumerOffsets,
    MessageQueue,
    OffsetWrapper,
    QueueData,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicList,
    TopicRouteData,
    decode_body,
    encode_body,
    encode_consume_stats,
    encode_reset_offsets,
)
from gantry_protocol.codes import RequestCode as Code
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.records import MessageRecord
from support.fake_group import FakeGroup

Ext = dict[str, str]


class AdminGroup(FakeGroup):
    """See the module. `members` and `committed` are the test's to set."""

    def __init__(self) -> None:
        super().__init__(queues=2, topics=("t",))
        self.shapes: dict[str, tuple[int, int]] = {"t": (2, 6)}  # queues, perm
        self.attributes: list[str | None] = []
        self.members: dict[str, list[str]] = {}
        self.settings: dict[str, SubscriptionGroupConfig] = {}
        self.deleted: list[tuple[str, dict[str, str]]] = []

    def fill(self, topic: str, queue: int, count: int) -> None:
        """Let a queue have so many messages."""
        self.logs[topic, queue] = [MessageRecord(topic=topic)] * count

    async def serve(self, command: RemotingCommand) -> RemotingCommand:
        answer = {
            Code.GET_ROUTEINFO_BY_TOPIC: self._admin_route,
            Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            Code.UPDATE_AND_CREATE_TOPIC: self._put_topic,
            Code.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            Code.GET_ALL_CONSUMER_OFFSET: self._all_offsets,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_settings,
            Code.GET_SUBSCRIPTIONGROUP_CONFIG: self._setting,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._put_setting,
            Code.DELETE_SUBSCRIPTIONGROUP: self._delete_setting,
            Code.GET_CONSUMER_CONNECTION_LIST: self._connections,
            Code.GET_CONSUME_STATS: self._progress,
            Code.SEARCH_OFFSET_BY_TIMESTAMP: lambda command, _: reply(command, ext={"offset": "1"}),
            Code.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
        }.get(Code(command.code))
        return (
            await super().serve(command) if answer is None else answer(command, command.ext or {})
        )

    def _topics(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        return reply(command, body=encode_body(TopicList([*self.shapes, "TBW102"])))

    def _put_topic(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        self.shapes[ext["topic"]] = (int(ext["readQueueNums"]), int(ext["perm"]))
        self.attributes.append(ext.get("attributes"))
        return reply(command)

    def _delete_topic(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        self.deleted.append((ext["topic"], ext))
        self.shapes.pop(ext["topic"], None)
        return reply(command)

    def _all_offsets(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        table = {f"{topic}@{group}": {0: 0} for group, topic, _ in self.committed}
        return reply(command, body=encode_body(ConsumerOffsets(table)))

    def _all_settings(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        return reply(command, body=encode_body(SubscriptionGroupTable(self.settings)))

    def _setting(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        setting = self.settings.get(ext["group"])
        if setting is None:
            return reply(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        return reply(command, body=encode_body(setting))

    def _put_setting(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        setting = decode_body(SubscriptionGroupConfig, command.body)
        self.settings[setting.group_name] = setting
        return reply(command)

    def _delete_setting(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        self.deleted.append((ext["groupName"], ext))
        return reply(command)

    def _admin_route(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        topic = ext["topic"]
        if topic not in self.shapes and topic != "TBW102":
            return reply(command, ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        queues, perm = self.shapes.get(topic, (8, 7))
        route = TopicRouteData(self.brokers(), [QueueData("orders", perm, queues, queues)], {})
        return reply(command, body=encode_body(route))

    def _connections(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        members = self.members.get(ext["consumerGroup"])
        if not members:
            return reply(command, ResponseCode.CONSUMER_NOT_ONLINE, "not online")
        body = ConsumerConnections(
            [ClientConnection(name, "10.0.0.7:5000", "JAVA", 479) for name in members],
            {"t": SubscriptionData("t", "TagA")},
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_LAST_OFFSET",
        )
        return reply(command, body=encode_body(body))

    def _progress(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        table = {
            MessageQueue("orders", queue, topic): OffsetWrapper(
                len(self.logs[topic, queue]), offset, 1_700_000_000_000
            )
            for (group, topic, queue), offset in self.committed.items()
            if group == ext["consumerGroup"] and ext.get("topic") in (None, topic)
        }
        return reply(command, body=encode_consume_stats(table))

    def _reset(self, command: RemotingCommand, ext: Ext) -> RemotingCommand:
        queue, offset = int(ext["queueId"]), int(ext["offset"])
        self.committed[ext["group"], ext["topic"], queue] = offset
        table = {MessageQueue("orders", queue, ext["topic"]): offset}
        return reply(command, body=encode_reset_offsets(table))
