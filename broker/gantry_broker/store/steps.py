"""Reads that follow from each other, written as one function: a generator that yields its wishes.

A wish is a read, some questions about queues, an append, or a pause in seconds; the generator is
sent the answer.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from gantry_protocol.errors import GantryError
from gantry_protocol.records import MessageRecord

from gantry_broker.store.contract import KeyRead, QueueQuestion, QueueRead


class AppendRequest(NamedTuple):
    """A wish to append; the answer is its ``SendOutcome``."""

    records: list[MessageRecord]


class StoreRefusedError(GantryError):
    """The store does not say; raised in the generator where it asked."""


ResultT = TypeVar("ResultT")
Wish: TypeAlias = QueueRead | KeyRead | Sequence[QueueQuestion] | AppendRequest | float
Steps = Generator[Wish, Any, ResultT]
