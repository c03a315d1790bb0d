"""Kinds of runs: a cluster, its clients, a schedule of faults, peace, and what it owes then."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

from gantry_broker.clients import consumers, offset_age, offsets
from gantry_broker.clients.lite import expiring
from gantry_broker.clients.lite import rules as lite_rules
from gantry_broker.clients.pop import book
from gantry_controller.liveness.core.floors import RAISE_EVERY_S
from sim.kernel.disk import DiskOptions
from sim.kernel.network import NetworkOptions
from sim.kernel.world import MS, SECOND, Violation, World
from sim.product import (
    ages,
    batches,
    faults,
    lite_visits,
    mapped_later,
    parked,
    poppers,
    readers,
)
from sim.product.bad_poppers import BadPoppers
from sim.product.bad_senders import BadSenders
from sim.product.callers import Callers
from sim.product.cluster import GROUP, SEGMENT_BYTES, Cluster, Simulation, show_logs
from sim.product.collector import ENDPOINT, Collected
from sim.product.commits import Commits
from sim.product.consents import Consents
from sim.product.damages import Damages
from sim.product.decided import judge_replica_steps, judge_steps
from sim.product.everywhere import Everywhere
from sim.product.growing import Growing
from sim.product.keyless import Keyless
from sim.product.kube import aiohttp_connects
from sim.product.lite_choices import LiteChoices
from sim.product.lites import Lites
from sim.product.lives import Lives
from sim.product.logs import inspect_damage, verify
from sim.product.moved_poppers import MovedPoppers, Mover
from sim.product.orderly import Orderly, OrderlyMapped
from sim.product.pop_modes import PopModes
from sim.product.questions import Questions
from sim.product.registers import Registers
from sim.product.rereader import Rereader
from sim.product.retain_watch import RetainWatch
from sim.product.scraper import Scraper
from sim.product.seats import Seats, SeatsCluster
from sim.product.snapshotter import Snapshotter
from sim.product.strangers import Strangers
from sim.product.watch import Watch, Watches
from sim.product.wishes import Wishes
from sim.product.workers import WORKERS, Workers
from sim.product.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from sim.product.faults import Fault
    from sim.product.workload import Load

BEGIN_S = 15  # until the group stands
FAULTS_S = 12
PEACE_S = 90  # until everything stands again
SETTLE_S = 30  # until clients have got everything
RESTORES = 2
LONELY = 4  # masters whose last bytes nobody else gets
POWER_CUTS = ("power-cut", "power-cut-all", "power-cut-all", "kill", "slow-disk")
ALONE_MAX_MS, APART_MAX_MS = 8_000, 2_000
HEARTBEAT_SURELY_S = 1.5
RAISED_SURELY_S = RAISE_EVERY_S + 2.0


def options_of(rng: Random) -> dict[str, Any]:
    """The cluster that a seed draws."""
    low = rng.choice([50, 200, 1_000])
    return {
        "network": NetworkOptions(latency_us=(low, low * rng.choice([2, 10]))),
        "disk": DiskOptions(
            sync_us=(low := rng.choice([50, 300, 2_000]), low * rng.choice([1, 4])),
            stall_rate=rng.choice([0.0, 0.0, 0.01]),
            stall_us=rng.choice([50, 400]) * MS,
        ),
        "drift": rng.choice([0.0, 0.005, 0.02]),
    }


class ProductRun:
    """The run of one seed, not yet played: a broker group, and faults of all kinds.

    Args:
        seed: names it.
        schedule: of faults; the seed's own without one.
        logs: level of the product's logs that are printed; None prints nothing.
        kinds: of faults that may be drawn.
        named: more arguments of the cluster.

    Attributes:
        kinds: of faults that runs like this draw from; None for all.
        onlookers: who comes by all the time.
        settle_s: how long clients may take to get everything.
    """

    kinds: Sequence[str] | None = None
    onlookers: Sequence[Callable[[Cluster], Scraper | Strangers]] = ()
    settle_s = SETTLE_S
    cluster_class: type[Cluster] = Cluster

    def __init__(
        self,
        seed: int,
        schedule: Sequence[Fault] | None = None,
        *,
        logs: str | None = None,
        kinds: Sequence[str] | None = None,
        **named: object,
    ) -> None:
        self.world = World(seed)
        rng = self.world.stream("run")
        self._named = {**options_of(rng), **self.settings(rng), **named}
        self._named["disk"].cold_rate = self.world.stream("cold").choice([0.0, 0.0, 0.05, 0.5])
        drawn = faults.draw(rng, FAULTS_S * 1000, kinds or self.kinds)
        self.schedule = drawn if schedule is None else list(schedule)
        self.acks = 0
        self._logs = logs

    def settings(self, rng: Random) -> dict[str, Any]:
        """What this kind of run draws for the cluster, beside ``options_of``."""
        return {}

    def play(self) -> None:
        """Faults, then peace, and what is owed then.

        Raises:
            Violation: something was so that must never be so; its text names seed and time.
        """
        with Simulation(self.world, self.cluster_class, **self._named) as cluster:
            if self._logs:
                show_logs(cluster, self._logs)
                cluster.world.trace_to = lambda line: print(line, file=sys.stderr)
            self._cluster, self._watch = cluster, Watch(cluster)
            try:
                self.act()
            except Violation as violation:
                name = f"seed {self.world.seed}"
                if name in str(violation):
                    raise
                raise Violation(f"{name}: {violation}") from violation
            self.acks = self._watch.acks

    def loads(self) -> Sequence[Load]:
        """The clients."""
        return [Workload(self._cluster, self._watch, group=GROUP)]

    def act(self) -> None:
        """Raises Violation."""
        cluster, watch = self._cluster, self._watch
        loads = self.loads()
        cluster.boot()
        for onlooker in self.onlookers:
            onlooker(cluster).start()
        for load in loads:
            load.start()
        if not cluster.run(BEGIN_S, until=lambda: cluster.is_whole and watch.acks > 3):
            raise Violation(f"the group does not come to stand: {_state(cluster)}")
        self.disturb()
        cluster.make_peace()
        self.recover()
        self.settle(loads)
        for load in loads:
            load.stop_sending()
        cluster.run(self.settle_s, until=lambda: all(load.is_settled for load in loads))
        for load in loads:
            load.judge()
        watch.logs.judge()
        judge_replica_steps(cluster, self.world.stream("steps"))
        verify(cluster)

    def disturb(self) -> None:
        """Let the faults happen."""
        faults.plan(self._cluster, self.schedule)
        self._cluster.run(FAULTS_S)

    def recover(self) -> None:
        """Until everybody is there and clients are answered. Raises Violation."""
        cluster, watch = self._cluster, self._watch
        acks = watch.acks
        if not cluster.run(PEACE_S, until=lambda: cluster.is_whole and watch.acks > acks + 3):
            raise Violation(f"no progress after the faults: {_state(cluster)}")

    def settle(self, loads: Sequence[Load]) -> None:
        """What this kind of run is owed beside progress, while clients still send."""


class _LonelyCluster(Cluster):
    """Its masters write what nobody else gets."""

    more_faults = faults.LONELY_MASTERS


class PowerRun(ProductRun):
    """The same, and machines lose their power again and again, most of all at once."""

    cluster_class = _LonelyCluster
    kinds = (*POWER_CUTS, "lonely-master")

    def __init__(self, seed: int, schedule: Sequence[Fault] | None = None, **named: Any) -> None:
        """Some masters are lonely at least."""
        super().__init__(seed, schedule, **named)
        if schedule is None:
            rng = self.world.stream("lonely")
            lonely = [
                faults.Fault(at_ms, "lonely-master", 0, rng.randint(100, 1_000))
                for at_ms in sorted(rng.sample(range(200, FAULTS_S * 1_000), LONELY))
            ]
            self.schedule = sorted([*self.schedule, *lonely], key=lambda fault: fault.at_ms)


class RestoredRun(ProductRun):
    """After an outage of all brokers one comes back with an older volume.

    A copy of one volume is taken while clients send, and put back once all brokers are without
    power, in some rounds the controllers as well. It is started first, alone for a while, or among
    the others. It is as old as the promise says (``liveness.core.floors``): taken before the last
    time that a floor was raised for certain.
    """

    def __init__(self, seed: int, schedule: Sequence[Fault] | None = None, **named: Any) -> None:
        super().__init__(seed, schedule or (), **named)

    def disturb(self) -> None:
        """Rounds, each to the end. Raises Violation."""
        rng = self.world.stream("restored")
        for _ in range(RESTORES):
            self._restore(rng)
            self.recover()

    def _restore(self, rng: Random) -> None:
        cluster, watch = self._cluster, self._watch
        victim = rng.choice(cluster.brokers)
        victim.kill()
        copy = victim.machine.volume.copied()
        victim.boot()
        self.recover()
        controllers_too = rng.random() < 0.5
        acks = watch.acks
        cluster.run(PEACE_S, until=lambda: watch.acks > acks + 3)
        cluster.run(RAISED_SURELY_S if controllers_too else HEARTBEAT_SURELY_S)
        down = [*cluster.brokers, *(cluster.controllers if controllers_too else ())]
        for node in down:
            node.machine.cut_power()
            node.machine.restore_power()
        victim.machine.volume.put_back(copy)
        cluster.put_back[victim.name] = watch.logs.epochs
        alone_ms = rng.choice([0, rng.randint(0, ALONE_MAX_MS)])
        for node in down:
            late_ms = rng.randint(0, APART_MAX_MS) + alone_ms
            if node in cluster.controllers:
                late_ms = rng.randint(1, 300)
            cluster.world.after((0 if node is victim else late_ms) * MS, node.boot)
        cluster.world.count("restored")


class QuorumRun(ProductRun):
    """Controllers alone, whose administrator declares groups: what it was told stays so."""

    kinds = (*POWER_CUTS, "isolate", "split", "freeze", "one-way", "terminate", "slow-network")

    def settings(self, rng: Random) -> dict[str, Any]:
        """No broker, and disks that take their time: most faults meet a sync under way."""
        low = rng.choice([500, 5_000, 40_000])
        return {
            "brokers": 0,
            "controllers": rng.choice([3, 3, 5]),
            "disk": DiskOptions(sync_us=(low, 3 * low)),
        }

    def act(self) -> None:
        """Raises Violation."""
        cluster, watch = self._cluster, self._watch
        cluster.boot()
        wishes = Wishes(cluster, watch)
        wishes.start()
        Strangers(cluster).start()
        more = self.administrators()
        for one in more:
            one.start()
        Scraper(cluster).start()
        if not cluster.run(BEGIN_S, until=lambda: watch.acks > 3):
            raise Violation("the quorum does not come to stand")
        faults.plan(cluster, self.schedule)
        cluster.run(FAULTS_S)
        cluster.make_peace()
        acks = watch.acks
        if not cluster.run(PEACE_S, until=lambda: watch.acks > acks + 10):
            raise Violation("no progress after the faults")
        wishes.stop()
        for one in more:
            one.stop_sending()
        cluster.run(
            SETTLE_S, until=lambda: cluster.has_one_state and all(one.is_settled for one in more)
        )
        wishes.judge()
        for one in more:
            one.judge()
        judge_steps(cluster, self.world.stream("steps"))

    def administrators(self) -> Sequence[Load]:
        """Who else asks the controllers for something."""
        return []


class AdminRun(QuorumRun):
    """Administrators who write everything that a quorum holds, or are refused without its key."""

    def settings(self, rng: Random) -> dict[str, Any]:
        """Snapshots are taken and sent, so that all of it goes into them."""
        small = {"snapshot_log_bytes": 64 * 1024, "snapshot_margin_entries": rng.choice([0, 50])}
        self._keyed = rng.random() < 0.25
        return {**super().settings(rng), "keyed": self._keyed, "controller_settings": small}

    def administrators(self) -> Sequence[Load]:
        """Of everything."""
        return [Registers(self._cluster, keyed=self._keyed)]


class RejoinRun(QuorumRun):
    """Controllers whose logs rot, one at a time, and a person who starts them so that they come."""

    def administrators(self) -> Sequence[Load]:
        """One."""
        return [Damages(self._cluster)]


class MembersRun(QuorumRun):
    """An administrator replaces controllers, and moves leadership and leases, while they fail."""

    cluster_class = SeatsCluster
    _cluster: SeatsCluster

    def settings(self, rng: Random) -> dict[str, Any]:
        """Three, and spare ones, that may need a snapshot to begin with."""
        small = {"snapshot_log_bytes": 64 * 1024, "snapshot_margin_entries": rng.choice([0, 500])}
        return {**super().settings(rng), "controllers": 3, "controller_settings": small}

    def administrators(self) -> Sequence[Load]:
        """One, and one who has snapshots taken, so that newcomers need one."""
        return [Seats(self._cluster), Snapshotter(self._cluster)]


def _some(rng: Random, kinds: Iterable[str]) -> list[str]:
    """About half of these kinds of faults."""
    return [kind for kind in sorted(kinds) if rng.random() < 0.5] or ["kill"]


class _RottingCluster(Cluster):
    """Its disks have sectors that cannot be read any more."""

    more_faults = faults.BAD_SECTORS


class RetainRun(ProductRun):
    """Brokers that keep little of their log, and let rot be found; some are tight on their disk."""

    onlookers = (Strangers,)
    cluster_class = _RottingCluster

    def settings(self, rng: Random) -> dict[str, Any]:
        """By size, by age, or both."""
        self._bytes = rng.choice([None, 4 * SEGMENT_BYTES, 8 * SEGMENT_BYTES])
        self._seconds = rng.choice([3, 6]) if self._bytes is None or rng.random() < 0.3 else None
        self._gives_way = rng.random() < 0.3
        self.kinds = _some(rng, faults.KINDS.keys() - {"flipped-bit"})
        rots = max(2, len(self.kinds) // rng.choice([1, 2, 4]))
        self.kinds += ["flipped-bit"] * (rots - rots // 2) + ["bad-sector"] * (rots // 2)
        self.kinds += ["rotten-tables"] * 2
        return {
            "broker_settings": {
                "retention_bytes": self._bytes or 0,
                "retention_hours": (self._seconds or 0) / 3600,
                "retention_when_full": "delete" if self._gives_way else "refuse",
                "disk_spare_bytes": 8 * 1024**3 if self._gives_way else 0,
                "log_scrub_hours": rng.choice([1, 5]) / 3600,
            }
        }

    def loads(self) -> Sequence[Load]:
        """The clients, and one that comes late."""
        workload = Workload(self._cluster, self._watch)
        return [workload, Rereader(self._cluster, workload, expires=True)]

    def act(self) -> None:
        """Raises Violation."""
        kept_us = None if self._seconds is None else self._seconds * SECOND
        self._retained = RetainWatch(self._watch, self._bytes, kept_us, gives_way=self._gives_way)
        super().act()
        inspect_damage(self._cluster)

    def settle(self, loads: Sequence[Load]) -> None:
        retained = self._retained
        if not self._cluster.run(PEACE_S, until=lambda: retained.is_bounded and retained.is_sound):
            raise Violation(f"kept: bounded {retained.is_bounded}, without rot {retained.is_sound}")


class DoorRun(ProductRun):
    """Clients come through doors, which are killed and frozen like everybody else, and trace."""

    onlookers = (Scraper,)

    def settings(self, rng: Random) -> dict[str, Any]:
        """A door beside each broker."""
        ratio = self.world.stream("tracing").choice([1.0, 0.3])
        traced = {"tracing_endpoint": ENDPOINT}
        return {
            "doors": True,
            "controller_settings": traced,
            "broker_settings": {**traced, "tracing_ratio": ratio},
        }

    def play(self) -> None:
        """Raises Violation. Processes reach the collector."""
        with aiohttp_connects():
            super().play()

    def loads(self) -> Sequence[Load]:
        """Some send without a unique key."""
        workload = Workload(self._cluster, self._watch, group=GROUP)
        keyless = Keyless(self._cluster, self._watch)
        return [workload, keyless, Collected(self._cluster, workload)]


class StoreRun(ProductRun):
    """Fronts serve clients, from the stores of brokers where they can."""

    onlookers = (Scraper, Strangers)

    def settings(self, rng: Random) -> dict[str, Any]:
        """One or two of them."""
        return {"fronts": rng.choice([1, 2, 2])}


class TracedRun(StoreRun):
    """The same with fronts, brokers and controllers that trace."""

    def settings(self, rng: Random) -> dict[str, Any]:
        """A front's ratio counts for what comes by it."""
        ratios = self.world.stream("tracing").sample([1.0, 0.3, 0.0], 2)
        traced = {"tracing_endpoint": ENDPOINT}
        return {
            **super().settings(rng),
            "controller_settings": traced,
            "broker_settings": {**traced, "tracing_ratio": ratios[0]},
            "front_settings": {**traced, "tracing_ratio": ratios[1]},
        }

    def play(self) -> None:
        """Raises Violation. Processes reach the collector."""
        with aiohttp_connects():
            super().play()

    def loads(self) -> Sequence[Load]:
        """Who traces, besides."""
        workload = Workload(self._cluster, self._watch, group=GROUP)
        return [workload, Collected(self._cluster, workload)]


