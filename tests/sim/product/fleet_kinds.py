"""Runs of a fleet: several groups, two operators, a new release of them, and the end of it all.

========  ========================================================================================
lease     who takes pods or changes StatefulSets holds the Lease; whoever loses it ends before
          another one has it, and whoever is told to stop leaves it to the other at once
turns     no more groups than asked for roll to a new default image at a time, nor to a change of
          all of them at once, whichever operator leads; in the end all have it
gap       such a roll keeps no client waiting for long
farewell  what waits for the operator alone is gone, although it is told to stop meanwhile: what
          was deleted just before, or all of the namespace that it runs in
========  ========================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_operator import names
from sim.kernel.world import MS, SECOND, Violation
from sim.product import kube
from sim.product.cluster import CLUSTER, GROUP, SEGMENT_BYTES
from sim.product.kinds import PEACE_S
from sim.product.operated import API
from sim.product.operated_faults import API_FAULTS, NAMESPACE, OPERATOR_FAULTS
from sim.product.operated_kinds import OperatedRun
from sim.product.operated_watch import is_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from sim.product.cluster import Node
    from sim.product.operated import OperatedCluster
    from sim.product.watch import Watch
    from sim.product.workload import Load

OLD, NEW = "gantry:1", "gantry:2"
OTHERS = ("other-1", "other-2")
GIVEN_UP_S = 5  # until another operator has a Lease that was given up
EXPIRED_S = 45  # until another one has a Lease that nobody renews, even if it starts anew
CHANGED_US = 3 * SECOND  # requests of the last holder may still be under way
GAP_MAX_US = 5 * SECOND
COMMIT = "commit"  # an annotation of pods
ALTERED = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}}


class FleetWatch:
    """Rules ``lease`` and ``turns``; see the module.

    Args:
        at_a_time: how many groups may roll at a time.

    Attributes:
        is_changing: all groups are to be changed.
    """

    def __init__(self, cluster: OperatedCluster, watch: Watch, at_a_time: int) -> None:
        self._cluster = cluster
        self._at_a_time = at_a_time
        self._holder = ("", 0)  # who holds the Lease, and since when
        self._rolling: set[str] = set()  # StatefulSets that have the new image and were never well
        self._rolled: set[str] = set()
        self._found = ""
        self.is_changing = False
        cluster.deeds.append(self._deed)
        watch.more.append(self._look)

    @property
    def lease(self) -> tuple[str, str]:
        """Who holds the Lease, and when it was renewed; empty if nobody does."""
        for lease in self._cluster.objects("leases", "coordination.k8s.io"):
            return lease["spec"].get("holderIdentity") or "", lease["spec"].get("renewTime") or ""
        return "", ""

    @property
    def holder(self) -> Node | None:
        """The operator that holds the Lease, in this life of it or an earlier one."""
        identity, _ = self.lease
        found = (one for one in self._cluster.operators if identity.startswith(f"{one.name}_"))
        return next(found, None)

    @property
    def all_have_it(self) -> bool:
        """Whether every StatefulSet has the new image, and is well."""
        found = self._cluster.objects("statefulsets", "apps")
        return all(_image(one) == NEW and self._is_well(one) for one in found)

    def _look(self) -> None:
        if self._cluster.registry is None:
            return
        if self._found:
            raise Violation(self._found)
        holder = self.holder
        name = holder.name if holder is not None else ""
        if name != self._holder[0]:
            self._holder = (name, self._cluster.world.now_us)
        fresh = []
        for found in self._cluster.objects("statefulsets", "apps"):
            statefulset = found["metadata"]["name"]
            if _image(found) != NEW or statefulset in self._rolled:
                continue
            if statefulset not in self._rolling:
                fresh.append(statefulset)
            elif self._is_well(found):
                self._rolling.discard(statefulset)
                self._rolled.add(statefulset)
        self._rolling.update(fresh)
        if fresh and len(self._rolling) > self._at_a_time:
            rolling = sorted(self._rolling)
            raise Violation(f"turns: {rolling} roll, and {self._at_a_time} may at a time")
        changing = [name for name, is_well in self.changed.items() if not is_well]
        if self.is_changing and len(changing) > self._at_a_time:
            raise Violation(f"turns: {changing} change, and {self._at_a_time} may at a time")

    @property
    def changed(self) -> dict[str, bool]:
        """StatefulSets of brokers that have the change of all groups, and whether each is well."""
        return {
            one["metadata"]["name"]: self._is_well(one)
            for one in self._cluster.objects("statefulsets", "apps")
            if COMMIT in (one["spec"]["template"]["metadata"].get("annotations") or {})
        }

    def _is_well(self, statefulset: dict[str, Any]) -> bool:
        meta, status = statefulset["metadata"], statefulset.get("status") or {}
        if status.get("observedGeneration") != meta["generation"]:
            return False
        pods = [
            pod
            for pod in self._cluster.objects("pods")
            if pod["metadata"]["name"].rpartition("-")[0] == meta["name"]
        ]
        return len(pods) == statefulset["spec"]["replicas"] and all(
            is_ready(pod)
            and pod["metadata"]["labels"].get(names.LABEL_REVISION) == status.get("updateRevision")
            for pod in pods
        )

    def _deed(self, verb: str, plural: str, name: str) -> None:
        takes = verb == "delete" and plural == "pods"
        if not (takes or (plural == "statefulsets" and verb not in ("get", "list", "watch"))):
            return
        holder = self.holder
        settled = self._cluster.world.now_us - self._holder[1] > CHANGED_US
        if holder is None or not settled or holder.name != self._holder[0]:
            return
        if self._cluster.asker != holder.machine.address:
            self._found = (
                f"lease: {self._cluster.asker} does {verb} {plural} {name}, and {holder.name} "
                "holds the Lease"
            )


class FleetRun(OperatedRun):
    """Several groups, two operators, a new release of them, and the end of it all."""

    def settings(self, rng: Random) -> dict[str, Any]:
        """Two operators that elect."""
        named = super().settings(rng)
        possible = ("kill", "kill-master", "terminate", *API_FAULTS, *OPERATOR_FAULTS)
        self.kinds = [kind for kind in possible if rng.random() < 0.3] or ["operator-kill"]
        self._at_a_time = rng.choice([1, 1, 2])
        named["operators"] = 2
        named["operator_settings"] |= {
            "image": OLD,
            "image_rolls": self._at_a_time,
            "max_concurrent_rolls": self._at_a_time,
        }
        return named

    def act(self) -> None:
        """Raises Violation."""
        self._rng = self.world.stream("fleet")
        self._fleet = FleetWatch(self._cluster, self._watch, self._at_a_time)
        super().act()
        self._end()

    def disturb(self) -> None:
        """While people declare more groups, which these clients do not use."""
        self._declare_others()
        super().disturb()

    def settle(self, loads: Sequence[Load]) -> None:
        self._rest()
        self._hand_over()
        self._rest()
        self._change_all()
        self._alter()
        self._upgrade()
        super().settle(loads)

    # ---- people

    def _declare_others(self) -> None:
        for name in OTHERS:
            manifest = {
                "apiVersion": API,
                "kind": "BrokerGroup",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "controllerRef": {"name": CLUSTER},
                    "replicas": 1,
                    "storage": {"size": "1Gi"},
                    "clients": {"door": {"enabled": False}},
                    "config": {"log_segment_bytes": str(SEGMENT_BYTES), "disk_spare_bytes": "0"},
                },
            }
            self._cluster.create("mq.gantry.dev", "brokergroups", manifest)

    def _hand_over(self) -> None:
        """The leader ends, dies, or cannot reach the API server. Raises Violation."""
        cluster, fleet = self._cluster, self._fleet
        self._led()
        leader, (identity, _) = fleet.holder, fleet.lease
        assert leader is not None
        process, within_s = leader.process, EXPIRED_S
        how = self._rng.choice(["terminate", "kill", "off-api", "off-api"])
        cut = {(leader.machine.address, kube.KUBE), (kube.KUBE, leader.machine.address)}
        match how:
            case "terminate":
                leader.terminate()
                within_s = GIVEN_UP_S
            case "kill":
                leader.kill()
                cluster.world.after(EXPIRED_S * SECOND, leader.boot)
            case "off-api":
                cluster.network.blocked |= cut
        self._until(
            within_s,
            lambda: fleet.lease[0] not in ("", identity),
            lambda: f"lease: {identity} had it, and after {how} nobody takes over",
        )
        if how != "terminate" and process is not None and not process.is_dead:
            raise Violation(f"lease: {leader.name} lives, and another one has it")
        cluster.network.blocked.difference_update(cut)
        cluster.world.count(f"handed-over.{how}")

    def _led(self) -> None:
        """Until somebody who lives leads. Raises Violation."""
        fleet = self._fleet
        _, renewed = fleet.lease
        self._until(
            EXPIRED_S,
            lambda: fleet.lease[1] != renewed and fleet.holder is not None,
            lambda: "lease: all is calm, and nobody renews it",
        )

    def _alter(self) -> None:
        """Somebody writes into the pods of a StatefulSet, and the resource says who."""
        cluster, name = self._cluster, OTHERS[0]
        cluster.change("statefulsets", names.broker_statefulset(name), ALTERED, "apps")

        def told() -> bool:
            found = self._conditions(name).get("Altered") or {}
            return found.get("status") == "True" and "people" in found["message"]

        self._until(PEACE_S, told, lambda: f"Altered is not told: {self._conditions(name)}")

    def _change_all(self) -> None:
        """One commit changes the pods of all groups: they take turns. Raises Violation."""
        names_of = [GROUP, *OTHERS]
        self._fleet.is_changing = True
        template = {"metadata": {"annotations": {COMMIT: "new"}}}
        for name in names_of:
            self._cluster.change("brokergroups", name, {"spec": {"template": template}})
        self._until(
            PEACE_S,
            lambda: len(changed := self._fleet.changed) == len(names_of) and all(changed.values()),
            lambda: f"turns: not all groups are changed: {self._fleet.changed}",
        )
        self._fleet.is_changing = False
        self._cluster.world.count("changed-all")

    def _upgrade(self) -> None:
        """A new release of the operator, one process after the other. Raises Violation."""
        cluster, fleet, operators = self._cluster, self._fleet, self._operators
        operators.forget()
        cluster.operator_settings["image"] = NEW
        order = self._rng.sample(cluster.operators, 2)
        for node in order:
            self._replace(node)
        if self._rng.random() < 0.5:
            cluster.run(self._rng.uniform(1, 10))
            leader = fleet.holder
            if leader is not None:
                leader.kill()
                cluster.world.after(2 * SECOND, leader.boot)
        self._until(2 * PEACE_S, lambda: fleet.all_have_it, lambda: "turns: not all get the image")
        if operators.gap_us > GAP_MAX_US:
            raise Violation(f"gap: a new image kept clients waiting for {operators.gap_us} us")
        cluster.world.count("upgraded")

    def _replace(self, node: Node) -> None:
        """An operator ends and comes back. Raises Violation: it does not."""
        before = node.process
        node.terminate()
        self._until(
            EXPIRED_S,
            lambda: node.process is not before and node.is_running,
            lambda: f"{node.name} does not end",
        )

    def _end(self) -> None:
        """Everything goes, and the operators at the same moment. Raises Violation."""
        cluster = self._cluster
        self._rest()
        self._led()  # who does not lead leaves everything to who does, and may be told to stop
        self._operators.all_goes = True
        cluster.disposable |= {
            claim["spec"].get("volumeName", "")
            for claim in cluster.objects("persistentvolumeclaims")
        }
        with_namespace = self._rng.random() < 0.5
        if with_namespace:
            cluster.remove("namespaces", NAMESPACE, group="")
        else:
            for name in (GROUP, *OTHERS):
                cluster.remove("brokergroups", name)
            cluster.remove("controllergroups", CLUSTER)
            cluster.run(0.1)  # until the operators have heard of it
        for node in cluster.operators:
            node.wanted = False
            cluster.world.after(self._rng.randrange(300 * MS), node.terminate)
        self._until(PEACE_S, lambda: not self._left(), lambda: f"farewell: left are {self._left()}")
        self._until(
            EXPIRED_S,
            lambda: not any(node.is_running for node in cluster.operators),
            lambda: "farewell: an operator does not end",
        )
        cluster.world.count("namespace-ended" if with_namespace else "uninstalled")

    # ---- looks

    def _rest(self) -> None:
        """Until all is as it is wished."""
        self._until(PEACE_S, lambda: not self._unsettled(), lambda: f"no rest: {self._unsettled()}")

    def _unsettled(self) -> str:
        for name in OTHERS:
            ready = self._conditions(name).get("Ready") or {}
            if ready.get("status") != "True":
                return f"{name}: {ready}"
        return self._operators.unsettled()

    def _conditions(self, name: str) -> dict[str, Any]:
        status = self._cluster.resource("brokergroups", name).get("status") or {}
        return {one["type"]: one for one in status.get("conditions") or ()}

    def _left(self) -> list[str]:
        """Resources of ours, and the namespace if it was deleted."""
        cluster = self._cluster
        kinds = (("controllergroups", "mq.gantry.dev"), ("brokergroups", "mq.gantry.dev"))
        found = [
            f"{plural}/{one['metadata']['name']} {one['metadata'].get('finalizers')}"
            for plural, group in kinds
            for one in cluster.objects(plural, group)
        ]
        ending = [
            one["metadata"]["name"]
            for one in cluster.objects("namespaces")
            if one["metadata"].get("deletionTimestamp")
        ]
        return found + ending

    def _until(self, seconds: float, holds: Callable[[], bool], what: Callable[[], str]) -> None:
        if not self._cluster.run(seconds, until=holds):
            raise Violation(what())


def _image(statefulset: dict[str, Any]) -> str:
    """Of the main container."""
    return str(statefulset["spec"]["template"]["spec"]["containers"][0]["image"])
