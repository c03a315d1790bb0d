"""Bodies of POP's requests, as upstream names them (``BatchAckMessageRequestBody``)."""

import msgspec

from gantry_protocol.bodies.codec import Body


class BatchAck(Body, frozen=True):
    """Offsets of one queue that were popped at one time; see ``bits``."""

    group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    start_offset: int = msgspec.field(name="so")
    queue_id: int = msgspec.field(name="q")
    popped_ms: int = msgspec.field(name="pt")
    offsets: str = msgspec.field(name="b")
    retry: str = msgspec.field(name="r", default="0")


class BatchAcks(Body, frozen=True):
    """BatchAckMessage (200151)."""

    acks: list[BatchAck]
    broker_name: str = ""
