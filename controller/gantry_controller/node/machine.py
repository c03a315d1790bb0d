"""The state machine under a node's log, as the node sees it."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from gantry_protocol.types import Index, Term


class StateMachine(Protocol):
    """The machine that the log is applied to."""

    def apply(self, index: Index, term: Term, command: bytes) -> object:
        """Apply a committed command; the same on every node, whatever its clock or chance."""

    def snapshot(self) -> Iterator[bytes]:
        """The state as of now, encoded slice by slice; commands applied meanwhile change none."""

    def assemble(self, slices: Iterable[bytes]) -> object:
        """A state from the slices of one snapshot; changes nothing, and may run in any thread."""

    def restore(self, assembled: object) -> None:
        """Replace the state by an assembled one, at once."""
