"""Work of consumers by POP, as the Java push consumer does it (5.3.3, its defaults).

A consumer is a connection. It pops up to 32 messages, acknowledges each by a request of its own as
soon as it has it, and pops again without waiting for the answers, unless more than 96 messages wait
for theirs (``popThresholdForQueue``). A pop that finds nothing is held by the broker for 15 s, and
then asked again. Slot 0 of a connection pops, each other slot acknowledges one message at a time.

Rule protected: a message counts when its acknowledgement was answered with 0.
"""

from __future__ import annotations

import time
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.records import decode_properties, decode_records
from gantry_protocol.records.properties import UNIQ_KEY

from gantry_lab.bench.broker import frames
from gantry_lab.bench.broker.receipts import PLAIN, Acks, Receipt, of_text, receipts
from gantry_lab.bench.broker.work import SAMPLE_EVERY, Work
from gantry_lab.bench.load import Numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_cli.client.routes import Queue

    from gantry_lab.bench.broker.frames import FrameTemplate
    from gantry_lab.bench.load import Reply

WAITING_MAX = 96  # the Java consumer's popThresholdForQueue
POP_COUNT = frames.PULL_COUNT  # its popBatchNums
SLOTS = 1 + WAITING_MAX + POP_COUNT  # of a consumer
INVISIBLE_MS = 60_000  # its popInvisibleTime
SHORT_MS, SPREAD_MS = (
    10_000,
    2_000,
)  # invisible time where nothing is acknowledged, and what differs
EARLY_S = 0.002  # brokers count whole milliseconds
POP_CK = "POP_CK"  # property: a receipt that the broker made itself


class PopConsumer:
    """A connection.

    Attributes:
        number: from 0.
        broker_name: of the group it is connected to.
        pop, acks: what it asks by, of one consumer group.
        group: the number of that.
        sent_s: when it popped last.
        waiting: messages whose acknowledgements are not answered.
        left: those of them that are not sent yet.
        free: slots without one.
        is_full: it pops no more until fewer wait.
    """

    __slots__ = (
        *("acks", "broker_name", "free", "group", "is_full", "left", "number", "pop", "sent_s"),
        "waiting",
    )

    def __init__(self, number: int, broker_name: str, pop: FrameTemplate, acks: Acks) -> None:
        first = number * SLOTS
        self.number = number
        self.broker_name = broker_name
        self.pop, self.acks = pop, acks
        self.group = 0
        self.sent_s = 0.0
        self.waiting = 0
        self.left: deque[tuple[Acks, Receipt]] = deque()
        self.free = set(range(first + 1, first + SLOTS))
        self.is_full = False