class RichRun(ProductRun):
    """Clients use all that a broker serves: parked messages, offsets, topics, locks."""

    def settings(self, rng: Random) -> dict[str, Any]:
        """Served from a broker's own disk, or through a door, or through fronts."""
        place = rng.choice([{}, {"doors": True}, {"fronts": 1}])
        settings = dict(parked.SETTINGS)
        self._gives_up = self.world.stream("given-up").random() < 0.5
        if self._gives_up:
            settings["transaction_check_max"] = parked.CHECKS_UNTIL_GIVEN_UP
        return {**place, "broker_settings": settings}

    def loads(self) -> Sequence[Load]:
        """Some of everything."""
        cluster = self._cluster
        few = Workload(cluster, self._watch, producers=1)
        later = parked.Parked(cluster, self._watch, gives_up=self._gives_up)
        more = [Commits(cluster), Lives(cluster), later, BadSenders(cluster)]
        return [few, *more, Orderly(cluster)]


class ConsumersRun(ProductRun):
    """Consumer groups with members that fail and leave, and administrators who move them."""

    onlookers = (Scraper, Strangers)

    def settings(self, rng: Random) -> dict[str, Any]:
        """Served from a broker's own disk, or through a door, or through fronts."""
        place = rng.choice([{}, {}, {"doors": True}, {"fronts": 1}])
        return {**place, "broker_settings": dict(parked.SETTINGS)}

    def play(self) -> None:
        """Raises Violation. Masters compare what they know of members all the time."""
        with mock.patch.object(consumers, "VERIFY_EVERY_S", 3.0):
            super().play()

    def loads(self) -> Sequence[Load]:
        """Few messages, many questions."""
        cluster, watch = self._cluster, self._watch
        few = Workload(cluster, watch, producers=1)
        workers = Workers(cluster, watch, parked.LEVELS_MS[0])
        asked = Questions(cluster, watch, group=WORKERS, member="worker-0")
        more = [] if cluster.fronts else [Orderly(cluster)]
        return [few, workers, asked, Callers(cluster), *more]


