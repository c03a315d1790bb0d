"""The steps of real controllers: what they serve to loopback is found again, fail-over included."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import aiohttp
from gantry_controller.decisions.replay import RAFT
from gantry_controller.server import Controller
from gantry_controller.settings import ControllerSettings
from gantry_protocol.process.probes import DECISIONS_PATH
from gantry_protocol.steps.files import steps_of
from gantry_protocol.steps.replay import retaken
from prometheus_client.parser import text_string_to_metric_families
from support.controller_quorum import Quorum, until

if TYPE_CHECKING:
    from pathlib import Path


async def served(controller: Controller, path: str = DECISIONS_PATH) -> bytes:
    """What whoever asks without a token gets."""
    url = f"http://127.0.0.1:{controller.ports['http']}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        return await response.read()


async def test_every_step_of_a_quorum_is_found_again(quorum: Quorum) -> None:
    await quorum.declare()
    leader = await quorum.led()
    leader.node.transfer(None, lambda _: None)
    await until(lambda: any(one.node.role.value == "leader" for one in quorum.running.values()))
    await quorum.led()
    inputs: set[str] = set()
    for controller in quorum.running.values():
        data = await served(controller)
        recording = steps_of(data, "steps")
        assert recording.heading.code == RAFT.fingerprint()
        assert recording.heading.process == controller.settings.name
        outcomes = list(retaken(RAFT, recording, "steps"))
        assert [one.difference for one in outcomes if one.difference is not None] == []
        assert sum(one.steps for one in outcomes) > 50
        steps = [json.loads(line) for line in data.splitlines() if line.startswith(b"[")]
        inputs |= {step[0] for step in steps}
        page = (await served(controller, "/metrics")).decode()
        held = {
            one.name: one.samples[0].value
            for one in text_string_to_metric_families(page)
            if one.samples
        }
        assert held["gantry_controller_recorded_steps"] >= len(steps)
        assert held["gantry_controller_recorded_steps_bytes"] > 0
        assert held["gantry_controller_recorded_steps_dropped"] >= 0
        assert held["gantry_controller_recording_ended"] == 0
    assert {"tick", "step", "ready", "persisted", "applied", "propose", "transfer"} <= inputs


async def test_a_node_without_room_records_nothing(tmp_path: Path) -> None:
    controller = Controller(
        ControllerSettings(
            data_dir=tmp_path / "alone", raft_port=0, remoting_port=0, nameserver_port=0,
            http_port=0, recorded_bytes=0, allow_unauthenticated=True,
        )
    )  # fmt: skip
    try:
        await controller.start()
        await until(lambda: controller.node.is_serving_leader)
        recording = steps_of(await served(controller), "steps")
    finally:
        await controller.stop()
    assert recording.stretches == []
