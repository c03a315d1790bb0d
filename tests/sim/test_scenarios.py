"""One thing goes wrong in a cluster that stands well, and how long, in virtual time, it is felt.

What must never be so is checked all the while, as in every run (``sim.product.watch``).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from gantry_broker.log.sums import load as load_sums
from gantry_broker.log.sums import sums_path
from gantry_broker.replica import DEFAULT_LIMITS
from sim.kernel.world import SECOND, World
from sim.product.cluster import GROUP, Cluster, Node, Simulation
from sim.product.watch import Watch
from sim.product.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

QUEUE_OFFSET_AT, BODY_AT = 27, 100  # the last byte of it, and one of it, in a record
STALE_S = 1.6  # after its last word somebody may have died, and is not known to have
CUT_OFF_S = 5  # a pause, a delay and the silence of members or controllers


class Calm:
    """A cluster without faults, under load."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.watch = Watch(cluster)
        self.load = Workload(cluster, self.watch, body_bytes=200, rests=False)
        cluster.boot()
        self.load.start()
        self.comes_to_rest()

    def comes_to_rest(self) -> None:
        """Everybody is in the set, and sends are answered."""
        acks, cluster = self.watch.acks, self.cluster
        assert cluster.run(60, until=lambda: cluster.is_whole and self.watch.acks > acks + 3)

    def answers_again(self, within_s: float) -> bool:
        """Whether a send is answered 0 within so long."""
        acks = self.watch.acks
        return self.cluster.run(within_s, until=lambda: self.watch.acks > acks)

    @property
    def master(self) -> Node:
        found = self.cluster.master()
        assert found is not None
        return found

    @property
    def replicas(self) -> list[Node]:
        master = self.master
        return [node for node in self.cluster.brokers if node is not master]

    @property
    def leader(self) -> Node:
        """The controller that leads."""
        for node in self.cluster.controllers:
            controller = self.cluster.controller_of(node)
            if controller is not None and controller.node.role.value == "leader":
                return node
        raise AssertionError("nobody leads")

    @property
    def epochs(self) -> tuple[int, int]:
        """Of the master, and of its set."""
        serving = self.cluster.group_of(self.master).core.serving
        return int(serving.epoch), int(serving.set.epoch)

    def segment_of(self, node: Node) -> Path:
        """The newest file of a broker's log."""
        folder = self.cluster.store_of(node, GROUP) / "commitlog"
        return max(path for path in folder.iterdir() if path.name.isdigit())

    def without_sums(self, nodes: Sequence[Node], victim: Node) -> tuple[int, int]:
        """Cut the power of ``nodes`` until the sums of some records of ``victim`` are gone.

        Returns from where on it has none, and how far it held what was confirmed.
        """
        while True:
            self.comes_to_rest()
            self.cluster.run(0.3)
            self.cluster.look()
            for node in nodes:
                node.machine.cut_power()
                node.machine.restore_power()
            segment = self.segment_of(victim)
            begin = int(segment.name)
            found = load_sums(sums_path(segment), begin)
            covered = found.covered or begin
            confirmed = min(begin + segment.stat().st_size, len(self.watch.confirmed))
            if confirmed - covered >= 2_000 and found.durable <= covered:
                return covered, confirmed
            for node in nodes:
                node.boot()

    def accepts(self, node: Node) -> bool:
        """Whether a broker takes writes."""
        group = self.cluster.group_of(node)
        return bool(group.writes.accepting() is None)


@contextmanager
def calm(seed: int, **named: Any) -> Iterator[Calm]:
    """A cluster that has come to rest."""
    logging.getLogger("gantry").setLevel("CRITICAL")
    with Simulation(World(seed), **named) as cluster:
        yield Calm(cluster)


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_master_is_replaced_within_a_second(seed: int) -> None:
    with calm(seed) as run:
        before, _ = run.epochs
        run.master.kill()
        run.cluster.run(0.01)  # what it has answered may be on its way
        assert run.answers_again(1)
        assert run.epochs[0] == before + 1


