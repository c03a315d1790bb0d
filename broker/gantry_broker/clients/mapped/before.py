"""Sends that an earlier master may have stored where their queue was before it moved.

A send is given to a master again when an earlier one has not answered it. If its queue has moved
meanwhile, its record may stand in the segment before: that group is asked if it has it, and stores
nothing. What it has closed is confirmed and whole, so its word is final. A group that does not
answer is not taken for one that has not got it.

Bounded: the newest ``ASKED_MAX`` segments.
"""

from collections.abc import Callable

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.queue_map import QueueMap, Segment
from gantry_protocol.remoting.asking import Outcome
from msgspec.structs import replace

from gantry_broker.clients.mapped.again import LOOK_ONLY, PASSED_AGAIN
from gantry_broker.clients.mapped.places import PHYSICAL

ASKED_MAX = 4
_ABSENT = (
    ResponseCode.QUERY_NOT_FOUND,
    ResponseCode.NOT_LEADER_FOR_QUEUE,  # of an older version, which looks nowhere
)


def segments_before(queues: QueueMap, number: int, is_gone: Callable[[str], bool]) -> list[Segment]:
    """The segments to ask, the newest last; none for a queue that has not moved."""
    if not 0 <= number < len(queues.queues):
        return []
    before = [item for item in queues.queues[number].segments[:-1] if item.group]
    return [item for item in before if not is_gone(item.group)][-ASKED_MAX:]


def question(send: RemotingCommand, queues: QueueMap) -> RemotingCommand:
    """The send as a question for its place."""
    ext = {**(send.ext or {}), PASSED_AGAIN: LOOK_ONLY, PHYSICAL: str(queues.epoch)}
    return replace(send, ext=ext)


def is_question(request: RemotingCommand) -> bool:
    """Whether nothing is to be stored."""
    return (request.ext or {}).get(PASSED_AGAIN) == LOOK_ONLY


def is_absent(outcome: Outcome) -> bool:
    """Whether a group says that it has not got it, or cannot look."""
    return isinstance(outcome, RemotingCommand) and outcome.code in _ABSENT