class ReadersRun(ProductRun):
    """Consumers that read one topic at all members, while its readers change."""

    onlookers = (Scraper,)

    def settings(self, rng: Random) -> dict[str, Any]:
        """Served from a broker's own disk, or through a door."""
        return {"doors": rng.random() < 0.3}

    def loads(self) -> Sequence[Load]:
        """Messages, and many who want each of them."""
        cluster, watch = self._cluster, self._watch
        some = Workload(cluster, watch, producers=2, keys=readers.number)
        return [some, readers.Readers(cluster, watch, some)]


class FrontReadersRun(ReadersRun):
    """The same through fronts, which read at all members themselves."""

    def settings(self, rng: Random) -> dict[str, Any]:
        """One or two of them."""
        return {"fronts": rng.choice([1, 2])}


class PopsRun(ProductRun):
    """Consumers by POP, who acknowledge, hide and forget, under all faults."""

    onlookers = (Scraper, Strangers)

    def settings(self, rng: Random) -> dict[str, Any]:
        """Served from a broker's own disk, or through a door, or through fronts; it may be full."""
        self.kinds = [*_some(rng, faults.KINDS), "full-disk"]
        return rng.choice([{}, {}, {"doors": True}, {"fronts": 1}])

    def play(self) -> None:
        """Raises Violation. Tables of what is in flight come all the time, whatever is popped."""
        with mock.patch.object(book, "TABLE_INTERVAL_S", 4.0):
            super().play()

    def loads(self) -> Sequence[Load]:
        """Few messages beside."""
        cluster, watch = self._cluster, self._watch
        modes = PopModes(cluster, poppers.TOPIC, poppers.QUEUES)
        bad = BadPoppers(cluster, poppers.TOPIC, poppers.QUEUES)
        return [Workload(cluster, watch, producers=1), poppers.Poppers(cluster, watch), modes, bad]


