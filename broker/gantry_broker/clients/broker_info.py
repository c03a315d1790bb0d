"""Requests about the broker itself: its runtime, settings, system topics, delays, modes.

The requests are 25, 26, 28, 45, 305, 353 to 355, 401 and 402; 27, 306, 316 and 329 find nothing
left to clean.

Names and formats are upstream's, since tools look for them; a number is only shown where there is
one. Nothing changes while brokers run: settings are the BrokerGroup's, so that all replicas have
the same, and whoever becomes master keeps to them. A change is refused by name (16) rather than
dropped in silence.
"""

import time
from collections.abc import Callable
from importlib.metadata import version

from gantry_protocol import settings_text
from gantry_protocol.bodies.codec import encode_body
from gantry_protocol.bodies.inspection import (
    DelayOffsets,
    GroupForbidden,
    QueueCheck,
)
from gantry_protocol.bodies.route import DataVersion, KVTable, TopicList
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers.brokeradmin import TopicAndGroupRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.settings.delays import MAX_LEVELS

from gantry_broker.clients import topic_rules
from gantry_broker.clients.core.delay.parked import PROGRESS_GROUP
from gantry_broker.clients.traffic import Traffic
from gantry_broker.clients.view import GroupView

BLACK_LIST = ("configBlackList", "brokerConfigPath")
"""Upstream's; refused in its words."""

_QUEUES_AGREE = 0  # CheckRocksdbCqWriteResult.CheckStatus.CHECK_OK
_NOT_QUEUED_HERE = ("send", "pull", "litePull", "query", "ack", "admin")


class BrokerInfo:
    """Serves questions about the broker.

    Args:
        view: the group.
        traffic: how much goes through.
        clock: seconds since 1970.
    """

    def __init__(
        self, view: GroupView, traffic: Traffic, clock: Callable[[], float] = time.time
    ) -> None:
        self._view = view
        self._traffic = traffic
        self._clock = clock
        self._release = f"GANTRY_{version('gantry').replace('.', '_')}"
        self._began_ms = int(clock() * 1000)

    def runtime(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetBrokerRuntimeInfo (28)."""
        put, got = self._traffic.rates()
        total = [item + other for item, other in zip(put, got, strict=True)]
        table = {
            "brokerActive": "true",
            "brokerVersionDesc": self._release,
            "bootTimestamp": str(self._began_ms),
            "runtime": _duration(int(self._clock()) - self._began_ms // 1000),
            "putTps": _numbers(put),
            "getTransferredTps": _numbers(got),
            "getFoundTps": _numbers(got),
            "getTotalTps": _numbers(total),
            "topicsCount": str(len(self._view.store.topics)),
            # Nothing waits in a pool here, and there is no timer wheel that could be behind.
            "pageCacheLockTimeMills": "0",
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
            **{f"{pool}ThreadPoolQueueSize": "0" for pool in _NOT_QUEUED_HERE},
            **{f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0" for pool in _NOT_QUEUED_HERE},
        }
        return reply(request, body=encode_body(KVTable(table)))

    def settings(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetBrokerConfig (26)."""
        host, port = self._view.store_host
        listing = {
            "brokerClusterName": self._view.cluster,
            "brokerName": self._view.broker_name,
            "brokerId": "0",
            "brokerIP1": host,
            "listenPort": str(port),
            "brokerRole": "SYNC_MASTER",
            "flushDiskType": "SYNC_FLUSH",
            "enableControllerMode": settings_text.flag(True),
            "autoCreateTopicEnable": settings_text.flag(True),
            "autoCreateSubscriptionGroup": settings_text.flag(True),
            "defaultTopicQueueNums": str(topic_rules.DEFAULT_TOPIC_QUEUES),
            "longPollingEnable": settings_text.flag(True),
            "enablePropertyFilter": settings_text.flag(False),
            "useServerSideResetOffset": settings_text.flag(True),
        }
        data_version = encode_body(DataVersion()).decode()  # nothing changes
        return reply(request, ext={"version": data_version}, body=settings_text.write(listing))

    def change_settings(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """UpdateBrokerConfig (25)."""
        wanted = settings_text.parse(request.body)
        if not wanted.keys().isdisjoint(BLACK_LIST):
            remark = "Can not update config in black list."
            return reply(request, ResponseCode.NO_PERMISSION, remark)
        names = ", ".join(sorted(wanted))[:200] or "nothing"
        remark = (
            f"{names} does not change while brokers run: set it in spec.config of the BrokerGroup,"
            " for all replicas"
        )
        return reply(request, ResponseCode.NO_PERMISSION, remark)

    def clean(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """Deletion of old files and of rows that nobody needs: codes 27, 329, 306 and 316.

        The retention looks each second, rows go with their files, and queues go with their topic,
        so that is done already.
        """
        return reply(request)

    def system_topics(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetSystemTopicListFromBroker (305)."""
        return reply(request, body=encode_body(TopicList(topic_rules.system_topics())))

    def delay_offsets(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """GetAllDelayOffset (45): how far each delay level has been delivered."""
        rows = self._view.store.committed.of_group(PROGRESS_GROUP)
        levels = {
            queue_id + 1: offset for _, _, queue_id, offset in sorted(rows) if queue_id < MAX_LEVELS
        }
        return reply(request, body=encode_body(DelayOffsets(levels)))

    def forbidden(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """UpdateAndGetGroupForbidden (353): every group may read every topic, unchangeably."""
        header = from_ext(TopicAndGroupRequestHeader, request.ext)
        if header.readable is False:
            remark = (
                f"whether {header.group} may read one topic is not kept here:"
                " set consumeEnable of the group to false instead (updateSubGroup -s false)"
            )
            return reply(request, ResponseCode.NO_PERMISSION, remark)
        return reply(request, body=encode_body(GroupForbidden(header.topic, header.group, True)))

    def check_queues(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """CheckRocksdbCqWriteProgress (354): there are no files of queues to compare with."""
        body = QueueCheck(_QUEUES_AGREE, "queues are kept in RocksDB alone")
        return reply(request, body=encode_body(body))

    def export(self, conn: Connection, request: RemotingCommand) -> RemotingCommand:
        """ExportRocksdbConfigToJson (355), refused: nobody could fetch the files."""
        remark = (
            "topics, groups and offsets are not written to files:"
            " exportMetadata asks for them, as topicList, consumerProgress and getConsumerConfig do"
        )
        return reply(request, ResponseCode.NO_PERMISSION, remark)


def _numbers(rates: list[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)


def _duration(seconds: int) -> str:
    minutes, second = divmod(max(0, seconds), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"[ {day} days, {hour} hours, {minute} minutes, {second} seconds ]"
