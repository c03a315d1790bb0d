"""Settings of a configuration file that changes under running controllers, as in pods."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from gantry_lab.bench.controller.quorum import ProcessQuorum
from gantry_protocol.process.config import fingerprint
from integration.broker.test_tracing import TracedGroup, send
from support.broker_cluster import eventually
from support.otlp import OtlpReceiver
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path


class TunedGroup(TracedGroup):
    """Three brokers without tracing, and three controllers that read one configuration file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "")
        self.file = directory / "gantry.toml"
        self.file.write_text("")
        self.quorum = ProcessQuorum(directory, {"GANTRY_CONFIG": str(self.file)})
        self.env = {}
        self.directory = directory

    async def said(self) -> list[tuple[str, str]]:
        """The word of each controller about its settings."""
        views = [await self.quorum.view(node) for node in self.quorum.nodes]
        return [("", "") if one is None else (one.settings, one.settings_refused) for one in views]

    def write(self, **settings: str) -> str:
        self.file.write_text("".join(f"{key} = {json.dumps(t)}\n" for key, t in settings.items()))
        return fingerprint(self.file.read_bytes())

    async def has(self, **settings: str) -> None:
        """Until all three say that they have them."""
        wished = self.write(**settings)
        async with asyncio.timeout(PATIENCE_S):
            while set(await self.said()) != {(wished, "")}:
                await asyncio.sleep(0.05)

    def logged(self, node: int) -> str:
        return (self.directory / f"controller-{node - 1}.log").read_text("utf-8")


async def test_a_quorum_applies_its_file_and_goes_on(tmp_path: Path) -> None:
    receiver = OtlpReceiver()
    await receiver.start()
    group = TunedGroup(tmp_path)
    try:
        await group.start()
        nodes = list(group.quorum.nodes)
        pids = [group.quorum._processes.pid(f"controller-{node - 1}") for node in nodes]
        await group.has(log_level="warning")
        term = (await group.quorum.settled()).term
        before = await group.said()
        await group.has(log_level="debug", tracing_endpoint=receiver.url, read_lag_max="5")
        for node in nodes:
            # What needs a restart is not named, and waits for it; at "warning" nothing was said.
            assert "names=log_level,tracing_endpoint" in group.logged(node)
            assert "names=log_level " not in group.logged(node).partition("log_level,tracing")[0]
        first = await group.view()
        await group.kill(await group.master())
        await group.ask(send())
        await eventually(
            lambda: "failover" in [one.name for one in receiver.spans], "the leader tells of it"
        )
        assert (await group.view()).master_epoch > first.master_epoch
        assert {one.service["service.name"] for one in receiver.spans} == {"gantry-controller"}
        # A wrong one changes nothing, and each says why.
        group.write(log_level="debug", tracing_endpoint="collector:4318")
        async with asyncio.timeout(PATIENCE_S):
            while not all("http://HOST:PORT" in refused for _, refused in await group.said()):
                await asyncio.sleep(0.05)
        assert before[0][0] not in {applied for applied, _ in await group.said()}
        await group.has()
        assert (await group.quorum.settled()).term == term, "nobody restarted"
        assert [group.quorum._processes.pid(f"controller-{n - 1}") for n in nodes] == pids
    finally:
        await group.stop()
        await receiver.stop()