class LitesRun(ProductRun):
    """Clients of lite topics, who subscribe, leave, acknowledge and forget, under all faults."""

    onlookers = (Scraper, Strangers)
    settle_s = 120  # by the clock of a master that may be far behind the one that stored

    def settings(self, rng: Random) -> dict[str, Any]:
        """Served from a broker's own disk, or through a door; it may be full."""
        self.kinds = [*_some(rng, faults.KINDS), "full-disk"]
        return {"doors": rng.random() < 0.3}

    def play(self) -> None:
        """Raises Violation. Brokers count shorter minutes meanwhile."""
        with (
            mock.patch.object(lite_rules, "_MINUTE_MS", lite_visits.MINUTE_MS),
            mock.patch.object(expiring, "SWEEP_S", lite_visits.SWEEP_S),
        ):
            super().play()

    def loads(self) -> Sequence[Load]:
        """Few messages beside."""
        cluster, watch = self._cluster, self._watch
        lites = Lites(cluster, watch)
        visits = lite_visits.LiteVisits(cluster, watch, lites)
        few = Workload(cluster, watch, producers=1)
        return [few, lites, visits, LiteChoices(cluster, watch)]


class BatchesRun(ProductRun):
    """Tenants that send batches, one of them against a quota, and an administrator of groups."""

    def settings(self, rng: Random) -> dict[str, Any]:
        """Served from a broker's own disk, or through a door."""
        settings = {**batches.SETTINGS, **ages.SETTINGS}
        return {"doors": rng.random() < 0.3, "broker_settings": settings}

    def play(self) -> None:
        """Raises Violation. Brokers count shorter hours meanwhile."""
        with mock.patch.object(offset_age, "HOUR_S", ages.HOUR_S):
            super().play()

    def loads(self) -> Sequence[Load]:
        """Few single messages."""
        cluster, watch = self._cluster, self._watch
        few = Workload(cluster, watch, producers=1)
        return [few, batches.Batches(cluster, watch), Consents(cluster), ages.Ages(cluster)]


