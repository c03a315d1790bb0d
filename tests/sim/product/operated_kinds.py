"""Kinds of runs of a cluster that the operator makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from gantry_operator.plan import growth
from sim.kernel.world import Violation
from sim.product import faults, guest_changes
from sim.product.bucket import BucketOptions
from sim.product.cluster import CLUSTER, GROUP
from sim.product.decided import Decided
from sim.product.front_groups import FrontGroups, FrontsWatch, has_store_port
from sim.product.guests import Guests
from sim.product.kinds import FAULTS_S, PEACE_S, ProductRun
from sim.product.operated import OperatedCluster
from sim.product.operated_watch import IDLE_S, OperatorWatch
from sim.product.owners import Owners
from sim.product.rereader import Rereader
from sim.product.scraper import Scraper
from sim.product.sharded import ShardedGuests
from sim.product.tier_watch import TierWatch
from sim.product.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from sim.product.people import People
    from sim.product.workload import Load

FRONTS_SHARE = 0.4  # of runs of groups
SLEEPS = 2
SIZES = 2


class OperatedRun(ProductRun):
    """A cluster that the operator makes, with faults of the API server and wishes of people."""

    onlookers = (Scraper,)
    cluster_class = OperatedCluster
    _cluster: OperatedCluster

    def settings(self, rng: Random) -> dict[str, Any]:
        """One operator or two that elect, and a mixture of faults."""
        kinds = [
            kind for kind in (*faults.KINDS, *OperatedCluster.more_faults) if rng.random() < 0.3
        ]
        self.kinds = kinds or ["kill-master", "operator-kill"]
        return {
            "operators": rng.choice([1, 1, 2]),
            "operator_settings": {"resync_interval_s": rng.choice([2.0, 5.0, 20.0])},
        }

    def act(self) -> None:
        """Raises Violation."""
        self._operators = OperatorWatch(self._cluster, self._watch)
        super().act()

    def rest(self) -> None:
        """Until all is as it is wished. Raises Violation."""
        operators = self._operators
        if not self._cluster.run(PEACE_S, until=lambda: not operators.unsettled()):
            raise Violation(f"the operator does not come to rest: {operators.unsettled()}")

    def settle(self, loads: Sequence[Load]) -> None:
        cluster, operators = self._cluster, self._operators
        self.rest()
        for load in loads:
            load.stop_sending()
        cluster.run(2)
        operators.forget()
        cluster.run(IDLE_S)
        if not operators.unsettled():
            operators.judge_idleness()


class OperatorRun(OperatedRun):
    """The same, and the quorum gets other sizes in peace, as it does among the faults.

    Clients are served meanwhile.
    """

    def settle(self, loads: Sequence[Load]) -> None:
        rng, cluster, watch = self.world.stream("sizes"), self._cluster, self._watch
        for _ in range(SIZES):
            self.rest()
            cluster.resize_quorum(
                rng.choice([size for size in (1, 3, 5) if size != cluster.quorum])
            )
            self.rest()
            acks = watch.acks
            if not cluster.run(PEACE_S, until=lambda before=acks: watch.acks > before + 3):
                raise Violation(f"nobody is served after a quorum became one of {cluster.quorum}")
            cluster.world.count(f"resized-{cluster.quorum}")
        super().settle(loads)


class SleepersRun(OperatedRun):
    """A group that is put to sleep and woken: among faults, and in peace.

    Asleep no broker runs and every volume is there. It wakes with all of them, also if fewer
    replicas are wished by then, and nothing that was acknowledged before is missing.
    """

    def disturb(self) -> None:
        """Sleep begins and ends at any moment of the faults."""
        rng, cluster = self.world.stream("sleepers"), self._cluster
        faults.plan(cluster, self.schedule)
        begins_s = rng.random() * FAULTS_S / 2
        lasts_s = rng.random() * (FAULTS_S - begins_s)
        cluster.run(begins_s)
        self._wish(asleep=True)
        cluster.run(lasts_s)
        self._wish(asleep=False)
        cluster.run(FAULTS_S - begins_s - lasts_s)

    def settle(self, loads: Sequence[Load]) -> None:
        for _ in range(SLEEPS):
            self._sleep_and_wake()
        super().settle(loads)

    def _sleep_and_wake(self) -> None:
        """Raises Violation."""
        rng, cluster = self.world.stream("sleepers"), self._cluster
        self.rest()
        volumes = {one["metadata"]["uid"] for one in cluster.objects("persistentvolumeclaims")}
        self._wish(asleep=True)
        if not cluster.run(PEACE_S, until=self._is_asleep):
            raise Violation(f"it does not fall asleep: {self._status()}")
        cluster.world.count("slept")
        left = {one["metadata"]["uid"] for one in cluster.objects("persistentvolumeclaims")}
        running = [node.name for node in cluster.brokers if node.is_running]
        if running or left != volumes:
            raise Violation(f"asleep {running} run, and {volumes - left} are gone")
        cluster.run(rng.choice([0, 3, 30]))
        if cluster.replicas > 3 and rng.random() < 0.5:
            cluster.replicas -= 1
            cluster.change("brokergroups", GROUP, {"spec": {"replicas": cluster.replicas}})
        self._wish(asleep=False)
        self.recover()

    def _wish(self, *, asleep: bool) -> None:
        self._operators.sleeps = True
        self._cluster.change("brokergroups", GROUP, {"spec": {"hibernated": asleep}})

    def recover(self) -> None:
        super().recover()
        self._operators.sleeps = False

    def _status(self) -> dict[str, Any]:
        return dict(self._cluster.resource("brokergroups", GROUP).get("status") or {})

    def _is_asleep(self) -> bool:
        return self._status().get("summary") == "Hibernated"


class OwnersRun(OperatedRun):
    """Topics, users and consumer groups that resources wish for, and others who change them.

    Controllers, operators and the API server fail meanwhile; in the end the metadata is what the
    resources wish for.
    """

    def loads(self) -> Sequence[Load]:
        """The clients, and people."""
        self._owners = Owners(self._cluster)
        return [Workload(self._cluster, self._watch, group=GROUP), self._owners]

    def act(self) -> None:
        """Raises Violation."""
        super().act()
        Decided(self._cluster).judge()

    def settle(self, loads: Sequence[Load]) -> None:
        owners = self._owners
        owners.stop_sending()
        self._cluster.run(4 * PEACE_S, until=lambda: owners.is_settled)
        owners.judge()
        super().settle(loads)


class GroupsRun(OperatedRun):
    """Broker groups that come and go beside the watched one, and in the end all that there is.

    Some runs have fronts; all have groups with shards beside the others.

    Some watched groups have a tier. The others are deleted with their quorum, and made anew on the
    volumes that are left: nothing that was acknowledged is missing.
    """

    def settings(self, rng: Random) -> dict[str, Any]:
        """A group with a tier, or one that is deleted and comes back."""
        tier = {
            "url": "s3://bucket",
            "lingerMs": rng.choice([100, 1_000]),
            "packBytes": rng.choice([32, 128]) * 1024,
            "localBytes": 1024**2,
            "credentialsSecret": {"name": "keys"},
        }
        named = super().settings(rng)
        self.kinds = [*(self.kinds or ()), "grow", "shrink"]
        if rng.random() < 0.4:
            named |= {
                "group_spec": {"tier": tier, "pipeline": {"audit": {"schedule": "0 3 * * *"}}},
                "bucket": BucketOptions.swarm(rng),
            }
        return named

    def play(self) -> None:
        """Raises Violation. File systems are waited for a shorter time."""
        with mock.patch.object(growth, "FILE_SYSTEM_WAIT_S", guest_changes.PENDING_S):
            super().play()

    def loads(self) -> Sequence[Load]:
        """The clients, one that reads everything again, and people."""
        cluster = self._cluster
        workload = Workload(cluster, self._watch, group=GROUP)
        self._people: list[People] = [Guests(cluster)]
        self._people_of_fronts: FrontGroups | None = None
        if self.world.stream("front-groups").random() < FRONTS_SHARE:
            self._people_of_fronts = FrontGroups(cluster, uploads=cluster.uploads)
            self._people.append(self._people_of_fronts)
        self._people.append(ShardedGuests(cluster))
        return [workload, Rereader(cluster, workload), *self._people]

    def act(self) -> None:
        """Raises Violation."""
        self._fronts = FrontsWatch(self._cluster, self._watch)
        self._tier: TierWatch | None = None
        self._cluster.begins.append(self._begin)
        super().act()
        if self._tier is not None:
            self._tier.judge(within_s=60)

    def _begin(self) -> None:
        cluster = self._cluster
        if cluster.uploads:
            uid = cluster.resource("brokergroups", GROUP)["metadata"]["uid"]
            self._tier = TierWatch(cluster.network.bucket, self._watch, CLUSTER, uid)

    def settle(self, loads: Sequence[Load]) -> None:
        cluster, people = self._cluster, self._people
        for one in people:
            one.stop_sending()
        cluster.run(2 * PEACE_S, until=lambda: all(one.is_settled for one in people))
        for one in people:
            one.judge()
        if not cluster.run(PEACE_S, until=lambda: not self._unsettled()):
            raise Violation(f"the operator does not come to rest: {self._unsettled()}")
        if self._tier is None:
            self._leave_and_return()
        elif not cluster.run(PEACE_S, until=self._is_told):
            raise Violation(f"T16: the tier ends at {self._tier.chain.end}: {self._status()}")
        super().settle(loads)

    def _unsettled(self) -> str:
        if has_store_port(self._cluster):
            return "there are no fronts, and brokers have a port for them"
        return self._operators.unsettled()

    def _status(self) -> dict[str, Any]:
        return dict(self._cluster.resource("brokergroups", GROUP)["status"].get("tier") or {})

    def _is_told(self) -> bool:
        """Whether the status says how far the tier has come. Raises Violation: it says more."""
        assert self._tier is not None
        told = self._status().get("committedOffset") or 0
        if told > self._tier.chain.end:
            raise Violation(f"the tier is said to reach {told}, and ends at {self._tier.chain.end}")
        return told > 0

    def _leave_and_return(self) -> None:
        """The quorum is deleted, waits for the group, and both come back on their volumes."""
        cluster, watch, operators = self._cluster, self._watch, self._operators
        claims = {one["metadata"]["uid"] for one in cluster.objects("persistentvolumeclaims")}
        last = self._people_of_fronts.one_that_stays() if self._people_of_fronts else None
        operators.all_goes = self._fronts.quorum_goes = True
        cluster.remove("controllergroups", CLUSTER)
        acks = watch.acks
        if not cluster.run(PEACE_S, until=lambda: watch.acks > acks + 3):
            raise Violation("a quorum whose deletion waits serves nobody")
        if not any(self._left()):
            raise Violation("a quorum is gone, and a group depended on it")
        cluster.remove("brokergroups", GROUP)
        if last is not None:
            last.quorum_goes()
        if not cluster.run(PEACE_S, until=lambda: not any(self._left())):
            raise Violation(f"both were deleted, and there are {self._left()}")
        left = {one["metadata"]["uid"] for one in cluster.objects("persistentvolumeclaims")}
        if left != claims:
            raise Violation(f"both were deleted, and of {len(claims)} claims {len(left)} are left")
        cluster.world.count("left")
        if last is not None:
            last.quorum_is_gone()
        cluster.declare()
        self.recover()
        if last is not None:
            last.quorum_is_back()
        operators.all_goes = self._fronts.quorum_goes = False

    def _left(self) -> list[list[str]]:
        """What there is of our resources, pods and StatefulSets; fronts may stay."""
        kinds = (("controllergroups", "mq.gantry.dev"), ("brokergroups", "mq.gantry.dev"))
        found = [
            [found["metadata"]["name"] for found in self._cluster.objects(plural, group)]
            for plural, group in (*kinds, ("statefulsets", "apps"), ("pods", ""))
        ]
        return [[name for name in some if "-front-" not in name] for some in found]
