"""The port map: the groups of a process, and the port of each; pure.

``orders`` is one group, ``shard-[000-299]`` is three hundred. A group listens at the first port
plus its place in the list, or where ``orders:21500`` says. So a list only grows at its end, or the
ports of what follows move; that is safe, since an address is never identity, but clients have to
refresh their routes.

What it refuses: a name that cannot be a directory, a name or port that occurs twice, and ports that
the process needs for something else.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

GROUPS_MAX = 1000
NAME_MAX_CHARS = 127  # RocketMQ's bound
PORT_MAX = 65535

_NAME = re.compile(r"[A-Za-z0-9_%|-][A-Za-z0-9_.%|-]*")
_RANGE = re.compile(
    r"(?P<before>[^\[\]]*)\[(?P<first>\d{1,9})-(?P<last>\d{1,9})\](?P<after>[^\[\]]*)"
)


class GroupPort(NamedTuple):
    """One group's port; 0 picks a free one."""

    name: str
    port: int


def port_map(entries: Iterable[str], first_port: int, taken: Sequence[int] = ()) -> list[GroupPort]:
    """The groups in ``entries``, in their order.

    Args:
        entries: ``NAME``, ``NAME:PORT``, ``NAME[FIRST-LAST]`` or both.
        first_port: of the first group; 0 lets every group without a port pick a free one.
        taken: ports of the process that no group may have; 0 among them means nothing.

    Raises:
        ValueError: one sentence about the first thing that is wrong.
    """
    found: list[GroupPort] = []
    for entry in entries:
        names, port = _expand(entry)
        for offset, name in enumerate(names):
            at = first_port + len(found) if port is None and first_port else (port or 0) + offset
            found.append(GroupPort(name, 0 if port is None and not first_port else at))
            if len(found) > GROUPS_MAX:
                raise ValueError(f"more than {GROUPS_MAX} groups: use another process")
    _check(found, taken)
    return found


def election_priority(group: str, broker: str) -> int:
    """The priority among equals that could lead ``group``: the lowest should.

    Each group ranks the processes in an order of its own (rendezvous hashing), so masters are
    spread over all of them, and those of a process that dies over all that are left. Only among
    members of the same (epoch, end): it never outranks a longer log.
    """
    digest = hashlib.blake2b(f"{group}\0{broker}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF


def _expand(entry: str) -> tuple[list[str], int | None]:
    """The names that ``entry`` stands for, and the port of the first if it says one."""
    text, colon, port = entry.partition(":")
    if colon and not (port.isascii() and port.isdigit()):
        raise ValueError(f"{entry!r} has no port number behind the colon")
    match = _RANGE.fullmatch(text)
    if match is None:
        names = [text]
    else:
        first, last = int(match["first"]), int(match["last"])
        if not first <= last < first + GROUPS_MAX:
            raise ValueError(f"{entry!r} is no range of 1 to {GROUPS_MAX} groups")
        width = len(match["first"])
        numbers = range(first, last + 1)
        names = [f"{match['before']}{number:0{width}d}{match['after']}" for number in numbers]
    for name in names:
        if _NAME.fullmatch(name) is None or len(name) > NAME_MAX_CHARS:
            raise ValueError(
                f"{name!r} cannot name a group: use at most {NAME_MAX_CHARS} letters, digits and "
                f"_.%|- and no dot in front"
            )
    return names, int(port) if colon else None


def _check(found: list[GroupPort], taken: Sequence[int]) -> None:
    owners: dict[int, str] = {}
    names: set[str] = set()
    for name, port in found:
        if name in names:
            raise ValueError(f"group {name!r} is listed twice")
        names.add(name)
        if port == 0:
            continue
        if port > PORT_MAX:
            raise ValueError(f"group {name!r} would listen at port {port}: {_advice(found)}")
        if port in taken:
            raise ValueError(
                f"group {name!r} would listen at port {port}, which this process needs itself: "
                f"{_advice(found)}"
            )
        if port in owners:
            raise ValueError(f"groups {owners[port]!r} and {name!r} would share port {port}")
        owners[port] = name


def _advice(found: list[GroupPort]) -> str:
    return f"set remoting_port to the first of {len(found)} free ports"
