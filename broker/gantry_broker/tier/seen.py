"""The mark on a volume that has seen a version of its tier, at the place it uploads to.

An empty listing is what a new tier looks like, and what one looks like whose directory is not
mounted, whose bucket was emptied, or which this broker may not list. Rules protected: a broker that
has seen a version begins no other chain; it would hide the one that is there, and the log would be
trimmed by it. Nor does it go on behind a version that is not shown any more: what it wrote
elsewhere would be a hole once the directory is mounted again. What it refuses: to say anything of a
place that it was not told of.
"""

from pathlib import Path

import msgspec
from gantry_protocol.errors import CorruptionError
from gantry_protocol.process.files import atomic_write
from gantry_protocol.tier.keys import Shard

FILE = "tier.json"


class _Mark(msgspec.Struct, frozen=True):
    url: str
    prefix: str


_decoder = msgspec.json.Decoder(_Mark)


class Seen:
    """See the module.

    Args:
        directory: of the group's volume.
        url: of the store.
        place: of the group in it.
    """

    def __init__(self, directory: Path, url: str, place: Shard) -> None:
        """Read the mark.

        Raises:
            CorruptionError: the file is damaged.
        """
        self.path = directory / FILE
        self._mark = _Mark(url, place.prefix)
        try:
            found = _decoder.decode(self.path.read_bytes())
        except FileNotFoundError:
            found = None
        except msgspec.MsgspecError as error:
            raise CorruptionError(self.path, 0, f"it does not read ({error})") from error
        self._is_marked = found == self._mark

    @property
    def why(self) -> str:
        """The reason why an empty listing proves nothing; empty where it may be a new tier."""
        if not self._is_marked:
            return ""
        return f"this broker has read versions there; remove {self.path} to begin another tier"

    def mark(self) -> None:
        """A version was read, or written; durable on return.

        Raises:
            OSError: the disk failed.
        """
        if not self._is_marked:
            atomic_write(self.path, msgspec.json.encode(self._mark) + b"\n")
            self._is_marked = True
