"""Settings of a configuration file that changes under a running broker, as in a pod."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.host.server import BrokerServer
from gantry_broker.host.settings import BrokerSettings
from gantry_protocol.command import RemotingCommand
from gantry_protocol.process import log
from gantry_protocol.process.config import fingerprint
from gantry_protocol.process.live_settings import SettingsFile
from gantry_protocol.settings.broker import LIVE
from gantry_protocol.tracing.export import LINGER_S
from gantry_protocol.types import BrokerId
from integration.broker.test_tracing import figures
from support.broker_cluster import BrokerCluster, RunningBroker, eventually, send_command
from support.broker_processes import Group
from support.loopback_controller import CLUSTER, GROUP, LoopbackController
from support.otlp import OtlpReceiver

OTHERS: dict[str, str] = {
    "access_log": "all",
    "disk_refuse_percent": "80",
    "disk_spare_bytes": "5",
    "disk_take_percent": "70",
    "drain_grace_s": "3",
    "log_level": "warning",
    "max_batch_messages": "7",
    "offsets_kept_hours": "9",
    "quotas": '{"perTenant": {"sendsPerSecond": 3}}',
    "retention_bytes": "1048576",
    "retention_hours": "5",
    "retention_when_full": "refuse",
    "tracing_endpoint": "http://127.0.0.1:1",
    "tracing_ratio": "0.5",
    "transaction_check_interval_s": "11",
    "transaction_check_max": "4",
    "transaction_timeout_s": "13",
}
"""A value of each that is not its default."""


def file_text(settings: dict[str, str]) -> str:
    return "".join(f"{key} = '{text}'\n" for key, text in settings.items())


class OneBroker(BrokerCluster):
    """A broker with a file, in this process."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, replicas=1, min_in_sync=1)
        self.file = directory / "gantry.toml"
        self.file.write_text("")

    def boot(self, number: int) -> RunningBroker:
        settings = self.settings(number)
        given = settings.model_dump(exclude_unset=True)
        broker = RunningBroker(settings)
        # Before its task has had a turn.
        broker.server._file = SettingsFile(BrokerSettings, self.file, given, "broker")
        self.brokers[number] = broker
        return broker

    def write(self, settings: dict[str, str]) -> None:
        self.file.write_text(file_text(settings))

    async def has(self, settings: dict[str, str]) -> None:
        self.write(settings)
        wished = fingerprint(self.file.read_bytes())
        await eventually(lambda: said(self.controller) == wished, "the controllers hear of it")


def said(controller: LoopbackController, broker_id: int = 1) -> str:
    row = controller.watchman.table.row((CLUSTER, GROUP), BrokerId(broker_id))
    return "" if row is None else row.beat.settings


def in_force(server: BrokerServer) -> dict[str, Any]:
    """What each decision of a master reads."""
    (hosted,) = server.hosted
    group, processor = hosted.group, hosted.processor
    assert group is not None
    assert processor is not None
    shared, retention = group._shared, group.tier.retention
    assert retention is not None
    marks, kept, rounds = shared.disk_space.watermarks, retention.kept, processor._rounds
    ledger, throttle = processor.transactions.ledger, processor.throttle
    traced = hosted._traced_now()
    assert (hosted.router.processor is processor) is (traced is None)
    rates = None if throttle is None else throttle._meter._quotas.per_tenant.sends_per_second
    return {
        "access_log": "all" if shared.access.logs_all else "denied",
        "disk_refuse_percent": marks.refuse_at,
        "disk_spare_bytes": marks.spare_bytes,
        "disk_take_percent": marks.take_below,
        "drain_grace_s": processor.drain.grace_s,
        "log_level": log.level(),
        "max_batch_messages": processor._sender.max_batch_messages,
        "offsets_kept_hours": processor.age.kept_hours,
        "quotas": rates or None,
        "retention_bytes": kept.bytes or 0,
        "retention_hours": kept.hours,
        "retention_when_full": "delete" if kept.gives_way else "refuse",
        "tracing_endpoint": (
            server._spans._url.removesuffix("/v1/traces") if server._spans.is_on else None
        ),
        # Nobody asks for it while nothing is traced.
        "tracing_ratio": server._tracing.ratio if traced is None else traced.ratio,
        "transaction_check_interval_s": rounds._interval_s,
        "transaction_check_max": ledger.policy.checks_max,
        "transaction_timeout_s": ledger.policy.timeout_ms / 1000,
    }