def test_a_killed_replica_stalls_writes_only_briefly() -> None:
    with calm(1) as run:
        run.replicas[0].kill()
        run.cluster.run(0.05)
        assert run.answers_again(0.7)


def test_sends_go_on_without_the_leading_controller() -> None:
    with calm(1) as run:
        run.leader.kill()
        run.cluster.run(0.05)
        assert run.answers_again(0.2)


@pytest.mark.parametrize("seed", range(2))
def test_master_and_leading_controller_die_together(seed: int) -> None:
    with calm(seed) as run:
        run.leader.kill()
        run.master.kill()
        assert run.answers_again(6)


def test_a_leaving_master_hands_over() -> None:
    with calm(1) as run:
        before, _ = run.epochs
        run.master.terminate()
        run.cluster.run(0.05)
        assert run.answers_again(1)
        run.comes_to_rest()
        assert run.epochs[0] == before + 1


@pytest.mark.parametrize("seed", [0, 4])
def test_a_leaving_master_hands_over_though_the_leading_controller_dies(seed: int) -> None:
    """Nobody answers what it asks for: that is no reason to leave without an heir."""
    with calm(seed) as run:
        before, _ = run.epochs
        run.leader.kill()
        run.master.terminate()
        run.cluster.run(0.03)
        assert run.answers_again(0.5)
        assert run.epochs[0] == before + 1


def test_all_leave_together_and_come_back() -> None:
    with calm(1) as run:
        for node in run.cluster.brokers:
            node.terminate()
        run.cluster.run(0.3)
        run.comes_to_rest()


@pytest.mark.parametrize("whose", ["master", "replica"])
def test_a_disk_ten_times_slower_costs_time_and_no_mastership(whose: str) -> None:
    with calm(1) as run:
        node = run.master if whose == "master" else run.replicas[0]
        before, acks = run.epochs, run.watch.acks
        node.machine.volume.slowness = 10
        run.cluster.run(10)
        assert run.watch.acks > acks + 50
        node.machine.volume.mend()
        run.comes_to_rest()
        assert run.epochs == before, "slow is not gone"


def test_a_master_whose_disk_hangs_is_relieved() -> None:
    """It notices by itself; nobody who is heard is deposed by others."""
    with calm(1) as run:
        before, _ = run.epochs
        run.master.machine.volume.hang(20 * SECOND)
        run.cluster.run(DEFAULT_LIMITS.disk_wait_ms / 1_000 + 0.1)
        assert run.answers_again(3)
        run.cluster.run(10)
        assert run.epochs[0] == before + 1, "its successor stays"
        run.comes_to_rest()


def test_disks_that_all_hang_depose_nobody() -> None:
    with calm(1) as run:
        before, _ = run.epochs
        for node in run.cluster.brokers:
            node.machine.volume.hang(15 * SECOND)
        run.cluster.run(12)
        assert run.epochs[0] == before
        assert not run.accepts(run.master), "it keeps the role and takes nothing"
        run.cluster.run(3)
        run.comes_to_rest()
        assert run.epochs[0] == before


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
def test_clocks_that_jump_by_an_hour_depose_nobody(hours: int) -> None:
    with calm(1) as run:
        before = run.epochs
        for node in run.cluster.brokers:
            node.machine.wall_offset_s = hours * 3_600.0
            run.cluster.run(1)
        assert run.answers_again(1)
        run.comes_to_rest()
        assert run.epochs == before, "nobody is blamed"


