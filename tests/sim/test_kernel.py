"""The simulator's own promises: order, replay, what a kill and a power cut leave behind."""

from __future__ import annotations

import pytest
from sim.kernel.disk import SECTOR
from sim.kernel.machine import Host, Machine
from sim.kernel.nemesis import Nemesis, NemesisOptions
from sim.kernel.network import Network, NetworkOptions
from sim.kernel.world import MS, SECOND, Violation, World, cancel


class Echo:
    """Pings a peer every 10 ms and writes what it hears."""

    def __init__(self, host: Host, peer: str) -> None:
        self.host = host
        self.peer = peer
        self.heard: list[object] = []
        self.closed: list[str] = []
        self.synced = 0

    def start(self) -> None:
        self.host.after(10 * MS, self.beat)

    def beat(self) -> None:
        self.host.send(self.peer, ("ping", self.host.name, self.host.clock_us))
        self.host.after(10 * MS, self.beat)

    def receive(self, source: str, message: object) -> None:
        self.heard.append(message)
        self.host.note("heard", source, message)
        file = self.host.disk.file("heard")
        file.append(repr(message).encode())
        file.sync(self.on_synced)

    def on_synced(self) -> None:
        self.synced += 1

    def peer_closed(self, name: str) -> None:
        self.closed.append(name)


def pair(
    seed: int, options: NetworkOptions | None = None
) -> tuple[World, Network, Machine, Machine]:
    world = World(seed)
    network = Network(world, options or NetworkOptions())
    left = Machine(world, network, "left", factory=lambda host: Echo(host, "right"))
    right = Machine(world, network, "right", factory=lambda host: Echo(host, "left"))
    left.boot()
    right.boot()
    return world, network, left, right


def echo(machine: Machine) -> Echo:
    assert isinstance(machine.actor, Echo)
    return machine.actor


def faulty_run(seed: int) -> tuple[str, int]:
    world = World(seed)
    rng = world.stream("swarm")
    network = Network(world, NetworkOptions.swarm(rng))
    machines = [
        Machine(world, network, name, factory=lambda host: Echo(host, "c"), clock_drift=0.05)
        for name in ("a", "b", "c")
    ]
    for machine in machines:
        machine.boot()
    nemesis = Nemesis(world, network, machines, NemesisOptions.swarm(rng))
    nemesis.start()
    world.run(for_us=10 * SECOND)
    nemesis.stop()
    world.run(for_us=SECOND)
    assert all(machine.is_up for machine in machines)
    return world.trace_hash, world.events_run


def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    assert faulty_run(7) == faulty_run(7)
    assert faulty_run(7)[0] != faulty_run(8)[0]


def test_same_time_runs_in_order_of_scheduling() -> None:
    world = World(0)
    order: list[int] = []
    for number in range(5):
        world.after(100, order.append, number)
    cancelled = world.after(100, order.append, 99)
    cancel(cancelled)
    world.run(for_us=100)
    assert order == [0, 1, 2, 3, 4]


def test_violation_names_seed_time_and_trace() -> None:
    world = World(42)

    def check() -> None:
        if world.now_us >= 300:
            raise Violation("two leaders")

    world.checks.append(check)
    world.after(200, world.note, "harmless")
    world.after(300, world.note, "harmful")
    with pytest.raises(
        Violation, match=r"seed 42 at 300 us: two leaders[\s\S]*200 harmless[\s\S]*300 harmful"
    ):
        world.run(for_us=1_000)


def test_partition_is_one_way_and_cuts_what_is_under_way() -> None:
    world, network, left, right = pair(1)
    world.run(for_us=SECOND)
    network.block("left", "right")
    heard_by_right = len(echo(right).heard)
    heard_by_left = len(echo(left).heard)
    world.run(for_us=SECOND)
    assert len(echo(right).heard) == heard_by_right
    assert len(echo(left).heard) > heard_by_left + 50
    network.heal()
    world.run(for_us=SECOND)
    assert len(echo(right).heard) > heard_by_right + 50


