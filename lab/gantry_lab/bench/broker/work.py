"""What the lanes of a load ask for: messages, batches of them, and pulls.

A pull is judged by what it brought: the next offset must move, there must be bytes, and of every
so-manieth answer all records are decoded with their CRCs and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError
from gantry_protocol.records import decode_records

from gantry_lab.bench.broker import frames
from gantry_lab.bench.senders import body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_cli.client.routes import Queue

    from gantry_lab.bench.broker.frames import Reply, Template

SAMPLE_EVERY = 512  # one answer of so many is read record by record


class Sends:
    """Messages of 1 KiB; lane `n` sends to queue `n` modulo their number.

    Args:
        topic: where to.
        queues: of it.
        lanes: how many.
        batch: messages in one request; 1 sends each by itself.
    """

    def __init__(self, topic: str, queues: Sequence[Queue], lanes: int, batch: int = 1) -> None:
        self.messages = 0
        self._batch = batch
        chosen = [queues[lane % len(queues)] for lane in range(lanes)]
        if batch == 1:
            made = [frames.send(lane, topic, at, body(lane)) for lane, at in enumerate(chosen)]
        else:
            made = [
                frames.batch(lane, topic, at, body(lane), batch) for lane, at in enumerate(chosen)
            ]
        self._templates = made

    def first(self, lane: int) -> bytearray:
        """The next message."""
        return self._templates[lane].next()

    def following(self, lane: int, _reply: Reply, _body: memoryview) -> bytearray | None:
        """The next message."""
        self.messages += self._batch
        return self._templates[lane].next()

    def opaque(self, lane: int) -> int:
        """See `Work`."""
        return self._templates[lane].opaque


class Pulls:
    """Pulls of 32 messages; lane `n` reads queue `n` modulo their number.

    Args:
        topic: whose.
        queues: of it.
        lanes: how many.
        once: each lane begins at the start and ends at the end; else lanes begin at places of their
            own, and go on at the start when they come to the end.
    """

    def __init__(self, topic: str, queues: Sequence[Queue], lanes: int, *, once: bool) -> None:
        self.messages = 0
        self._once = once
        self._lanes = lanes
        self._answers = 0
        chosen = [queues[lane % len(queues)] for lane in range(lanes)]
        self._templates: list[Template] = [frames.pull(topic, queue) for queue in chosen]
        self._offsets = [0] * lanes
        self._ended = [False] * lanes
        self._spread = [False] * lanes

    def first(self, lane: int) -> bytearray | None:
        """What stands where the lane has come to."""
        if self._ended[lane]:
            return None
        return self._templates[lane].at_offset(self._offsets[lane])

    def following(self, lane: int, reply: Reply, body: memoryview) -> bytearray | None:
        """The next 32; see `Work`."""
        asked = self._offsets[lane]
        numbers = reply.ext or frames.Numbers()
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
        if not self._once and not self._spread[lane]:
            self._spread[lane] = True
            following = end * lane // self._lanes
        if following >= end:
            following, self._ended[lane] = 0, self._once
        self._offsets[lane] = following
        return self.first(lane)

    def opaque(self, lane: int) -> int:
        """See `Work`."""
        return self._templates[lane].opaque
