"""What a node asks of the state machine under its log."""

from collections.abc import Iterator
from typing import Protocol

from gantry_protocol.types import Index, Term


class StateMachine(Protocol):
    """What the log is applied to."""

    def apply(self, index: Index, term: Term, command: bytes) -> object:
        """Apply a committed command; the same on every node, whatever its clock or chance."""

    def snapshot(self) -> Iterator[bytes]:
        """The state as of now, encoded slice by slice; commands applied meanwhile change none."""

    def decode(self, data: bytes) -> object:
        """One slice of a snapshot, decoded; changes nothing, and may run in any thread."""

    def restore(self, parts: list[object]) -> None:
        """Replace the state by the decoded slices of one snapshot, in their order."""
