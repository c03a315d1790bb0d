"""A log that is filled quickly, by the load generator: batches on a few connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_lab.bench.broker.load import Load
from gantry_lab.bench.broker.work import Sends
from gantry_lab.bench.senders import BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gantry_cli.client.routes import Queue
    from gantry_cli.client.session import Session

    from gantry_lab.bench.broker.frames import Reply

LANES = 8
BATCH = 64  # messages of one request
PATIENCE_S = 1800.0


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
        super().__init__(topic, queues, LANES, BATCH)
        self._size = size
        self._told = told

    def following(self, lane: int, reply: Reply, body: memoryview) -> bytearray | None:
        """See `Work`."""
        frame = super().following(lane, reply, body)
        self._told(BATCH * BODY_BYTES)
        return frame if self.messages * BODY_BYTES < self._size else None


async def fill(client: Session, topic: str, size: int, told: Callable[[int], None]) -> None:
    """Send batches until `size` bytes of bodies are acknowledged; `told` hears of each.

    Raises:
        GantryError: batches were refused or not acknowledged.
    """
    queues = (await client.routes.fetch(topic)).writable
    addresses = [queues[lane % len(queues)].address for lane in range(LANES)]
    load = Load(Fill(topic, queues, size, told), addresses, LANES)
    try:
        await load.finish(PATIENCE_S, lambda: None)
    finally:
        load.close()