def test_duplicates_arrive_and_losses_do_not() -> None:
    world, _, left, right = pair(2, NetworkOptions(duplicate_rate=1.0))
    world.run(for_us=SECOND)
    assert len(echo(right).heard) > 150
    world, _, left, right = pair(2, NetworkOptions(loss_rate=1.0))
    world.run(for_us=SECOND)
    assert echo(left).heard == echo(right).heard == []


def test_fifo_keeps_the_order_of_a_link() -> None:
    def clocks(fifo: bool) -> list[int]:
        options = NetworkOptions(latency_us=(0, 100 * MS), fifo=fifo)
        world, _, _, right = pair(3, options)
        world.run(for_us=SECOND)
        return [message[2] for message in echo(right).heard]  # type: ignore[index]  # tuples

    assert clocks(fifo=True) == sorted(clocks(fifo=True))
    assert clocks(fifo=False) != sorted(clocks(fifo=False))


def test_kill_keeps_the_page_cache_ends_timers_and_closes_connections() -> None:
    world, _, left, right = pair(4)
    world.run(for_us=SECOND)
    file = left.disk.file("heard")
    file.append(b"unsynced")
    dead = echo(left)
    left.kill()
    heard = len(dead.heard)
    world.run(for_us=SECOND)
    assert len(dead.heard) == heard
    assert echo(right).closed == ["left"]
    left.boot()
    assert left.disk.file("heard").data.endswith(b"unsynced")
    assert echo(left) is not dead


def test_power_cut_loses_unsynced_writes_and_closes_nothing() -> None:
    kept = set()
    for seed in range(40):
        world, _, left, right = pair(seed)
        file = left.disk.file("log")
        file.append(b"a" * 4 * SECTOR)
        synced: list[bool] = []
        file.sync(lambda synced=synced: synced.append(True))  # type: ignore[misc]  # bound early
        world.run(for_us=SECOND)
        assert synced == [True]
        file.append(b"b" * 4 * SECTOR)
        left.power_cut()
        world.run(for_us=SECOND)
        assert echo(right).closed == []
        assert file.data == file.durable
        assert file.data[: 4 * SECTOR] == b"a" * 4 * SECTOR
        kept.add(bytes(file.data[4 * SECTOR :]))
    assert b"" in kept
    assert any(rest and set(rest) == {ord("b")} and len(rest) % SECTOR for rest in kept)
    assert any(b"\x00" * SECTOR in rest and b"b" in rest for rest in kept)


def test_sync_never_calls_back_into_a_later_life() -> None:
    world, _, left, _ = pair(5)
    file = left.disk.file("log")
    file.append(b"x")
    called: list[bool] = []
    file.sync(lambda: called.append(True))
    left.kill()
    left.boot()
    world.run(for_us=SECOND)
    assert called == []


def test_pause_delays_everything_in_order() -> None:
    world, _, _left, right = pair(6)
    world.run(for_us=SECOND)
    heard = len(echo(right).heard)
    right.pause(500 * MS)
    world.run(for_us=400 * MS)
    assert len(echo(right).heard) == heard
    world.run(for_us=300 * MS)
    assert len(echo(right).heard) > heard + 50
    clocks = [message[2] for message in echo(right).heard]  # type: ignore[index]  # tuples
    assert clocks == sorted(clocks)


def test_probe_tells_a_dead_process_from_a_cut_cable() -> None:
    world, network, left, right = pair(7)
    words: list[str] = []
    probe = echo(left).host.probe
    probe("right", words.append)
    world.run(for_us=SECOND)
    right.kill()
    probe("right", words.append)
    world.run(for_us=SECOND)
    network.block("right", "left")
    probe("right", words.append)
    world.run(for_us=SECOND)
    assert words == ["accepted", "refused", "timeout"]


def test_wiped_machine_boots_with_an_empty_volume() -> None:
    world, _, left, _ = pair(8)
    world.run(for_us=SECOND)
    left.wipe()
    left.boot()
    assert left.disk.file("heard").data == b""
    assert left.wipes == 1
