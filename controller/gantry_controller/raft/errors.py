"""Refusals of the core; each is an operating error that a caller handles or shows."""

from gantry_protocol.errors import GantryError, WireError
from gantry_protocol.types import Index, NodeId


class NotLeader(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """This node cannot order a command or confirm a read.

    Attributes:
        leader: who can, as far as this node knows; None while there is nobody.
    """

    def __init__(self, leader: NodeId | None) -> None:
        super().__init__(f"This controller node is not the leader; {_hint(leader)}.")
        self.leader = leader


class ReadRedirect(NotLeader):
    """This node could serve reads from its own state, but not now; the leader should be asked."""

    def __init__(self, leader: NodeId | None, why: str) -> None:
        super().__init__(leader)
        self.args = (f"This controller node cannot answer a read now, {why}; {_hint(leader)}.",)


def _hint(leader: NodeId | None) -> str:
    return "no leader is known; try again" if leader is None else f"the leader is node {leader}"


class Overloaded(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """A bound is full. The command was not taken; trying again later is safe."""


class ChangeRefused(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """A change of the members, or a transfer, that would not be safe or not be wise now."""


class LogLostError(GantryError):
    """The disk no longer holds what this node had acknowledged (thesis §3.8 forbids that).

    Going on would let a committed entry vanish, so the node must not take part.
    """

    def __init__(self, committed: Index, last: Index) -> None:
        super().__init__(
            f"The leader has committed entry {committed} with this node's word, but its log ends "
            f"at {last}: the data directory is older than the node's last acknowledgement "
            "(restored from a copy?); give the node an empty data directory and the others will "
            "fill it."
        )


class StateDiffersError(GantryError):
    """This node's state is not what a majority of the voters has made of the same log.

    What it would answer is wrong, so the node must not serve.
    """

    def __init__(self, node: NodeId, index: Index, own: int, agreed: int) -> None:
        super().__init__(
            f"The state of node {node} after entry {index} has the digest {own:016x}, that of a "
            f"majority {agreed:016x}: an entry was applied differently here, or memory is "
            "faulty. Start the node again; if it ends again, give it an empty data directory and "
            "the others will fill it."
        )
        self.index = index


class MessageError(WireError):
    """Bytes from a peer, or from disk, that are no message or no entry."""