@pytest.mark.parametrize("with_a_replica", [False, True], ids=["alone", "with a replica"])
def test_a_master_that_is_cut_off_takes_nothing_while_another_one_serves(
    with_a_replica: bool,
) -> None:
    with calm(1) as run:
        master = run.master
        group = run.cluster.group_of(master)
        kept = [master, *(run.replicas[:1] if with_a_replica else [])]
        network, inside = run.cluster.network, [node.machine.address for node in kept]
        network.split([inside, [one for one in network.machines if one not in inside]])
        run.cluster.run(CUT_OFF_S)
        assert not run.accepts(master)
        if not with_a_replica:  # or nobody has two copies
            assert run.answers_again(5)
        end = int(group.core.log.end)
        run.cluster.run(6)
        assert group.core.log.end == end
        network.heal()
        run.comes_to_rest()
        assert group.core.serving is None


def test_a_master_goes_on_without_controllers_as_long_as_its_members_answer() -> None:
    with calm(1) as run:
        before, _ = run.epochs
        for node in run.cluster.controllers:
            node.kill()
        for _ in range(4):
            run.cluster.run(2)
            assert run.answers_again(0.5)
        for node in run.cluster.controllers:
            node.boot()
        run.comes_to_rest()
        assert run.epochs[0] == before


def test_sends_stop_below_the_minimum_and_go_on_above_it() -> None:
    with calm(1) as run:
        replicas = run.replicas
        for node in replicas:
            node.kill()
        run.cluster.run(4)
        assert not run.answers_again(2)
        assert not run.accepts(run.master)
        for node in replicas:
            node.boot()
        assert run.answers_again(5)


def test_a_sole_broker_goes_on_after_its_own_restart() -> None:
    with calm(1, brokers=1, min_in_sync=1) as run:
        node = run.master
        node.machine.cut_power()
        run.cluster.run(0.2)
        node.machine.restore_power()
        node.boot()
        run.comes_to_rest()
        assert run.epochs[0] >= 2


@pytest.mark.parametrize("seed", range(2))
def test_a_bit_that_flips_where_a_power_cut_took_the_sums_is_mended(seed: int) -> None:
    """No record's own check covers it; the records behind it tell."""
    with calm(seed) as run:
        node = run.replicas[0]
        covered, confirmed = run.without_sums([node], node)
        run.cluster.flip(node, covered + QUEUE_OFFSET_AT)
        node.boot()
        run.comes_to_rest()
        repairs = run.cluster.group_of(node).repairs
        assert run.cluster.run(10, until=lambda: repairs.repaired == 1)
        data = run.cluster.logs.read(node, GROUP, covered, confirmed)
        assert data == run.watch.confirmed[covered:confirmed]


@pytest.mark.parametrize("seed", range(4))
def test_the_sum_of_a_byte_that_a_fault_lets_rot_outlives_the_power(seed: int) -> None:
    with calm(seed) as run:
        node = run.replicas[0]
        at = int(run.cluster.group_of(node).core.log.confirm) - 1
        assert run.cluster.logs.keep_sum(node, GROUP, at)
        node.machine.cut_power()
        segment = run.segment_of(node)
        covered = load_sums(sums_path(segment), int(segment.name)).covered
        assert covered is not None
        assert at < covered


@pytest.mark.parametrize("seed", range(2))
def test_a_record_that_rots_where_a_power_cut_took_the_sums_makes_an_older_copy(seed: int) -> None:
    """It looks like one that was never whole. Its member is back first, and waits for the rest."""
    with calm(seed) as run:
        cluster, (node, *others) = run.cluster, run.cluster.brokers
        covered, _ = run.without_sums(cluster.brokers, node)
        cluster.flip(node, covered + BODY_AT)
        node.machine.volume.lives += 1
        cluster.put_back[node.name] = (run.watch.logs.epochs[0] + 1, 1_000)
        cluster.run(STALE_S)
        node.boot()
        cluster.run(1)
        assert cluster.group_of(node).core.log.end == covered
        assert cluster.master() is None
        for other in others:
            other.boot()
        run.comes_to_rest()
        end = len(run.watch.confirmed)
        assert cluster.logs.read(node, GROUP, 0, end) == run.watch.confirmed