def expected(settings: BrokerSettings) -> dict[str, Any]:
    quotas = settings.parsed_quotas
    rate = None if quotas is None else quotas.per_tenant.sends_per_second
    return {name: getattr(settings, name) for name in LIVE} | {"quotas": rate}


@pytest.fixture
def as_begun() -> Iterator[None]:
    """The level at which a process logs that was told none."""
    before = log.level()
    log.set_level("info")
    yield
    log.set_level(before)


@pytest.mark.usefixtures("as_begun")
async def test_every_live_setting_comes_into_force_and_goes_again(tmp_path: Path) -> None:
    assert OTHERS.keys() == LIVE, "of each that is said to be applied while running"
    async with OneBroker(tmp_path) as cluster:
        server = cluster.master.server
        plain = expected(cluster.settings(0))
        assert in_force(server) == plain
        epoch = cluster.controller.group.master_epoch
        await cluster.has(OTHERS)
        other = expected(server.settings)
        assert in_force(server) == other
        assert [name for name in LIVE if other[name] == plain[name]] == []
        # Whoever becomes master later, or begins anew, has them, too.
        (hosted,) = server.hosted
        hosted.serving_ends()
        hosted.serving_began()
        assert in_force(server) == other
        await cluster.has({})
        assert in_force(server) == plain
        client = await cluster.client(cluster.master)
        assert (await client.call(send_command(b"on we go"))).code == 0
        assert cluster.controller.group.master_epoch == epoch, "nobody restarted"


async def test_quotas_count_from_the_next_send_on(tmp_path: Path) -> None:
    async with OneBroker(tmp_path) as cluster:
        client = await cluster.client(cluster.master)
        assert (await client.call(send_command(b"first"))).code == 0
        await cluster.has({"quotas": '{"perTenant": {"sendsPerSecond": 0.001}}'})
        processor = cluster.master.member.processor
        assert processor is not None
        codes = [(await client.call(send_command(b"%d" % n))).code for n in range(3)]
        assert codes[-1] == 215, "flow control"
        assert not cluster.master.member._is_offered(), "fronts know no quotas"
        await cluster.has({})
        assert (await client.call(send_command(b"last"))).code in (0, 215), "paid for first"
        assert cluster.master.member._is_offered()


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e473", "00f067aa0ba902b7"


def traced(number: int) -> RemotingCommand:
    """A send whose producer traces it."""
    command = send_command(b"hello")
    assert command.ext is not None
    command.ext["i"] = f"traceparent\x0100-{TRACE}{number}-{SPAN}-01\x02"
    return command


@pytest.fixture
async def receivers() -> AsyncIterator[list[OtlpReceiver]]:
    made = [OtlpReceiver(), OtlpReceiver()]
    for receiver in made:
        await receiver.start()
    yield made
    for receiver in made:
        await receiver.stop()


def traces(receiver: OtlpReceiver) -> list[str]:
    """Of sends."""
    return [span.trace[-1] for span in receiver.spans if span.name == "SendMessage"]


