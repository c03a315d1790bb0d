"""More connections than there are places: the rest is closed, nobody else notices, memory stays."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from contextlib import suppress
from pathlib import Path

from gantry_protocol.command import request
from gantry_protocol.process.descriptors import FOR_THE_REST
from support.controller_processes import ControllerProcesses
from support.patience import PATIENCE_S
from support.wire import WirePeer

ATTEMPTS = 50_000
DESCRIPTORS = 4096  # of the controller; the test holds as many as it gets
PLACES = DESCRIPTORS - FOR_THE_REST
PLACES_OF_ONE = PLACES - PLACES // 4
ENOUGH = 2 * PLACES_OF_ONE
FLOOD_S = 6.0  # longer if these were not enough, as on a busy machine
GROWTH_MAX_MB = 150


def flood(port: int, held: list[socket.socket]) -> int:
    """Connect again and again from one address and keep what is not closed; how often."""
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500
    begun = time.monotonic()
    for attempt in range(ATTEMPTS):
        took_s = time.monotonic() - begun
        if took_s > (FLOOD_S if attempt > ENOUGH else PATIENCE_S):
            return attempt
        one = socket.socket()
        one.settimeout(0.5)
        with suppress(OSError):
            one.connect(("127.0.0.1", port))
        held.append(one)
        if len(held) > room:  # most of them were closed by the other side long ago
            for closed in held[: room // 2]:
                closed.close()
            del held[: room // 2]
    return ATTEMPTS


def ended(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def test_a_flood_of_connections_shuts_out_only_its_source(tmp_path: Path) -> None:
    processes = ControllerProcesses(tmp_path, 1, descriptors=DESCRIPTORS)
    held: list[socket.socket] = []
    try:
        await processes.start()
        await processes.led()
        port = int(processes.addresses[1].rpartition(":")[2])
        before_mb = processes.resident_mb(1)
        running = asyncio.create_task(asyncio.to_thread(flood, port, held))
        served = 0
        async with await WirePeer.connect(port, source="127.0.0.2") as early:
            while not running.done():
                early.send(request(1005))
                assert (await early.receive()).code == 0
                served += 1
                await asyncio.sleep(0.01)
        attempts = await running
        async with await WirePeer.connect(port, source="127.0.0.3") as late:
            late.send(request(1005))
            assert (await late.receive()).code == 0
        async with asyncio.timeout(PATIENCE_S):  # the last ones may not be looked at yet
            while (kept := sum(not ended(one) for one in held)) > PLACES_OF_ONE:
                await asyncio.sleep(0.1)
        growth_mb = processes.resident_mb(1) - before_mb
        print(
            f"\nFLOOD {attempts} connections attempted, {kept} of them kept, "
            f"{served} requests of another client served, {growth_mb:.0f} MB more"
        )
        assert attempts > ENOUGH
        assert growth_mb < GROWTH_MAX_MB
    finally:
        for one in held:
            one.close()
        await processes.stop()
