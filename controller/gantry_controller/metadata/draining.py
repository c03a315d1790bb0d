"""The record of a group that is about to leave."""

import msgspec


class Drain(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A group takes no new messages, since ``began_ms`` by the leader's clock (``drains``)."""

    began_ms: int