class ManyRun(ProductRun):
    """Brokers that are in several groups, and show the quorum's key."""

    onlookers = (Scraper, Strangers)

    def settings(self, rng: Random) -> dict[str, Any]:
        """Two or more groups in each process."""
        return {"groups": [f"g-{number}" for number in range(rng.randint(2, 5))], "keyed": True}

    def loads(self) -> Sequence[Load]:
        """Producers that send to all of them, and consumers that read from all."""
        return [Workload(self._cluster, Watches(self._watch)), Everywhere(self._cluster)]


class QueuesRun(ProductRun):
    """A mapped topic whose queues move between broker groups, under load and all faults."""

    onlookers = (Scraper, Strangers)
    settle_s = 60  # a timer waits for 10 s where its queue is not to be had
    fronts = 0.5  # of the seeds

    def settings(self, rng: Random) -> dict[str, Any]:
        """Two or three groups of one to three members; clients may come by a front."""
        members = rng.choice([1, 2, 3, 3])
        return {
            "groups": [f"g-{number}" for number in range(rng.randint(2, 3))],
            "brokers": members,
            "min_in_sync": min(members, 2),
            "keyed": True,
            "fronts": int(self.world.stream("way").random() < self.fronts),
            "broker_settings": {"delay_levels": mapped_later.DELAY_LEVELS},
        }

    def loads(self) -> Sequence[Load]:
        """Few plain messages."""
        cluster = self._cluster
        few = Workload(cluster, Watches(self._watch), producers=1)
        return [few, mapped_later.MappedLater(cluster), OrderlyMapped(cluster)]


