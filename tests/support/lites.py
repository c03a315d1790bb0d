"""Consumers of lite topics, without a socket."""

from __future__ import annotations

import json

from gantry_broker.clients import ClientProcessor
from gantry_protocol.bodies import SubscriptionGroupConfig, TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.lite import lite_queue
from gantry_protocol.records import MessageRecord, decode_records
from gantry_protocol.records.properties import decode_properties
from support.broker_client import Client
from support.group_view import FakeGroup

PARENT, GROUP = "sessions", "agents"


def make_parent(group: FakeGroup, expiration: int = -1, name: str = PARENT) -> None:
    """A topic of type LITE."""
    attributes = {"message.type": "LITE", "lite.topic.expiration": str(expiration)}
    group.add_topic(
        TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4, attributes=attributes)
    )


def set_group(group: FakeGroup, name: str = GROUP, tries: int = 16, **attributes: str) -> None:
    """A consumer group of lite topics; ``sub_model`` is ``lite.sub.model``."""
    found = {f"lite.{key.replace('_', '.')}": value for key, value in attributes.items()}
    found.setdefault("lite.bind.topic", PARENT)
    group.consumers._configs[name] = SubscriptionGroupConfig(
        name, retry_max_times=tries, attributes=found
    )


def fill(group: FakeGroup, lite: str, *bodies: str, parent: str = PARENT, at: int = 0) -> None:
    """Store messages of a lite topic."""
    for number, body in enumerate(bodies):
        record = MessageRecord(
            topic=parent,
            queue_id=(at + number) % 4,
            body=body.encode(),
            properties=f"__LITE_TOPIC\x01{lite}\x02",
        )
        group.store.append([record], lambda outcome: None)


class LiteConsumer(Client):
    """Subscribes, pops, acknowledges."""

    def __init__(self, processor: ClientProcessor, name: str = "c1", group: str = GROUP) -> None:
        super().__init__(processor)
        self.name = name
        self.group = group

    async def subscribe(self, action: str, *names: str, **more: object) -> RemotingCommand:
        word = {
            "action": action,
            "clientId": self.name,
            "group": self.group,
            "topic": PARENT,
            "liteTopicSet": list(names),
            **more,
        }
        return await self.answer(200071, {}, json.dumps({"subscriptionSet": [word]}).encode())

    async def add(self, *names: str) -> None:
        answer = await self.subscribe("PARTIAL_ADD", *names)
        assert answer.code == 0, answer

    async def pop(self, **changes: object) -> dict[str, tuple[str, str]]:
        """Bodies to their lite topic and receipt."""
        answer = await self.answer(200070, {**self.ext(), **changes})
        return {} if answer.code == ResponseCode.POLLING_TIMEOUT else self.receipts(answer)

    def ext(self) -> dict[str, object]:
        return {
            "clientId": self.name,
            "consumerGroup": self.group,
            "topic": PARENT,
            "maxMsgNum": 32,
            "invisibleTime": 10_000,
            "pollTime": 0,
        }

    def receipts(self, answer: RemotingCommand) -> dict[str, tuple[str, str]]:
        assert answer.code == 0, answer
        records = decode_records(answer.body)
        counts = answer.ext["orderCountInfo"].split(";")
        assert [int(count) for count in counts] == [item.reconsume_times for item in records]
        found = {}
        for item in records:
            assert item.queue_id == 0
            lite = decode_properties(item.properties)["__LITE_TOPIC"]
            receipt = (
                f"{item.queue_offset} {answer.ext['popTime']} {answer.ext['invisibleTime']}"
                f" {answer.ext['reviveQid']} 0 broker-a 0 {item.queue_offset}"
                f" {item.physical_offset}"
            )
            found[item.body.decode()] = (lite, receipt)
        return found

    async def ack(self, found: tuple[str, str]) -> RemotingCommand:
        return await self.answer(200051, self._named(found))

    async def change(self, found: tuple[str, str], invisible_ms: int) -> RemotingCommand:
        return await self.answer(200053, {**self._named(found), "invisibleTime": invisible_ms})

    def _named(self, found: tuple[str, str]) -> dict[str, object]:
        lite, receipt = found
        return {
            "consumerGroup": self.group,
            "topic": PARENT,
            "liteTopic": lite,
            "queueId": 0,
            "offset": receipt.split(" ")[7],
            "extraInfo": receipt,
        }


def queue(name: str) -> str:
    return lite_queue(PARENT, name)
