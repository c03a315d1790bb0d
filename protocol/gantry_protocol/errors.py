"""Operating errors: what a person or a peer can cause, each with one sentence that helps.

``str(error)`` is one sentence saying what, where and what to do; nothing else is printed. A
``FrameError`` is the peer's fault and ends its connection; a ``GantryError`` raised at start-up
ends the process with ``exit_code``. Programmer errors are assertions and never appear here.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_protocol.codes import ResponseCode

if TYPE_CHECKING:
    from gantry_protocol.command import RemotingCommand

EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_INTERNAL = 70  # sysexits.h EX_SOFTWARE
EXIT_TEMPORARY = 75  # sysexits.h EX_TEMPFAIL: the same command may work later

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_OF_VOLUMES = NO_ROOM | {errno.EIO, errno.EROFS}  # no fault of the program


class GantryError(Exception):
    """An operating error shown to people as one sentence.

    Attributes:
        exit_code: of a process that ends by it.
        answer_code: of the answer to a request that ends by it.
    """

    exit_code = EXIT_BAD_INPUT
    answer_code = ResponseCode.SYSTEM_ERROR


class ConfigError(GantryError):
    """A flag, variable or file key that is missing, unknown or wrong; the sentence names it."""


class DataDirError(GantryError):
    """A data directory that cannot be used: another owner, another kind, a newer format."""


class LockHeldError(DataDirError):
    """Another process holds the data directory, and kept it longer than we were told to wait."""

    exit_code = EXIT_TEMPORARY


class PortInUseError(GantryError):
    """The address to listen on is taken."""

    exit_code = EXIT_TEMPORARY


class CorruptionError(GantryError):
    """Stored bytes that cannot be what was written.

    Attributes:
        file: the damaged file.
        offset: byte offset inside ``file`` where the damage begins.
        reason: got and expected, in a few words.
    """

    def __init__(self, file: Path | str, offset: int, reason: str) -> None:
        super().__init__(f"{file} is damaged at byte {offset}: {reason}.")
        self.file = Path(file)
        self.offset = offset
        self.reason = reason


class VolumeError(GantryError):
    """A volume refused something that the process cannot go on without."""

    exit_code = EXIT_INTERNAL


def volume_error(error: OSError, where: Path | str | None = None) -> VolumeError | None:
    """The sentence for what a volume refused; None where ``error`` is something else.

    Args:
        error: as the system or a library has it.
        where: a directory of the volume, if the caller knows it.
    """
    if error.errno not in _OF_VOLUMES:
        return None
    place = where or error.filename or "the data directory"
    if error.errno in NO_ROOM:
        return VolumeError(
            f"The volume of {place} is full ({error}): free some space on it or enlarge it, and"
            " start again."
        )
    return VolumeError(f"The volume of {place} failed ({error}): check the volume and start again.")


class ResolveError(GantryError):
    """A host name without an address."""


class WireError(GantryError):
    """Something a peer sent, or failed to send, broke the protocol."""


class FrameError(WireError):
    """Bytes that are no frame: the peer is at fault and its connection ends without an answer.

    Attributes:
        before: the whole frames that stood before the malformed bytes; they are still to be served.
    """

    def __init__(self, message: str, before: list[RemotingCommand] | None = None) -> None:
        super().__init__(message)
        self.before = [] if before is None else before


class HeaderError(WireError):
    """A custom header field is missing or unreadable; the text names field and value."""


class NameRefused(HeaderError):  # noqa: N818 - a plain word reads better where it is caught
    """A name in a request that no topic, group or client can have; see ``names``."""

    answer_code = ResponseCode.INVALID_PARAMETER


class BodyError(WireError):
    """A JSON body that does not have the shape its code demands."""


class RecordError(WireError):
    """Bytes that are no message record, or a record that is too large to be one."""


class RemotingError(GantryError):
    """A call to another process did not end with an answer."""


class ConnectError(RemotingError):
    """No connection could be made.

    Attributes:
        refused: the other machine answered that nobody listens there. False for time-outs and
            unreachable hosts, which prove nothing about the process.
    """

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


class KeyRefused(ConnectError):  # noqa: N818 - a plain word reads better where it is caught
    """A connection was made, and one side did not believe that the other has the quorum's key."""

    def __init__(self, message: str) -> None:
        super().__init__(message, refused=False)


class MemberRefused(KeyRefused):
    """A connection was made, and one side did not believe that the other is the member expected."""


class RequestTimeout(RemotingError):  # noqa: N818 - a plain word reads better where it is caught
    """No answer came in time; whether the request took effect is unknown."""


class ConnectionClosed(RemotingError):  # noqa: N818 - a plain word reads better where it is caught
    """The connection ended before the answer; whether the request took effect is unknown."""


class Busy(RemotingError):  # noqa: N818 - a plain word reads better where it is caught
    """A local bound (calls in flight, bytes waiting) is full; the request was never sent."""
