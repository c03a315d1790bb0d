"""A consumer by POP, without a socket."""

from __future__ import annotations

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.records import MessageRecord, decode_records
from support.broker_client import Client
from support.group_view import FakeGroup

TOPIC, GROUP = "TopicTest", "g"
POP: dict[str, object] = {
    "consumerGroup": GROUP,
    "topic": TOPIC,
    "queueId": -1,
    "maxMsgNums": 32,
    "invisibleTime": 10_000,
    "pollTime": 0,
    "bornTime": 0,
    "initMode": 0,
    "expType": "TAG",
    "exp": "*",
    "order": "false",
}


class Consumer(Client):
    """Pops, and gives receipts as Java clients make them of an answer."""

    async def pop(self, **changes: object) -> dict[str, str]:
        """The bodies of what was popped, and the receipt of each."""
        answer = await self.answer(200050, {**POP, **changes})
        return {} if answer.code == ResponseCode.POLLING_TIMEOUT else receipts(answer)

    def answer_to(self, asked: RemotingCommand) -> RemotingCommand | None:
        return next((found for to, found in self.conn.replies if to is asked), None)

    async def ack(self, receipt: str, **changes: object) -> RemotingCommand:
        return await self.answer(200051, {**named(receipt), **changes})

    async def change(self, receipt: str, invisible_ms: int, **more: object) -> RemotingCommand:
        ext = {**named(receipt), "invisibleTime": invisible_ms, **more}
        return await self.answer(200053, ext)


def named(receipt: str) -> dict[str, object]:
    """The header of an acknowledgement."""
    fields = receipt.split(" ")
    return {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": fields[6],
        "offset": fields[7],
        "extraInfo": receipt,
    }


def receipts(answer: RemotingCommand) -> dict[str, str]:
    """Bodies to receipts, as ``MQClientAPIImpl.processPopResponse`` makes them."""
    assert answer.code == 0, answer
    starts = _by_queue(answer.ext["startOffsetInfo"])
    offsets = _by_queue(answer.ext["msgOffsetInfo"])
    found = {}
    for record in decode_records(answer.body):
        key = f"0 {record.queue_id}"
        assert str(record.queue_offset) in offsets[key].split(",")
        found[record.body.decode()] = (
            f"{starts[key]} {answer.ext['popTime']} {answer.ext['invisibleTime']}"
            f" {answer.ext['reviveQid']} 0 broker-a {record.queue_id} {record.queue_offset}"
        )
    return found


def _by_queue(text: str) -> dict[str, str]:
    return {" ".join(part.split(" ")[:2]): part.split(" ")[2] for part in text.split(";")}


def fill(group: FakeGroup, *bodies: str, queue_id: int = 0, tags: str = "") -> None:
    """Store messages."""
    properties = f"TAGS\x01{tags}\x02" if tags else ""
    for body in bodies:
        record = MessageRecord(
            topic=TOPIC, queue_id=queue_id, body=body.encode(), properties=properties
        )
        group.store.append([record], lambda outcome: None)
