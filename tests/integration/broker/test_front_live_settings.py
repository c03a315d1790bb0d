"""Settings of a configuration file that changes under a running front, as in a pod."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from gantry_protocol.process.config import fingerprint
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.tracing.export import LINGER_S
from support.broker_cluster import eventually, send_command
from support.broker_processes import Front, Group
from support.otlp import OtlpReceiver
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

SPAN = "00f067aa0ba902b7"
DELAYED = "DELAY\x011\x02"  # which the front passes on


class Written:
    """The file of a front, and what the front says of it."""

    def __init__(self, file: Path, front: Front) -> None:
        self._file = file
        self._front = front

    def write(self, **settings: Any) -> str:
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
        self._file.write_text("".join(lines))
        return fingerprint(self._file.read_bytes())

    async def says(self, applied: str, refused: str = "") -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self._front.status()
                assert found is not None
                if found["settings"] == applied and refused in found["settingsRefused"]:
                    assert bool(found["settingsRefused"]) is bool(refused)
                    return
                await asyncio.sleep(0.05)

    async def has(self, **settings: Any) -> str:
        wished = self.write(**settings)
        await self.says(wished)
        return wished


async def send(client: RemotingClient, number: int, more: str = "") -> str:
    """A send that is to be traced; the id of its trace."""
    trace = f"{number:032x}"
    command = send_command(b"hello")
    assert command.ext is not None
    command.ext["i"] = f"traceparent\x0100-{trace}-{SPAN}-01\x02{more}"
    assert (await client.call(command, PATIENCE_S)).code == 0
    return trace


async def test_a_front_applies_its_file_and_goes_on(tmp_path: Path) -> None:
    receiver = OtlpReceiver()
    await receiver.start()
    file = tmp_path / "gantry.toml"
    file.write_text("")
    group = Group(tmp_path, members=1)
    group.env = {"GANTRY_STORE_PORT": "10914"}
    group.front_env = {"GANTRY_CONFIG": str(file)}
    try:
        await group.start()
        await group.open_fronts(1)
        (front,) = group.fronts.values()
        settings = Written(file, front)
        await settings.has(log_level="warning")
        client = await RemotingClient().connect(front.address)
        before = {await send(client, 1), await send(client, 2, DELAYED)}

        # The same client's sends, those that the front answers and those that it passes on.
        traced = {"tracing_endpoint": receiver.url, "tracing_ratio": 0}
        good = await settings.has(log_level="debug", connection_age_s=0, ports=3, **traced)
        served = await front.served()
        answered, passed = await send(client, 3), await send(client, 4, DELAYED)
        assert await front.served() == served + 1
        await eventually(lambda: len(receiver.spans) == 4 + 3, "all spans arrive", PATIENCE_S)
        assert "store" in receiver.of(answered)
        assert "call" in receiver.of(passed)
        assert not before & {one.trace for one in receiver.spans}
        said = front.log.read_text("utf-8")
        assert "names=connection_age_s,log_level,tracing_endpoint,tracing_ratio" in said
        assert "names=log_level " not in said, "at the level before nothing of it was logged"

        # A file that nobody could start with changes nothing.
        settings.write(log_level="warning", tracing_endpoint="collector:4318")
        await settings.says(good, "http://HOST:PORT")
        trace = await send(client, 5)
        await eventually(lambda: len(receiver.of(trace)) == 4, "they hold", PATIENCE_S)

        await settings.has()
        receiver.spans.clear()
        await send(client, 6)
        await send(client, 7, DELAYED)
        await asyncio.sleep(2 * LINGER_S)  # as long as spans would take
        assert receiver.spans == []
        assert front.process.poll() is None
        client.close()
    finally:
        await group.stop()
        await receiver.stop()