class PopWork(Work):
    """Consumers of either kind.

    Args:
        topic: what they pop; its messages have unique keys.
        queues: of it; consumer `n` is connected to the broker of queue `n` modulo their number.
        consumers: how many.
        group: the name of their consumer group.
    """

    codes = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.POLLING_TIMEOUT)})

    def __init__(self, topic: str, queues: Sequence[Queue], consumers: int, group: str) -> None:
        self._topic = topic
        self._answers = 0
        self._held: dict[int, tuple[Acks, Receipt]] = {}  # by slot: under way, or to be sent again
        self._acks = Acks(topic, group)
        self._consumers = [
            PopConsumer(
                number,
                queues[number % len(queues)].broker_name,
                frames.pop(number * SLOTS, topic, group, self.invisible_ms(number, consumers)),
                self._acks,
            )
            for number in range(consumers)
        ]

    def invisible_ms(self, number: int, consumers: int) -> int:
        """The time for which a consumer wants its messages."""
        return INVISIBLE_MS

    def took(self, consumer: PopConsumer, found: list[Receipt], body: memoryview) -> list[Receipt]:
        """Judge messages that came; those to acknowledge."""
        raise NotImplementedError

    def first(self, slot: int) -> bytes | bytearray | None:
        """See `SlotWork`: the pop, or the acknowledgement that is to be sent, or sent again."""
        consumer = self._consumers[slot // SLOTS]
        return self._ack(slot, consumer) if slot % SLOTS else self._pop(consumer)

    def following(self, slot: int, reply: Reply, body: memoryview) -> bytes | bytearray | None:
        """See `SlotWork`; a pop's answer wakes slots that acknowledge."""
        consumer = self._consumers[slot // SLOTS]
        if slot % SLOTS:
            del self._held[slot]
            self._acknowledged(slot, consumer)
            return self._ack(slot, consumer)
        if reply.code == ResponseCode.SUCCESS:
            self._popped(consumer, reply.ext or Numbers(), body)
        else:
            self.found_nothing(consumer)
        return self._pop(consumer)

    def found_nothing(self, consumer: PopConsumer) -> None:
        """A pop's time was over."""

    def _pop(self, consumer: PopConsumer) -> bytearray | None:
        consumer.is_full = consumer.waiting > WAITING_MAX
        if consumer.is_full:
            return None
        consumer.sent_s = perf_counter()
        return consumer.pop.born_at(time.time_ns() // 1_000_000)

    def _ack(self, slot: int, consumer: PopConsumer) -> bytes | None:
        held = self._held.get(slot)
        if held is None:
            if not consumer.left:
                consumer.free.add(slot)
                return None
            held = self._held[slot] = consumer.left.popleft()
            consumer.free.discard(slot)
        acks, receipt = held
        return acks.frame(slot, receipt)

    def _popped(self, consumer: PopConsumer, numbers: Numbers, body: memoryview) -> None:
        found = receipts(numbers, consumer.broker_name)
        if not (0 < len(found) <= POP_COUNT and len(body)):
            raise GantryError(f"A pop brought {len(found)} messages in {len(body)} bytes.")
        self._answers += 1
        if self._answers % SAMPLE_EVERY == 1:
            _compare(found, body)
        taken = self.took(consumer, found, body)
        consumer.left += [(consumer.acks, receipt) for receipt in taken]
        consumer.waiting += len(taken)
        wanted = min(len(taken), len(consumer.free))
        self.woken = [consumer.free.pop() for _ in range(wanted)]

    def _acknowledged(self, slot: int, consumer: PopConsumer) -> None:
        self.messages += 1
        consumer.waiting -= 1
        if consumer.is_full and consumer.waiting <= WAITING_MAX:
            self.woken = [slot - slot % SLOTS]


class Pops(PopWork):
    """Messages that are popped and acknowledged, by one consumer group after the other.

    A consumer group that has asked for all messages of the topic is followed by a new one, which
    begins with the first message; so the topic holds no more than what one of them takes.

    Args:
        topic, queues, consumers, group: see `PopWork`; groups get a number behind the name.
        count: messages of the topic.
    """

    def __init__(
        self, topic: str, queues: Sequence[Queue], consumers: int, group: str, count: int
    ) -> None:
        assert count >= POP_COUNT, "a consumer group can take something"
        super().__init__(topic, queues, consumers, f"{group}-0")
        self._name = group
        self._count = self._unasked = count
        self._group = 0

    def took(self, consumer: PopConsumer, found: list[Receipt], _body: memoryview) -> list[Receipt]:
        """All are acknowledged."""
        self._give_back(consumer, POP_COUNT - len(found))
        return found

    def found_nothing(self, consumer: PopConsumer) -> None:
        """Others may ask for what it asked for."""
        self._give_back(consumer, POP_COUNT)

    def _give_back(self, consumer: PopConsumer, count: int) -> None:
        if consumer.group == self._group:
            self._unasked += count

    def _pop(self, consumer: PopConsumer) -> bytearray | None:
        if consumer.waiting <= WAITING_MAX:
            if self._unasked < POP_COUNT:
                self._group += 1
                self._unasked = self._count
                self._acks = Acks(self._topic, f"{self._name}-{self._group}")
            self._unasked -= POP_COUNT
            if consumer.group != self._group:
                self._join(consumer)
        return super()._pop(consumer)

    def _join(self, consumer: PopConsumer) -> None:
        name = f"{self._name}-{self._group}"
        consumer.group, consumer.acks = self._group, self._acks
        consumer.pop = frames.pop(consumer.number * SLOTS, self._topic, name, INVISIBLE_MS)


class Timers(PopWork):
    """Messages that nobody acknowledges until they come again.

    How late one comes counts from the moment at which it was asked for first, plus its invisible
    time. It was popped a little later, so it is never later than it says here.

    Args:
        topic, queues, consumers, group: see `PopWork`; their invisible times differ.
        count: messages of the topic.

    Attributes:
        late_s: of each message that came again, in the order they came.
    """

    def __init__(
        self, topic: str, queues: Sequence[Queue], consumers: int, group: str, count: int
    ) -> None:
        super().__init__(topic, queues, consumers, group)
        self.late_s: list[float] = []
        self._count = count
        self._due_s: dict[str, float] = {}  # by unique key
        self._again: set[str] = set()

    def invisible_ms(self, number: int, consumers: int) -> int:
        """They differ, so that not all is due at once."""
        return SHORT_MS + SPREAD_MS * number // consumers

    def took(self, consumer: PopConsumer, found: list[Receipt], body: memoryview) -> list[Receipt]:
        """Those that came again, whenever a message does.

        Raises:
            GantryError: one came before its time.
        """
        now = perf_counter()
        invisible_ms = self.invisible_ms(consumer.number, len(self._consumers))
        due_s = consumer.sent_s + invisible_ms / 1000
        given = {(one.queue_id, one.offset): one for one in found if one.kind == PLAIN}
        taken = []
        for record in decode_records(bytes(body)):
            properties = decode_properties(record.properties)
            key = properties[UNIQ_KEY]
            if key not in self._due_s:
                self._due_s[key] = due_s
                continue
            late_s = now - self._due_s[key]
            if late_s < -EARLY_S:
                raise GantryError(f"A message came again {-late_s:.3f} s before its time.")
            if key not in self._again:
                self._again.add(key)
                self.late_s.append(late_s)
            own = properties.get(POP_CK)
            place = str(record.queue_id), str(record.queue_offset)
            taken.append(given[place] if own is None else of_text(own))
        return taken

    def _acknowledged(self, slot: int, consumer: PopConsumer) -> None:
        super()._acknowledged(slot, consumer)
        if len(self._again) == self._count:
            self.ended = not any(other.waiting for other in self._consumers)


def _compare(found: list[Receipt], body: memoryview) -> None:
    """See that an answer brings the messages that it has receipts for, with good checksums."""
    records = decode_records(bytes(body))
    named = sorted((int(one.queue_id), int(one.offset)) for one in found)
    if sorted((record.queue_id, record.queue_offset) for record in records) != named:
        raise GantryError(f"A pop brought {len(records)} messages, and receipts for others.")
