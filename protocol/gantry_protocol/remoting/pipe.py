"""The receiver of a connection that is passed on to another process."""

from typing import Protocol


class Pipe(Protocol):
    """The receiver of a connection's raw bytes once it is no longer served here."""

    def from_client(self, data: bytes) -> None:
        """Bytes arrived."""

    def client_congested(self, congested: bool) -> None:
        """The client stopped (or resumed) reading."""

    def client_lost(self) -> None:
        """The connection is gone."""

    def answered_here(self, opaque: int) -> None:
        """This process has answered a request, maybe one that it was ``entrust``ed with."""
