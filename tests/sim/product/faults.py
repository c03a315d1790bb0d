"""What goes wrong in a run: a list of faults, drawn from the seed before the run begins.

A schedule is data. So a run can be repeated with a part of it, which is how a failing one is shrunk
(``shrink``), and printed as one line a fault. Which kinds are drawn, how often and how long is
swarmed per seed: a run without power cuts reaches states that a run with all kinds does not.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantry_broker.log.units import parse_unit
from gantry_protocol.errors import RecordError
from sim.kernel.world import MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from sim.product.cluster import Cluster, Node

NEWEST = 30  # records of a topic of which one rots
BACK_BYTES = (3_000, 5_000, 10_000)  # of the end; a rotten last record is for a person to judge
UNREADABLE = 0.3  # of records that rot
LONELY_MS = 400  # less than any member waits before it calls another one gone


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        at_ms: when, since the faults began.
        kind: a key of ``KINDS``.
        target: which node: its place among those that the kind may hit.
        for_ms: how long it lasts.
    """

    at_ms: int
    kind: str
    target: int
    for_ms: int

    def __str__(self) -> str:
        return f"{self.at_ms}:{self.kind}:{self.target}:{self.for_ms}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """What ``str`` made."""
        at_ms, kind, target, for_ms = text.split(":")
        return cls(int(at_ms), kind, int(target), int(for_ms))


def draw(rng: Random, for_ms: int, kinds: Sequence[str] | None = None) -> list[Fault]:
    """A schedule of ``for_ms``."""
    if kinds is None:
        kinds = [kind for kind in KINDS if rng.random() < 0.5] or ["kill"]
    gap_ms = rng.choice([300, 800, 2_000])
    longest_ms = rng.choice([200, 1_000, 4_000])
    faults, at_ms = [], 0
    while True:
        at_ms += int(rng.expovariate(1 / gap_ms))
        if at_ms >= for_ms:
            return faults
        kind = rng.choice(kinds)
        faults.append(Fault(at_ms, kind, rng.randrange(1_000), rng.randint(20, longest_ms)))


def plan(cluster: Cluster, faults: Sequence[Fault]) -> None:
    """Let them happen, beginning now."""
    for fault in faults:
        cluster.world.after(fault.at_ms * MS, strike, cluster, fault)


def strike(cluster: Cluster, fault: Fault) -> None:
    """Let one happen now, unless all faults have ended."""
    if cluster.is_at_peace:
        return
    cluster.world.note("fault", fault)
    cluster.world.count(f"fault.{fault.kind}")
    (KINDS | dict(cluster.more_faults))[fault.kind](cluster, fault)


def _any(cluster: Cluster, fault: Fault) -> Node:
    return cluster.nodes[fault.target % len(cluster.nodes)]


def _broker(cluster: Cluster, fault: Fault) -> Node:
    return cluster.brokers[fault.target % len(cluster.brokers)]


def _kill(cluster: Cluster, fault: Fault) -> None:
    node = _any(cluster, fault)
    node.kill()
    cluster.world.after(fault.for_ms * MS, node.boot)


def _kill_master(cluster: Cluster, fault: Fault) -> None:
    node = cluster.master()
    if node is not None:
        node.kill()
        cluster.world.after(fault.for_ms * MS, node.boot)


def _power_cut(cluster: Cluster, fault: Fault) -> None:
    _cut(cluster, _any(cluster, fault), fault.for_ms * MS)


def _power_cut_all(cluster: Cluster, fault: Fault) -> None:
    rng = cluster.world.stream(f"power/{fault.at_ms}")
    late_ms = rng.choice([10, 500, 4_000])  # who comes back first may have a quorum of its own
    for node in cluster.nodes:
        _cut(cluster, node, (fault.for_ms + rng.randrange(late_ms)) * MS)


def _cut(cluster: Cluster, node: Node, for_us: int) -> None:
    if node.machine.is_up:
        node.machine.cut_power()
        cluster.world.after(for_us, _restore, cluster, node)


def _restore(cluster: Cluster, node: Node) -> None:
    node.machine.restore_power()
    for other in cluster.nodes:
        if other.machine is node.machine:
            other.boot()


def _lonely_master(cluster: Cluster, fault: Fault) -> None:
    """Nothing that the master writes reaches another member any more, and then it dies.

    So it comes back with bytes that the others' next epoch does not have, and is cut.
    """
    node = cluster.master()
    if node is None:
        return
    here = node.machine.address
    pairs = [(here, other.machine.address) for other in cluster.brokers if other is not node]
    cluster.network.blocked.update(pairs)

    def end() -> None:
        node.kill()
        cluster.network.blocked.difference_update(pairs)
        cluster.world.after(fault.for_ms * MS, node.boot)

    cluster.world.after(LONELY_MS * MS, end)


def _terminate(cluster: Cluster, fault: Fault) -> None:
    _any(cluster, fault).terminate()


def _freeze(cluster: Cluster, fault: Fault) -> None:
    process = _any(cluster, fault).process
    if process is not None and not process.is_dead and not process.frozen:
        process.freeze()
        cluster.world.after(fault.for_ms * MS, process.thaw)


def _isolate(cluster: Cluster, fault: Fault) -> None:
    cluster.network.isolate(_any(cluster, fault).machine.address)
    cluster.world.after(fault.for_ms * MS, cluster.network.heal)


def _split(cluster: Cluster, fault: Fault) -> None:
    addresses = list(cluster.network.machines)
    rng = cluster.world.stream(f"split/{fault.at_ms}")
    rng.shuffle(addresses)
    cut = 1 + fault.target % (len(addresses) - 1)
    cluster.network.split([addresses[:cut], addresses[cut:]])
    cluster.world.after(fault.for_ms * MS, cluster.network.heal)


def _one_way(cluster: Cluster, fault: Fault) -> None:
    source = _any(cluster, fault).machine.address
    others = [other for other in cluster.network.machines if other != source]
    target = others[fault.target // 7 % len(others)]
    pair = (source, target) if fault.target % 2 else (target, source)
    cluster.network.blocked.add(pair)
    cluster.world.after(fault.for_ms * MS, cluster.network.blocked.discard, pair)


def _slow_disk(cluster: Cluster, fault: Fault) -> None:
    volume = _any(cluster, fault).machine.volume
    volume.slowness = 20 + fault.target % 80
    cluster.world.after(fault.for_ms * MS, setattr, volume, "slowness", 1)


def _hanging_disk(cluster: Cluster, fault: Fault) -> None:
    _any(cluster, fault).machine.volume.hang(fault.for_ms * MS)


def _full_disk(cluster: Cluster, fault: Fault) -> None:
    volume = _broker(cluster, fault).machine.volume
    volume.is_full = True
    cluster.world.after(fault.for_ms * MS, setattr, volume, "is_full", False)


def _failing_disk(cluster: Cluster, fault: Fault) -> None:
    _any(cluster, fault).machine.volume.failing_syncs = 1


def _wall_clock(cluster: Cluster, fault: Fault) -> None:
    machine = _any(cluster, fault).machine
    machine.wall_offset_s = (fault.target % 2 * 2 - 1) * fault.for_ms / 10
    cluster.world.note(machine.address, "wall-clock", machine.wall_offset_s)


def _slow_network(cluster: Cluster, fault: Fault) -> None:
    options = cluster.network.options
    options.spike_rate = 0.05
    options.spike_us = 300 * MS

    def end() -> None:
        options.spike_rate = 0.0

    cluster.world.after(fault.for_ms * MS, end)


def _wipe(cluster: Cluster, fault: Fault) -> None:
    """One volume is lost while the group stands well without it."""
    node = _broker(cluster, fault)
    if cluster.may_lose(node):
        cluster.world.count("wiped")
        node.kill()
        node.machine.volume.wipe()
        cluster.world.after(fault.for_ms * MS, node.boot)


def _flipped_bit(cluster: Cluster, fault: Fault) -> None:
    """A bit of the flushed log of one member rots, while the others are well.

    Its sum is on the disk, as it is half a second after the bit or so. Where a power cut takes the
    sum, a record that rotted looks like one that was never whole, and the volume is an older copy
    (docs/failure-modes.md): two faults in the same bytes, which a scenario plays.
    """
    _rot(cluster, fault)


def _bad_sector(cluster: Cluster, fault: Fault) -> None:
    """The same, and the disk says so to who reads it."""
    _rot(cluster, fault, unreadable=True)


def _rotten_tables(cluster: Cluster, fault: Fault) -> None:
    """The files of what a broker has derived from its log cannot be read any more."""
    stores = _broker(cluster, fault).machine.volume.stores
    for stored in stores.values():
        stored.is_rotten = True
        cluster.world.count("tables-rotten")


def _rotten_record(cluster: Cluster, fault: Fault) -> None:
    """A record rots that is one of the newest of its topic; each topic is as likely as another.

    So records that brokers write for themselves, which are few, rot as often as messages. It is
    the copy of the master, unless another member has rot already.
    """
    node = next((one for one in cluster.brokers if one.name in cluster.flipped), cluster.master())
    group = None if node is None else cluster.group_of(node)
    if node is None or group is None or group.core is None or not cluster.may_rot(node):
        return
    start, end = int(group._store.log.log_start), int(group.core.log.confirm)
    data, at = cluster.logs.read(node, cluster.groups[0], start, end), 0
    places: dict[str, list[tuple[int, int]]] = {}
    with suppress(RecordError):  # some of it has rotted before
        while at < len(data):
            unit = parse_unit(data, at, start + at, check_body=False)
            if unit.record is not None:
                places.setdefault(unit.record.topic, []).append((start + at, unit.size))
            at += unit.size
    if not places:
        return
    rng = cluster.world.stream(f"rot/{fault.at_ms}")
    topic = rng.choice(sorted(places))
    place, size = rng.choice(places[topic][-NEWEST:])
    place += rng.randrange(size)
    if cluster.logs.keep_sum(node, cluster.groups[0], place):
        cluster.world.note(node.name, "rots", topic)
        cluster.flip(node, place, unreadable=rng.random() < UNREADABLE)


def _rotten_tail(cluster: Cluster, fault: Fault) -> None:
    """The end of a member's log rots, as far as there are sums of it, and the member dies at once.

    So it is met by who recovers the log, before anybody can be asked for what it was.
    """
    rotten = next((one for one in cluster.brokers if one.name in cluster.flipped), None)
    node = rotten or _broker(cluster, fault)
    group = cluster.group_of(node)
    if group is None or group.core is None or not cluster.may_rot(node):
        return
    start, end = int(group._store.log.log_start), int(group.core.log.confirm)
    for back in BACK_BYTES:
        if end - back > start and cluster.logs.keep_sum(node, cluster.groups[0], end - back):
            cluster.flip(node, end - back, unreadable=bool(fault.target % 3 == 0))
            node.kill()
            cluster.world.after(fault.for_ms * MS, node.boot)
            return


def _rot(cluster: Cluster, fault: Fault, *, unreadable: bool = False) -> None:
    node = _broker(cluster, fault)
    group = cluster.group_of(node)
    if group is None or group.core is None or not cluster.may_rot(node):
        return
    start, end = int(group._store.log.log_start), int(group.core.log.confirm)
    if end > start:
        at = start + fault.target * 7_919 % (end - start)
        if cluster.logs.keep_sum(node, cluster.groups[0], at):
            cluster.flip(node, at, unreadable=unreadable)


KINDS: dict[str, Callable[[Cluster, Fault], None]] = {
    "kill": _kill,
    "kill-master": _kill_master,
    "power-cut": _power_cut,
    "power-cut-all": _power_cut_all,
    "terminate": _terminate,
    "freeze": _freeze,
    "isolate": _isolate,
    "split": _split,
    "one-way": _one_way,
    "slow-disk": _slow_disk,
    "hanging-disk": _hanging_disk,
    "full-disk": _full_disk,
    "failing-disk": _failing_disk,
    "wall-clock": _wall_clock,
    "slow-network": _slow_network,
    "wipe": _wipe,
    "flipped-bit": _flipped_bit,
}
LONELY_MASTERS = {"lonely-master": _lonely_master}  # of kinds of runs that name it
BAD_SECTORS = {  # of kinds of runs whose logs are scrubbed
    "bad-sector": _bad_sector,
    "rotten-tables": _rotten_tables,
    "rotten-record": _rotten_record,
    "rotten-tail": _rotten_tail,
}


def shrink(
    faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool], *, runs: int = 40
) -> list[Fault]:
    """A short part of ``faults`` with which ``fails`` still holds (delta debugging).

    Args:
        faults: with which it holds.
        fails: runs the world once.
        runs: of it, at most.
    """
    found, pieces = list(faults), 2
    while len(found) > 1 and runs > 0:
        size = max(1, len(found) // pieces)
        for start in range(0, len(found), size):
            rest = found[:start] + found[start + size :]
            runs -= 1
            if rest and fails(rest):
                found, pieces = rest, max(2, pieces - 1)
                break
            if runs <= 0:
                break
        else:
            if size == 1:
                break
            pieces *= 2
    return found