class MovedPopsRun(QueuesRun):
    """Consumers by POP of a mapped topic whose queues move, under all faults."""

    settle_s = 120  # in order, one answer after the other, from whichever group is asked
    fronts = 0.0

    def play(self) -> None:
        """Raises Violation. No queue is so young that a new group begins with what is there."""
        with mock.patch.object(offsets, "_YOUNG_QUEUE_BYTES", -1):
            super().play()

    def loads(self) -> Sequence[Load]:
        """Few plain messages."""
        cluster = self._cluster
        watch, mover = Watches(self._watch), Mover(cluster)
        few = Workload(cluster, watch, producers=1)
        return [few, mover, MovedPoppers(cluster, watch, mover)]


class GrowingRun(QueuesRun):
    """A broker group that comes and one that goes, under load and all faults."""

    settle_s = 120
    fronts = 0.0

    def settings(self, rng: Random) -> dict[str, Any]:
        """The last group is not there yet."""
        drawn = super().settings(rng)
        return {**drawn, "late": drawn["groups"][-1:]}

    def loads(self) -> Sequence[Load]:
        """Few plain messages."""
        cluster = self._cluster
        others = [
            Workload(cluster, Watches(self._watch), producers=1),
            OrderlyMapped(cluster),
        ]
        return [*others, Growing(cluster, others)]


class SnapshotRun(QuorumRun):
    """Controllers that take snapshots all the time, and show each other the quorum's key."""

    def settings(self, rng: Random) -> dict[str, Any]:
        """The smallest snapshots."""
        small = {"snapshot_log_bytes": 64 * 1024, "snapshot_margin_entries": rng.choice([0, 50])}
        return {**super().settings(rng), "keyed": True, "controller_settings": small}

    def administrators(self) -> Sequence[Load]:
        """One who asks for them, too."""
        return [Snapshotter(self._cluster)]


def _state(cluster: Cluster) -> str:
    said = []
    for node in cluster.nodes:
        word = "runs" if node.is_running else f"down ({node.exits[-1:]})"
        group = cluster.group_of(node) if node in cluster.brokers else None
        if group is not None and group.core is not None:
            serving = group.core.serving
            word += f" epoch {group.core.epoch} confirm {group.core.log.confirm}"
            word += f" end {group.core.log.end} in-sync {serving.in_sync if serving else '-'}"
            word += f" stuck {group.stuck}" if group.stuck else ""
        said.append(f"{node.name} {word}")
    return "; ".join(said)
