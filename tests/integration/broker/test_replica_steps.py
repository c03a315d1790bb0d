"""The steps of real brokers: what they serve to loopback is found again, a hand-over included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
from gantry_broker.decisions import dense
from gantry_broker.decisions.replay import REPLICA
from gantry_broker.decisions.rings import SHARE_MIN
from gantry_broker.decisions.state import PLAIN
from gantry_broker.host.settings import BrokerSettings
from gantry_operator.redact import Redactor
from gantry_protocol.process.probes import DECISIONS_PATH
from gantry_protocol.steps.files import StepsRead, steps_of
from gantry_protocol.steps.replay import retaken
from gantry_protocol.steps.ring import RUN
from prometheus_client.parser import text_string_to_metric_families
from sim.mutants.planting import Edit, planted
from support.broker_cluster import BrokerCluster, RunningBroker, send_command
from support.loopback_controller import GROUP

SECRET = b"password=hunter2-in-a-message"


async def served(broker: RunningBroker, path: str = DECISIONS_PATH) -> bytes:
    """What whoever asks without a token gets."""
    url = f"http://127.0.0.1:{broker.server.http_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        assert response.status == 200
        return await response.read()


def inputs_of(recording: StepsRead) -> set[str]:
    """Kinds of inputs, and of events."""
    found: set[str] = set()
    for step in (step for one in recording.stretches for step in one.steps):
        items: Any = [[step[0], step[1] if len(step) > 1 else None]]
        if step[0] == RUN:
            numbers = PLAIN.read(step[1], "")
            items = [[kind, PLAIN.written(given)] for kind, given, _, _ in dense.items(numbers)]
        for kind, given in items:
            found.add(next(iter(given["tuple"][0])) if kind == "step" else kind)
    return found


async def test_every_step_of_a_group_is_found_again(tmp_path: Path) -> None:
    inputs: set[str] = set()
    async with BrokerCluster(tmp_path) as cluster:
        client = await cluster.client(cluster.master)
        for number in range(50):
            assert (await client.call(send_command(SECRET + b"%d" % number))).code == 0
        leaving = cluster.master
        number = cluster.number_of(leaving)
        before = await served(leaving)
        await leaving.stop()
        cluster.boot(number)
        await cluster.settled()
        client = await cluster.client(cluster.master)
        assert (await client.call(send_command(SECRET))).code == 0
        files = [before, *[await served(broker) for broker in cluster.brokers.values()]]
        page = (await served(cluster.master, "/metrics")).decode()
    for data in files:
        recording = steps_of(data, "steps")
        assert recording.heading.core == "replica"
        assert recording.heading.code == REPLICA.fingerprint()
        assert recording.heading.process.startswith("broker-")
        assert recording.heading.ended == ""
        assert {one.of for one in recording.stretches} == {GROUP}
        outcomes = list(retaken(REPLICA, recording, "steps"))
        assert [one.difference for one in outcomes if one.difference is not None] == []
        assert sum(one.steps for one in outcomes) > 10
        inputs |= inputs_of(recording)
        assert b"hunter2" not in data
        redactor = Redactor()
        assert redactor.text("x", data.decode()) == data.decode()
    assert {"appended", "sent", "Tick", "Received", "LogFlushed", "ViewLearned"} <= inputs
    assert {"StateSaved", "ControllersAnswered", "LinkOpened", "ProposalFinished"} <= inputs
    held = {
        one.name: one.samples[0].value
        for one in text_string_to_metric_families(page)
        if one.samples
    }
    assert held["gantry_broker_recorded_steps"] > 10
    assert held["gantry_broker_recorded_steps_bytes"] > 0
    assert held["gantry_broker_recorded_steps_dropped"] >= 0
    assert held["gantry_broker_recording_ended"] == 0
    bug = Edit(
        "gantry_broker.replica.master:Mastership.ack",
        "elif member.sent < self._log.end:",
        "elif True:",
    )
    with planted((bug,)):
        found = [one.difference for one in retaken(REPLICA, steps_of(before, "steps"), "steps")]
    assert any(one is not None and "Ack" in one.given for one in found)


class LittleMemory(BrokerCluster):
    """One broker with so much memory for steps."""

    recorded_bytes = 0

    def settings(self, number: int) -> BrokerSettings:
        found = super().settings(number)
        return found.model_copy(update={"recorded_bytes": self.recorded_bytes})


async def test_a_broker_without_room_records_nothing(tmp_path: Path) -> None:
    async with LittleMemory(tmp_path, replicas=1, min_in_sync=1) as cluster:
        recording = steps_of(await served(cluster.master), "steps")
    assert recording.stretches == []
    assert recording.heading.ended == ""


async def test_a_broker_with_too_little_room_says_so(tmp_path: Path) -> None:
    cluster = LittleMemory(tmp_path, replicas=1, min_in_sync=1)
    cluster.recorded_bytes = SHARE_MIN - 1
    async with cluster:
        recording = steps_of(await served(cluster.master), "steps")
    assert recording.stretches == []
    assert f"set recorded_bytes to {SHARE_MIN} or more" in recording.heading.ended


async def test_a_ring_of_a_busy_broker_has_its_beginning(tmp_path: Path) -> None:
    cluster = LittleMemory(tmp_path)
    cluster.recorded_bytes = SHARE_MIN
    async with cluster:
        client = await cluster.client(cluster.master)
        for _ in range(800):
            assert (await client.call(send_command(b"x"))).code == 0
        files = [await served(broker) for broker in cluster.brokers.values()]
    recordings = [steps_of(data, "steps") for data in files]
    assert sum(one.heading.dropped for one in recordings) > 0
    for recording in recordings:
        assert len(recording.stretches) > 1
        outcomes = list(retaken(REPLICA, recording, "steps"))
        assert [one.difference for one in outcomes if one.difference is not None] == []
