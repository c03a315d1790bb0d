"""Answers about one segment of a queue, and what they are to who asked about the whole queue."""

from collections.abc import Callable

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import HeaderError
from gantry_protocol.frame import FrameDecoder
from gantry_protocol.queue_map import Segment
from gantry_protocol.remoting.connection import Connection
from msgspec.structs import replace

from gantry_broker.clients.offsets import FIRST_KEPT


def to_int(text: str) -> int:
    """The number in a field. Raises HeaderError: there is none."""
    try:
        return int(text)
    except ValueError as error:
        raise HeaderError(f"{text!r} is no number") from error


def is_found(answer: RemotingCommand, _segment: Segment) -> bool:
    """Whether a consumer group has committed something in the segment."""
    return answer.code != ResponseCode.QUERY_NOT_FOUND


def is_within(answer: RemotingCommand, segment: Segment) -> bool:
    """Whether a time is not before all that is left of the segment."""
    if answer.code != ResponseCode.SUCCESS:
        return True
    first = to_int((answer.ext or {}).get(FIRST_KEPT, "0"))
    return _offset(answer) > max(segment.start, first)


def for_clients(answer: RemotingCommand) -> RemotingCommand:
    """The answer without what only groups tell each other."""
    ext = answer.ext or {}
    if FIRST_KEPT not in ext:
        return answer
    return replace(answer, ext={name: text for name, text in ext.items() if name != FIRST_KEPT})


def at_least(start: int, answer: RemotingCommand) -> RemotingCommand:
    """A segment without any message begins and ends where it starts."""
    if answer.code != ResponseCode.SUCCESS or _offset(answer) >= start:
        return answer
    return replace(answer, ext={**(answer.ext or {}), "offset": str(start)})


def _offset(answer: RemotingCommand) -> int:
    return to_int((answer.ext or {}).get("offset", "0"))


class AnswerListener:
    """A connection for one answer, which is looked at before it goes out."""

    def __init__(self, connection: Connection, answered: Callable[[RemotingCommand], None]) -> None:
        self._connection = connection
        self._answered = answered

    def reply(self, _request: RemotingCommand, response: RemotingCommand) -> None:
        """The handler's answer."""
        self._answered(response)

    def reply_frame(self, _request: RemotingCommand, frame: bytes) -> None:
        """The same as a whole frame."""
        (answer,) = FrameDecoder().feed(frame)
        self._answered(answer)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)
