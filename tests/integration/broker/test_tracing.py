"""Traces of real processes: a client's send, a failover, and a collector that is not there."""

from __future__ import annotations

import asyncio
import signal
import urllib.request
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from gantry_lab.bench.controller.quorum import ProcessQuorum
from gantry_protocol.admin import GroupDeclaration, GroupList, GroupView
from gantry_protocol.command import RemotingCommand
from gantry_protocol.tracing.masters import Change
from prometheus_client.parser import text_string_to_metric_families
from support.broker_cluster import eventually, send_command
from support.broker_processes import Group
from support.loopback_controller import CLUSTER, GROUP
from support.otlp import OtlpReceiver, Received
from support.patience import PATIENCE_S, STARTS_WITHIN_S

MS = 1_000_000
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class TracedGroup(Group):
    """Three brokers and three controllers, all of them processes with a collector."""

    def __init__(self, directory: Path, collector: str) -> None:
        super().__init__(directory)
        traced = {"GANTRY_TRACING_ENDPOINT": collector}
        self.quorum = ProcessQuorum(directory, traced)
        self.env = {**traced, "GANTRY_TRACING_RATIO": "0"}

    async def start(self) -> None:
        await self.quorum.__aenter__()
        self.env["GANTRY_QUORUM_KEY_FILE"] = str(self.quorum.key_file)
        self.controller.address = ",".join(map(self.quorum.address, self.quorum.nodes))
        wish = GroupDeclaration(uid="u", replicas=3, min_in_sync_replicas=2)
        path = f"/v1/groups/{CLUSTER}/{GROUP}"
        assert await self.quorum.admin("PUT", path, wish.model_dump(mode="json")) in (200, 201)
        for number in range(1, self.members + 1):
            self.boot(f"{self.network}.{number}")
        async with asyncio.timeout(STARTS_WITHIN_S):
            while len((await self.view()).sync_state_set) < self.members:
                await asyncio.sleep(0.05)

    async def view(self) -> GroupView:
        """The group by the leader's word."""
        url = f"http://{self.quorum.address(self.quorum.leading, 'http')}/v1/groups"
        async with self.quorum.session.get(url) as response:
            (group,) = GroupList.model_validate_json(await response.read()).groups
        return group

    async def master(self) -> str:
        """The address of the master."""
        found = (await self.view()).master_address
        assert found is not None
        return found.partition(":")[0]

    async def stop(self) -> None:
        await super().stop()
        await self.quorum.__aexit__(None, None, None)


def send(traceparent: str = "") -> RemotingCommand:
    command = send_command(b"hello")
    assert command.ext is not None
    command.ext["i"] = f"traceparent\x01{traceparent}\x02" if traceparent else ""
    return command


def figures(ip: str) -> dict[str, float]:
    """What a broker's metrics say of its spans; of those dropped by reason."""
    with urllib.request.urlopen(f"http://{ip}:10913/metrics", timeout=PATIENCE_S) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        sample.labels.get("reason", "exported"): sample.value
        for family in families
        if family.name.startswith("gantry_tracing_")
        for sample in family.samples
    }


@pytest.fixture
async def receiver() -> AsyncIterator[OtlpReceiver]:
    made = OtlpReceiver()
    await made.start()
    yield made
    await made.stop()


async def test_sends_and_a_failover(tmp_path: Path, receiver: OtlpReceiver) -> None:
    group = TracedGroup(tmp_path, receiver.url)
    try:
        await group.start()
        await group.ask(send())
        await group.ask(send(f"00-{TRACE[::-1]}-{SPAN}-00"))
        await group.ask(send(f"00-{TRACE}-{SPAN}-01"))
        await eventually(lambda: len(receiver.of(TRACE)) == 5, "the send arrives")
        first = await group.view()
        _judge_send(receiver.of(TRACE), first)
        # One trace of a send; the others were not to be sampled.
        sends = {span.trace for span in receiver.spans if span.name == "SendMessage"}
        assert sends == {TRACE}

        old = await group.master()
        await group.kill(old)
        await group.ask(send())
        await _until_it_wrote(group, first.master_epoch)
        failed_over = await group.view()
        ids = Change(CLUSTER, GROUP, failed_over.master_epoch).ids
        trace = f"{ids[0]:032x}"
        await eventually(lambda: len(receiver.of(trace)) == 6, "all parts arrive")
        _judge_failover(receiver.of(trace), failed_over, f"{ids[1]:016x}")
        told = figures(await group.master())
        assert told.pop("exported") >= 2
        assert set(told.values()) == {0.0}
    finally:
        await group.stop()


