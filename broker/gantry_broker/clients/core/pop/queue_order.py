"""The order in which one pop looks at the queues of a topic. Pure.

Upstream: ``PopMessageProcessor.popMsgFromTopic``. In a topic of priorities a queue holds those of
its number, and pops begin with the last queue. Of a hundred pops of a group as many do so as its
factor says. The others begin anywhere, so that what is less urgent is not left for good.
"""

from collections.abc import Mapping

from gantry_protocol.settings.priority import BY_PRIORITY, FACTOR_MAX, MESSAGE_TYPE

_GOLDEN = 0x9E3779B9  # of 2**32: its multiples are spread evenly, whichever of them one takes
_ROUND = 2**32


def queue_order(attributes: Mapping[str, str], count: int, turn: int, factor: int) -> list[int]:
    """Queue ids, each once.

    Args:
        attributes: of the topic.
        count: of its queues.
        turn: of all pops, which rises by one; so no group needs a count of its own.
        factor: in a topic of priorities, so many pops in a hundred begin with the last queue.
    """
    if attributes.get(MESSAGE_TYPE) == BY_PRIORITY:
        share = turn * _GOLDEN % _ROUND * FACTOR_MAX // _ROUND
        if share < factor:
            return list(range(count - 1, -1, -1))
    first = turn % count
    return [(first + at) % count for at in range(count)]
