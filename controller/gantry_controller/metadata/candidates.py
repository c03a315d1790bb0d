"""The broker groups that queues of mapped topics are proposed to go to (ADR 0072).

What may be applied is wider than what is proposed. Every group that is declared may have queues,
and events in the log name such groups; but one that never had a master cannot take a message, and
one whose brokers are dead takes none now. Who is alive is not in the log, so whoever proposes asks
it there: a choice is made once, and the event names it.
"""

from collections.abc import Callable, Collection

from gantry_controller.metadata.state import BrokerGroup, MetadataState

Serves = Callable[[BrokerGroup], bool]
"""Whether a group has a master that nothing speaks against, as far as this node knows."""


def may_have_queues(state: MetadataState, cluster: str, without: Collection[str] = ()) -> list[str]:
    """The groups that queues may go to: those that serve and are not drained, by name."""
    return [group.name for group in _allowed(state, cluster, without)]


def candidates(
    state: MetadataState, cluster: str, serves: Serves, without: Collection[str] = ()
) -> list[str]:
    """The groups to propose for queues that must go somewhere now, by name.

    Those with a living master; without any, those that ever had one; without these, all that may.
    """
    return (
        living(state, cluster, serves, without)
        or had_masters(state, cluster, without)
        or may_have_queues(state, cluster, without)
    )


def living(
    state: MetadataState, cluster: str, serves: Serves, without: Collection[str] = ()
) -> list[str]:
    """The groups for queues that can wait until there is one: those with a living master."""
    allowed = _allowed(state, cluster, without)
    return [group.name for group in allowed if group.had_master and serves(group)]


def had_masters(state: MetadataState, cluster: str, without: Collection[str] = ()) -> list[str]:
    """The groups that may have queues and ever had a master, by name."""
    return [group.name for group in _allowed(state, cluster, without) if group.had_master]


def _allowed(state: MetadataState, cluster: str, without: Collection[str]) -> list[BrokerGroup]:
    return [
        group
        for group in state.serving_by_name(cluster)
        if group.name not in without and group.key not in state.drains
    ]
