"""Conversations of Java clients with a master, as files: what was said, by whom, at which tick.

A file is compressed text (`zcat` shows it). Lines that begin with ``#`` say what it is; ``began``
gives the time of tick 0 in milliseconds since 1970. Then a line per event: tick, connection
(``N…`` to the name server, ``B…`` to the broker), what happened, and the bytes, with escapes as in
Python:

``open``
    the client connects
``>``
    the client's bytes, in the pieces in which they arrived
``<``
    one frame of the server
``close``
    the client is gone
``ended``
    the server closes

``replay`` says the client's part to a stepped master and compares every byte it answers. Nothing is
masked: what could differ (time, addresses, offsets) is the master's to repeat.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from support.stepped_master import TICK_MS, SteppedLoop, stepped_master

FOLDER = Path(__file__).resolve().parents[1] / "unit/broker/clients/conversations"
OPEN, SAYS, HEARS, CLOSE, ENDED = "open", ">", "<", "close", "ended"
LENGTH_BYTES = 4


class Event(NamedTuple):
    """One line; ``data`` is empty unless something is said."""

    tick: int
    name: str
    kind: str
    data: bytes = b""

    def __str__(self) -> str:
        text = self.data.decode("latin-1").encode("unicode_escape").decode("ascii")
        return " ".join([str(self.tick), self.name, self.kind, *([text] if text else [])])


class Conversation(NamedTuple):
    """What a file says."""

    about: str
    began_ms: int
    events: list[Event]


class FrameSplitter:
    """Cuts what a server writes on one connection into frames; how it was cut before is lost."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """The frames that end in ``data``."""
        self._data += data
        while len(self._data) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._data[:LENGTH_BYTES])
            if len(self._data) < end:
                return
            frame, self._data = self._data[:end], self._data[end:]
            yield frame


def write(path: Path, conversation: Conversation) -> None:
    """Make the file."""
    lines = [f"# {line}".rstrip() for line in conversation.about.splitlines()]
    lines.append(f"began {conversation.began_ms}")
    lines += map(str, conversation.events)
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode("ascii"), mtime=0))


def read(path: Path) -> Conversation:
    """What ``write`` has written."""
    lines = gzip.decompress(path.read_bytes()).decode("ascii").split("\n")
    about = [line[2:] for line in lines if line.startswith("#")]
    (_, began), *rest = (line.split(" ", 3) for line in lines if line and line[0] != "#")
    events = []
    for tick, name, kind, *text in rest:
        data = "".join(text).encode("ascii").decode("unicode_escape").encode("latin-1")
        events.append(Event(int(tick), name, kind, data))
    return Conversation("\n".join(about), int(began), events)


def replay(conversation: Conversation, directory: Path) -> None:
    """Say the client's part; every answer must be the recorded one, no later than it was then.

    Raises:
        AssertionError: one differs, is missing, or was never recorded; says which.
    """
    loop = SteppedLoop()
    try:
        loop.run_until_complete(_replay(conversation, directory))
    finally:
        loop.close()


async def _replay(conversation: Conversation, directory: Path) -> None:
    heard: dict[str, deque[Event]] = defaultdict(deque)
    splitters: dict[str, FrameSplitter] = defaultdict(FrameSplitter)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)

    def hear(name: str, data: bytes | None) -> None:
        if data is None:
            heard[name].append(Event(loop.ticks, name, ENDED))
            return
        for frame in splitters[name].feed(data):
            heard[name].append(Event(loop.ticks, name, HEARS, frame))

    async with stepped_master(directory, conversation.began_ms, hear) as master:
        for event in conversation.events:
            await master.advance(event.tick)
            match event.kind:
                case "open":
                    master.connect(event.name)
                case ">":
                    master.say(event.name, event.data)
                case "close":
                    master.disconnect(event.name)
                case _:
                    _compare(event, heard[event.name].popleft() if heard[event.name] else None)
                    continue
            await master.settle()
        for unexpected in heard.values():
            assert not unexpected, f"was never recorded: {unexpected[0]}"


def _compare(wanted: Event, got: Event | None) -> None:
    assert got is not None, f"nothing came, at {wanted.tick * TICK_MS} ms, instead of: {wanted}"
    if wanted[1:] != got[1:]:
        raise AssertionError(f"was recorded: {wanted}\ncomes now:    {got}")
