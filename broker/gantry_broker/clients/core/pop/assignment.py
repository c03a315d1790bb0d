"""The queues that each member of a consumer group gets, where the broker balances. Pure.

Upstream: ``QueryAssignmentProcessor``.
"""

from collections.abc import Sequence

from gantry_protocol.bodies import MessageQueue
from gantry_protocol.bodies.codec import Body

from gantry_broker.clients.core.pop.records import ModeSet

_ANY_QUEUE = -1


class AssignmentQuestion(Body, frozen=True):
    """QueryAssignment (400)."""

    topic: str
    consumer_group: str
    client_id: str = ""
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


def shares(
    question: AssignmentQuestion,
    mode: ModeSet | None,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
) -> list[MessageQueue] | None:
    """The queues of one member of a group; None for a strategy that is not known.

    Args:
        question: who asks.
        mode: of its group and topic; None pulls.
        queues: of the topic, ascending.
        members: of the group, ascending, at least one.
    """
    at = members.index(question.client_id) if question.client_id in members else None
    if mode is None or not mode.is_pop:
        return _share(question.strategy_name, queues, len(members), at)
    others = mode.share_queues
    if others <= 0 or others >= len(members) - 1:
        groups = dict.fromkeys(queue.broker_name for queue in queues)
        return [MessageQueue(group, _ANY_QUEUE, question.topic) for group in groups]
    if at is None:
        return []
    if len(members) > len(queues):
        return [queues[at % len(queues)]]
    found: dict[MessageQueue, None] = {}
    for step in range(others + 1):
        share = _share(question.strategy_name, queues, len(members), (at + step) % len(members))
        if share is None:
            return None
        found.update(dict.fromkeys(share))
    return list(found)


def _share(
    strategy: str, queues: Sequence[MessageQueue], members: int, at: int | None
) -> list[MessageQueue] | None:
    """One share of ``queues``, as Java's strategies of these names give it."""
    if strategy not in ("AVG", "AVG_BY_CIRCLE"):
        return None
    if at is None:
        return []
    if strategy == "AVG_BY_CIRCLE":
        return list(queues[at::members])
    size, more = divmod(len(queues), members)
    first = at * size + min(at, more)
    return list(queues[first : first + size + (at < more)])
