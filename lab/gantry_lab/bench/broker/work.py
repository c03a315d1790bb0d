"""Work of a load's slots at brokers: messages, batches of them, and pulls.

A pull is judged by what it brought: the next offset must move, there must be bytes, and of every
so-manieth answer all records are decoded with their CRCs and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError
from gantry_protocol.records import decode_records

from gantry_lab.bench import load
from gantry_lab.bench.broker import frames
from gantry_lab.bench.load import Numbers
from gantry_lab.bench.senders import BODY_BYTES, body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gantry_cli.client.routes import Queue

    from gantry_lab.bench.load import Reply

SAMPLE_EVERY = 512  # one answer of so many is read record by record
FILL_LANES, FILL_BATCH = 8, 64
TOLD_EVERY = 1000


class Work(load.SlotWork):
    """Brokers may be busy now and then: a few refusals are let go by."""

    refusals = 100


class Sends(Work):
    """Messages of 1 KiB; lane `n` sends to queue `n` modulo their number.

    Args:
        topic: where to.
        queues: of it.
        lanes: how many.
        batch: messages in one request; 1 sends each by itself.
    """

    def __init__(self, topic: str, queues: Sequence[Queue], lanes: int, batch: int = 1) -> None:
        self._batch = batch
        chosen = [queues[lane % len(queues)] for lane in range(lanes)]
        if batch == 1:
            made = [frames.send(lane, topic, at, body(lane)) for lane, at in enumerate(chosen)]
        else:
            made = [
                frames.batch(lane, topic, at, body(lane), batch) for lane, at in enumerate(chosen)
            ]
        self._templates = made

    def first(self, slot: int) -> bytearray:
        """The next message."""
        return self._templates[slot].next()

    def following(self, slot: int, _reply: Reply, _body: memoryview) -> bytearray | None:
        """The next message."""
        self.messages += self._batch
        return self._templates[slot].next()


class Fill(Sends):
    """Batches until messages of at least `size` bytes together are acknowledged.

    Args:
        topic: where to.
        queues: of it, in turn.
        size: of all bodies.
        told: how many bytes more were acknowledged; called in the generator's thread.
    """

    def __init__(
        self, topic: str, queues: Sequence[Queue], size: int, told: Callable[[int], None]
    ) -> None:
        super().__init__(topic, queues, FILL_LANES, FILL_BATCH)
        self._size = size
        self._told = told

    def following(self, slot: int, reply: Reply, body: memoryview) -> bytearray | None:
        """See `Work`."""
        frame = super().following(slot, reply, body)
        self._told(FILL_BATCH * BODY_BYTES)
        return frame if self.messages * BODY_BYTES < self._size else None


class Single(Work):
    """One request, once.

    Args:
        frame: of it, for slot 0.

    Attributes:
        offset: in the queue, by the answer to a send; empty before it.
    """

    def __init__(self, frame: bytes | bytearray) -> None:
        self.offset = ""
        self._frame = frame

    def first(self, _slot: int) -> bytes | bytearray | None:
        """The request, until it is answered."""
        return None if self.messages else self._frame

    def following(self, _slot: int, reply: Reply, _body: memoryview) -> None:
        """Keep the answer."""
        self.messages += 1
        self.offset = (reply.ext or Numbers()).queue_offset


class Scatter(Work):
    """One message for each of `places`, by whichever lane is free.

    Args:
        places: topic and queue id, in the order of sending; topics are of one length.
        queue: any of those queues, for its address.
        lanes: how many.
        content: of every message.
        told: how many messages more were acknowledged, each thousand.
    """

    def __init__(
        self,
        places: Iterator[tuple[str, int]],
        topic: str,
        queue: Queue,
        lanes: int,
        content: bytes,
        told: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._told = told
        self._places = places
        self._templates = [frames.anywhere(lane, topic, queue, content) for lane in range(lanes)]

    def first(self, slot: int) -> bytearray | None:
        """The next place's message; None when there is none left."""
        place = next(self._places, None)
        return None if place is None else self._templates[slot].to(*place)

    def following(self, slot: int, _reply: Reply, _body: memoryview) -> bytearray | None:
        """See `first`."""
        self.messages += 1
        if self.messages % TOLD_EVERY == 0:
            self._told(TOLD_EVERY)
        return self.first(slot)


class Pulls(Work):
    """Pulls of 32 messages; lane `n` reads queue `n` modulo their number.

    Args:
        topic: whose.
        queues: of it.
        lanes: how many.
        once: each lane begins at the start and ends at the end; else lanes begin at places of their
            own, and go on at the start when they come to the end.
    """

    def __init__(self, topic: str, queues: Sequence[Queue], lanes: int, *, once: bool) -> None:
        self._once = once
        self._lanes = lanes
        self._answers = 0
        self._templates = [
            frames.pull(lane, topic, queues[lane % len(queues)]) for lane in range(lanes)
        ]
        self._offsets = [0] * lanes
        self._ended = [False] * lanes
        self._spread = [False] * lanes

    def first(self, slot: int) -> bytearray | None:
        """The offset that the lane has come to."""
        return None if self._ended[slot] else self._templates[slot].at_offset(self._offsets[slot])

    def following(self, slot: int, reply: Reply, body: memoryview) -> bytearray | None:
        """The next 32; see `Work`."""
        asked, numbers = self._offsets[slot], reply.ext or Numbers()
        following = int(numbers.next_begin_offset or -1)
        count, end = following - asked, int(numbers.max_offset or 0)
        if not (0 < count <= frames.PULL_COUNT and len(body)):
            raise GantryError(
                f"A pull at {asked} brought {len(body)} bytes, and the next offset {following}."
            )
        self._answers += 1
        if self._answers % SAMPLE_EVERY == 1 and len(decode_records(bytes(body))) != count:
            raise GantryError(f"A pull at {asked} did not bring the {count} messages it claims.")
        self.messages += count
        if not self._once and not self._spread[slot]:
            self._spread[slot] = True
            following = end * slot // self._lanes
        if following >= end:
            following, self._ended[slot] = 0, self._once
        self._offsets[slot] = following
        return self.first(slot)
