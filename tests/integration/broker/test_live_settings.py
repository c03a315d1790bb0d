"""Settings of a configuration file that changes under a running broker, as in a pod."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.host.live_settings import SettingsFile
from gantry_broker.host.server import BrokerServer
from gantry_broker.host.settings import BrokerSettings
from gantry_protocol.process import log
from gantry_protocol.process.config import fingerprint
from gantry_protocol.settings.broker import LIVE
from gantry_protocol.types import BrokerId
from support.broker_cluster import BrokerCluster, RunningBroker, eventually, send_command
from support.broker_processes import Group
from support.loopback_controller import CLUSTER, GROUP, LoopbackController

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
        broker.server._file = SettingsFile(self.file, given)
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


async def has_refused(group: Group) -> None:
    def refused() -> str:
        row = group.controller.watchman.table.row((CLUSTER, GROUP), BrokerId(1))
        return "" if row is None else row.beat.settings_refused

    await eventually(lambda: "must be below disk_refuse_percent" in refused(), "it says why")
