"""Who takes part: the voters, who decide, and the learners, who only receive (thesis §4.2.1).

Values only; how a membership is changed is in ``changes``. The rule protected here: every count of
votes, acknowledgements and echoes goes through a ``Membership``, so that nobody who is not a voter
is ever part of a majority.
"""

from collections.abc import Iterable, Mapping

import msgspec
from gantry_protocol.types import NodeId

from gantry_controller.raft.quorum import quorum_size, reached_by_quorum


class Membership(msgspec.Struct, frozen=True):
    """One configuration of the quorum.

    Attributes:
        voters: whose votes and acknowledgements count; ascending.
        learners: who receive the log and are never counted; ascending, none of them a voter.
        addresses: where each member is reached, as far as it was stated; the core hands the text
            on and does not read it.
    """

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...] = ()
    addresses: tuple[tuple[NodeId, str], ...] = ()

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """All members, ascending."""
        return tuple(sorted(self.voters + self.learners))

    @property
    def quorum(self) -> int:
        """How many voters are a majority."""
        return quorum_size(len(self.voters))

    def reached(self, values: Mapping[NodeId, int]) -> int:
        """The greatest value that a majority of the voters has reached.

        Args:
            values: by node; nodes that are no voters are ignored, voters that are missing may not
                be counted.
        """
        return reached_by_quorum(
            [values[node] for node in self.voters if node in values], len(self.voters)
        )

    def decides(self, nodes: Iterable[NodeId]) -> bool:
        """Whether ``nodes``, each named once, hold a majority of the voters."""
        return sum(node in self.voters for node in nodes) >= self.quorum

    def address_of(self, node: NodeId) -> str | None:
        """Where ``node`` is reached; None if that was never stated."""
        return dict(self.addresses).get(node)
