"""Bits that flip on the disks of a group: nobody is told a wrong byte, and they are mended."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from gantry_broker.log.checked import DamagedError
from gantry_protocol.command import RemotingCommand
from support import logs
from support.broker_cluster import (
    BrokerCluster,
    RunningBroker,
    bodies,
    eventually,
    pull_command,
    send_command,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_broker.host.settings import BrokerSettings
    from gantry_broker.log import CommitLog

COUNT = 60
EXPECTED = [b"body %d" % number for number in range(COUNT)]
KEEPS_ALL = 2
NEEDLE = b"blue25"  # in a property: the CRC of a record does not cover it


def _message(number: int) -> RemotingCommand:
    command = send_command(EXPECTED[number])
    assert command.ext is not None
    command.ext["i"] = f"colour\x01blue{number}\x02"
    return command


async def _filled(cluster: BrokerCluster) -> None:
    client = await cluster.client(cluster.master)
    for number in range(COUNT):
        assert (await client.call(_message(number))).code == 0


def _rot(log: CommitLog) -> Path:
    """Flip a bit of a property in the oldest file, which no reader holds in memory."""
    path = log.locate(log.log_start)[0]
    logs.flip(path, path.read_bytes().index(NEEDLE))
    log.checks.forget(0, log.end)
    return path


async def _pulled(cluster: BrokerCluster, broker: RunningBroker) -> tuple[list[bytes], bytes, int]:
    """Bodies, all bytes and the code that ended it."""
    client = await cluster.client(broker)
    found: list[bytes] = []
    raw = b""
    while True:
        answer = await client.call(pull_command(len(found)))
        if answer.code != 0:
            return found, raw, answer.code
        raw += answer.body
        found += bodies(answer)


async def test_a_replica_repairs_itself_and_a_master_once_another_took_over(
    tmp_path: Path,
) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        await _filled(cluster)
        replica, master = cluster.replicas_of()[0], cluster.master
        rotten = _rot(replica.group.store.log)
        with pytest.raises(DamagedError):  # as the scrub does
            replica.group.store.log.compare(0, replica.group.store.log.flushed)
        await eventually(lambda: replica.group.repairs.repaired == 1, "the replica is repaired")
        assert NEEDLE in rotten.read_bytes()

        rotten = _rot(master.group.store.log)
        found, raw, code = await _pulled(cluster, master)
        assert (found, code) == (EXPECTED[: len(found)], 1)
        assert len(found) < COUNT
        await eventually(lambda: master.group.repairs.repaired == 1, "the old master is repaired")
        assert not master.is_master
        await cluster.settled()
        found, raw, _ = await _pulled(cluster, cluster.master)
        assert (found, raw.count(b"blue25")) == (EXPECTED, 1)
        for broker in cluster.brokers.values():
            log = broker.group.store.log
            assert NEEDLE in log.locate(log.log_start)[0].read_bytes()
            assert not log.checks.damage


async def test_a_start_with_damage_is_repaired_by_the_master(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path) as cluster:
        await _filled(cluster)
        replica = cluster.replicas_of()[0]
        number = cluster.number_of(replica)
        await replica.stop()
        path = replica.group.store.log.directory / f"{0:020d}"
        logs.flip(path, path.read_bytes().index(NEEDLE))
        again = cluster.boot(number)
        await eventually(
            lambda: again.member.group is not None and again.group.repairs.repaired == 1,
            "it is repaired",
        )
        await cluster.settled()
        assert NEEDLE in path.read_bytes()


async def test_alone_it_serves_the_rest_and_says_what_is_lost(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path, replicas=1, min_in_sync=1) as cluster:
        await _filled(cluster)
        path = _rot(cluster.master.group.store.log)
        found, _, code = await _pulled(cluster, cluster.master)
        assert (found, code) == (EXPECTED[: len(found)], 1)
        client = await cluster.client(cluster.master)
        behind = bodies(await client.call(pull_command(len(found) + 1)))
        assert behind == EXPECTED[len(found) + 1 :][: len(behind)] != []
        assert (await client.call(_message(0))).code == 0, "writes go on"
        (damage,) = cluster.master.group.store.log.checks.damage.values()
        assert damage.path == path
        await eventually(
            lambda: f"offsets {damage.start} to " in cluster.master.group._report().log_damage,
            "its heartbeats name it",
        )


class Uneven(BrokerCluster):
    """Broker 2 keeps its whole log, the others little of theirs."""

    def settings(self, number: int) -> BrokerSettings:
        made = super().settings(number)
        kept = 0 if number == KEEPS_ALL else 4 * 64 * 1024
        return made.model_copy(update={"retention_bytes": kept, "log_segment_bytes": 64 * 1024})


async def test_what_the_master_has_trimmed_is_done_without(tmp_path: Path) -> None:
    """Its bytes are gone everywhere, so whoever stands before them goes on behind them."""
    async with Uneven(tmp_path) as cluster:
        if cluster.master is cluster.brokers[KEEPS_ALL]:
            await cluster.master.stop()  # who keeps little has to write the state to be kept
            cluster.boot(KEEPS_ALL)
            await cluster.settled()
        client = await cluster.client(cluster.master)
        for _ in range(40):
            assert (await client.call(send_command(b"x" * 20_000))).code == 0
        others = [broker for number, broker in cluster.brokers.items() if number != KEEPS_ALL]
        await eventually(
            lambda: all(one.group.store.log.log_start > 64 * 1024 for one in others),
            "the others have trimmed their logs",
        )
        keeper = cluster.brokers[KEEPS_ALL]
        await keeper.stop()
        store = keeper.group.store.log.directory.parent
        shutil.rmtree(store / "kv")
        path = store / "commitlog" / f"{0:020d}"
        logs.flip(path, 30_000)
        again = cluster.boot(KEEPS_ALL)
        await eventually(
            lambda: again.member.group is not None and again.member.rebuilt == 1,
            "it makes its rows again, from where the master's log begins",
        )
        await eventually(lambda: not path.exists(), "what is damaged is gone")
        await cluster.settled()
        master = next(one for one in others if one.is_master)
        log = again.group.store.log
        assert log.log_start > 0
        assert not log.checks.damage
        await eventually(
            lambda: again.group.store.dispatched == master.group.store.dispatched,
            "it has derived all that there is",
        )
        assert again.group.store.is_whole
        assert again.member.rebuilt == 1