async def test_tracing_goes_on_to_another_collector_and_off(
    tmp_path: Path, receivers: list[OtlpReceiver]
) -> None:
    first, second = receivers
    async with OneBroker(tmp_path) as cluster:
        server, client = cluster.master.server, await cluster.client(cluster.master)

        async def send(number: int) -> None:
            assert (await client.call(traced(number))).code == 0

        await send(0)
        assert server._spans._task is None, "off is not there"
        await cluster.has({"tracing_endpoint": first.url, "tracing_ratio": "0"})
        await send(1)
        await eventually(lambda: traces(first) == ["1"], "it is traced from now on")
        assert len(first.of(f"{TRACE}1")) == 5, "with all of its parts"
        # What nobody traces is traced by the ratio.
        assert (await client.call(send_command(b"x"))).code == 0
        await cluster.has({"tracing_endpoint": first.url, "tracing_ratio": "1"})
        assert (await client.call(send_command(b"x"))).code == 0
        await eventually(lambda: len(traces(first)) == 2, "one of the two is")
        # The send that waits for the first collector goes to the second, with the one after.
        await send(2)
        await cluster.has({"tracing_endpoint": second.url})
        await send(3)
        await eventually(lambda: "3" in traces(second), "it is sent there")
        assert sorted(traces(first)[2:] + traces(second)) == ["2", "3"], "each once"
        await cluster.has({})
        await send(4)
        (hosted,) = server.hosted
        assert hosted.router.processor is hosted.processor
        await asyncio.sleep(2 * LINGER_S)  # as long as spans would take
        assert "4" not in traces(first) + traces(second)
        assert not +server._spans.dropped, "nothing is lost"
        assert server._spans.exported == len(first.spans) + len(second.spans)


# ---- a process


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    made = Group(tmp_path, members=1)
    made.env = {"GANTRY_CONFIG": str(tmp_path / "gantry.toml")}
    (tmp_path / "gantry.toml").write_text(file_text({"retention_hours": "72"}))
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def test_a_process_applies_its_file_and_has_the_same_when_it_starts_again(
    group: Group, tmp_path: Path
) -> None:
    path, ip = tmp_path / "gantry.toml", group.master_ip
    pid = group.processes[ip].process.pid

    async def has_hours(hours: float) -> None:
        await group.until(ip, lambda found: found["retention"]["hours"] == hours)
        wished = fingerprint(path.read_bytes())
        await eventually(lambda: said(group.controller) == wished, "the controllers hear of it")

    await has_hours(72)
    path.write_text(file_text({"retention_hours": "5", "lock_wait_s": "9"}))
    await has_hours(5)
    assert "settings are applied while running" in group.processes[ip].said
    assert "names=retention_hours " in group.processes[ip].said, "not what needs a restart"
    path.write_text(file_text({"retention_hours": "6", "disk_take_percent": "99"}))
    await eventually(lambda: "are refused" in group.processes[ip].said, "it refuses")
    await has_refused(group)
    await group.until(ip, lambda found: found["retention"]["hours"] == 5)
    assert group.processes[ip].process.pid == pid
    path.write_text(file_text({"retention_hours": "7"}))
    await has_hours(7)
    group.processes[ip].process.kill()
    group.boot(ip)
    await group.settled()
    await has_hours(7)


async def test_tracing_is_switched_on_and_off_in_a_process(
    group: Group, tmp_path: Path, receivers: list[OtlpReceiver]
) -> None:
    path, ip = tmp_path / "gantry.toml", group.master_ip
    pid = group.processes[ip].process.pid

    async def has(settings: dict[str, str]) -> None:
        path.write_text(file_text(settings))
        wished = fingerprint(path.read_bytes())
        await eventually(lambda: said(group.controller) == wished, "the controllers hear of it")

    await group.ask(traced(0))
    await has({"tracing_endpoint": receivers[0].url})
    await group.ask(traced(1))
    await eventually(lambda: traces(receivers[0]) == ["1"], "it is traced")
    path.write_text(file_text({"tracing_endpoint": "collector:4318"}))
    await eventually(lambda: "are refused" in group.processes[ip].said, "it refuses")
    await group.ask(traced(2))
    await eventually(lambda: traces(receivers[0]) == ["1", "2"], "what held before holds")
    await has({})
    await group.ask(traced(3))
    assert figures(ip)["exported"] == len(receivers[0].spans) == 10
    assert {why: count for why, count in figures(ip).items() if count} == {"exported": 10}
    assert group.processes[ip].process.pid == pid


async def has_refused(group: Group) -> None:
    def refused() -> str:
        row = group.controller.watchman.table.row((CLUSTER, GROUP), BrokerId(1))
        return "" if row is None else row.beat.settings_refused

    await eventually(lambda: "must be below disk_refuse_percent" in refused(), "it says why")
