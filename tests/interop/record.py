"""Records what unmodified Java clients and a master of ours say to each other: `make record`.

Each version runs ``Talk.java`` (sets (a) to (d), one thing after the other) once with each of the
two kinds of headers, against a stepped master whose clock follows the wall here. The
conversations are written to ``tests/unit/broker/clients/conversations``, where `make unit` replays
them without Java. Record again when an answer is meant to change, and review the diff.

Needs Java and Maven, and two ports that are part of what is said.
"""

from __future__ import annotations

import asyncio
import select
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from support import conversations, java
from support.conversations import CLOSE, ENDED, HEARS, OPEN, SAYS, Conversation, Event
from support.stepped_master import (
    BROKER,
    BROKER_PORT,
    HOST,
    NAMES,
    NAMES_PORT,
    TICK_MS,
    SteppedLoop,
    SteppedMaster,
    stepped_master,
)

VERSIONS = ("5.3.3", "4.9.8")
HEADERS = ("JSON", "ROCKETMQ")
READ_BYTES = 1 << 16
ABOUT = """Unmodified Java rocketmq-client {version} with {headers} headers, and a master of ours:
sets (a) producers, (b) push consumers, (c) lite pull consumers, (d) transactions, as in Talk.java.
Replayed by test_conversations.py, which compares every byte of the server. Record again with
`make record`; how to read this is in tests/support/conversations.py."""


class Recorder:
    """Real sockets on one side, a stepped master on the other, and a note of everything."""

    def __init__(self, loop: SteppedLoop, stack: ExitStack) -> None:
        self.events: list[Event] = []
        self._loop, self._stack = loop, stack
        self._listeners = {
            stack.enter_context(socket.create_server((HOST, port))): kind
            for kind, port in ((NAMES, NAMES_PORT), (BROKER, BROKER_PORT))
        }
        self._sockets: dict[socket.socket, str] = {}
        self._splitters: dict[str, conversations.FrameSplitter] = {}

    def heard(self, name: str, data: bytes | None) -> None:
        """The master has written something."""
        if data is None:
            self._note(name, ENDED)
            return
        for frame in self._splitters[name].feed(data):
            self._note(name, HEARS, frame)
        (to,) = (one for one, of in self._sockets.items() if of == name)
        to.sendall(data)

    async def listen(self, master: SteppedMaster, program: subprocess.Popen[bytes]) -> None:
        """Until the program has ended and everything it said was heard."""
        began_s = time.monotonic()
        while program.poll() is None or self._sockets:
            ready, _, _ = select.select([*self._listeners, *self._sockets], [], [], TICK_MS / 1000)
            await master.advance(int((time.monotonic() - began_s) * 1000) // TICK_MS)
            for one in ready:
                if one in self._listeners:
                    self._accept(master, one)
                else:
                    self._read(master, one)
                await master.settle()

    def _accept(self, master: SteppedMaster, listener: socket.socket) -> None:
        client, _ = listener.accept()
        name = f"{self._listeners[listener]}{len(self._splitters) + 1}"
        self._sockets[self._stack.enter_context(client)] = name
        self._splitters[name] = conversations.FrameSplitter()
        self._note(name, OPEN)
        master.connect(name)

    def _read(self, master: SteppedMaster, client: socket.socket) -> None:
        name = self._sockets[client]
        try:
            data = client.recv(READ_BYTES)
        except ConnectionError:
            data = b""
        if data:
            self._note(name, SAYS, data)
            master.say(name, data)
        else:
            del self._sockets[client]
            self._note(name, CLOSE)
            master.disconnect(name)

    def _note(self, name: str, kind: str, data: bytes = b"") -> None:
        self.events.append(Event(self._loop.ticks, name, kind, data))


async def _record(program: list[str], directory: Path) -> Conversation:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)
    began_ms = int(time.time() * 1000)
    with ExitStack() as stack:
        recorder = Recorder(loop, stack)
        async with stepped_master(directory, began_ms, recorder.heard) as master:
            running = stack.enter_context(subprocess.Popen(program))
            await recorder.listen(master, running)
            if running.returncode:
                raise SystemExit(f"the Java program ended with {running.returncode}")
    return Conversation("", began_ms, recorder.events)


def main() -> None:
    """Record all of them."""
    if java.MISSING:
        raise SystemExit(f"{' and '.join(java.MISSING)} not installed")
    conversations.FOLDER.mkdir(exist_ok=True)
    for version in VERSIONS:
        for headers in HEADERS:
            with tempfile.TemporaryDirectory() as scratch:
                home = Path(scratch)
                program = [
                    *("java", "-cp", java.clients(version), f"-Duser.home={home}"),
                    *(f"-Drocketmq.serialize.type={headers}", *java.SHORT_LIVED),
                    *("dev.gantry.interop.Talk", f"{HOST}:{NAMES_PORT}"),
                ]
                loop = SteppedLoop()
                found = loop.run_until_complete(_record(program, home / "log"))
                loop.close()
            path = conversations.FOLDER / f"{version}-{headers.lower()}.txt.gz"
            about = ABOUT.format(version=version, headers=headers)
            conversations.write(path, found._replace(about=about))
            print(f"{path.name}: {len(found.events)} events, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