async def _until_it_wrote(group: TracedGroup, epoch: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            view = await group.view()
            told = view.mastership
            if view.master_epoch > epoch and told is not None and told.first_write_ms is not None:
                return
            await asyncio.sleep(0.05)


def _judge_send(spans: dict[str, Received], group: GroupView) -> None:
    root = spans["SendMessage"]
    parts = [spans[name] for name in ("queue", "append", "replicate", "answer")]
    queue, append, replicate, answer = parts
    assert root.parent == SPAN
    assert {part.parent for part in parts} == {root.id}
    assert root.attributes["messaging.destination.name"] == "orders"
    assert root.attributes["messaging.rocketmq.client_group"] == "p"
    assert root.attributes["gantry.broker_group"] == group.name
    assert root.service["service.name"] == "gantry-broker"
    assert root.service["service.namespace"] == CLUSTER
    assert root.error is None
    assert root.start_ns == queue.start_ns <= queue.end_ns == append.start_ns
    # A sync, and the way to two others and back: neither is nothing.
    assert append.start_ns < replicate.start_ns < append.end_ns
    assert replicate.start_ns < replicate.end_ns == answer.start_ns
    # Confirmed only once it is on this disk, too.
    assert append.end_ns <= replicate.end_ns <= answer.end_ns == root.end_ns


def _judge_failover(spans: dict[str, Received], group: GroupView, root_id: str) -> None:
    told = group.mastership
    assert told is not None
    assert told.heard_ms is not None
    assert told.noticed_ms is not None
    assert told.elected_ms is not None
    assert told.first_write_ms is not None
    root = spans.pop("failover")
    assert (root.id, root.parent) == (root_id, "")
    assert {span.parent for span in spans.values()} == {root_id}
    leader = ("notice", "decide", "commit")
    ordered = [spans[name] for name in (*leader, "promote", "first write")]
    for name, span in spans.items():
        component = "controller" if name in leader else "broker"
        assert span.service["service.name"] == f"gantry-{component}"
        assert span.attributes["gantry.master_epoch"] == group.master_epoch
    for before, after in pairwise(ordered):
        assert before.end_ns <= after.start_ns, (before, after)
    notice, decide, commit, _, first_write = ordered
    assert notice.end_ns == decide.start_ns
    assert decide.end_ns == commit.start_ns
    # The segments of status.lastFailover, to the millisecond.
    assert notice.start_ns == told.heard_ms * MS == root.start_ns
    assert notice.end_ns == told.noticed_ms * MS
    assert commit.end_ns == told.elected_ms * MS == root.end_ns
    assert first_write.end_ns == told.first_write_ms * MS


async def test_nobody_waits_for_a_collector_that_is_away(tmp_path: Path) -> None:
    group = Group(tmp_path, members=1)
    group.env = {"GANTRY_TRACING_ENDPOINT": "http://127.0.0.1:1", "GANTRY_TRACING_RATIO": "1"}
    try:
        await group.start()
        for _ in range(20):
            assert (await group.ask(send())).code == 0
        (process,) = group.processes.values()
        await eventually(lambda: figures(group.master_ip)["unreachable"] >= 100, "they are dropped")
        assert figures(group.master_ip)["exported"] == 0
        assert (await group.ask(send())).code == 0
        process.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.exit_code) == 0
        assert "spans were not taken" in process.said
    finally:
        await group.stop()


async def test_an_endpoint_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    group = Group(tmp_path, members=1)
    group.env = {"GANTRY_TRACING_ENDPOINT": "collector:4318"}
    try:
        await group.controller.start()
        group.boot(f"{group.network}.1")
        (process,) = group.processes.values()
        assert await asyncio.to_thread(process.exit_code) == 2
        assert "GANTRY_TRACING_ENDPOINT" in process.sentence
        assert "http://HOST:PORT" in process.sentence
    finally:
        await group.stop()
