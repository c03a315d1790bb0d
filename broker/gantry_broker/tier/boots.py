"""The count of a volume's starts: the second half of who commits to the tier.

Rule protected: two starts in one master epoch are told apart, so that what an earlier one sent and
the store applied late never counts as the work of the later one. The count is durable before it is
used. What it refuses: a file it cannot read, since a smaller count would be fenced by itself.
"""

from pathlib import Path

import msgspec
from gantry_protocol.errors import CorruptionError
from gantry_protocol.process.files import atomic_write
from gantry_protocol.tier.keys import MAX_INC

FILE = "boots.json"


class _Boots(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    boots: int


_decoder = msgspec.json.Decoder(_Boots)


def next_boot(directory: Path) -> int:
    """Count this start; 1 on a new volume. Durable on return.

    Raises:
        CorruptionError: the file is damaged, or the count is at its end.
    """
    path = directory / FILE
    try:
        before = _decoder.decode(path.read_bytes()).boots
    except FileNotFoundError:
        before = 0
    except msgspec.MsgspecError as error:
        raise CorruptionError(path, 0, f"it does not read ({error})") from error
    if not 0 <= before < MAX_INC:
        raise CorruptionError(path, 0, f"{before} is no count of starts")
    atomic_write(path, msgspec.json.encode(_Boots(before + 1)) + b"\n")
    return before + 1
