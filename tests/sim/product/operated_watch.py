"""What the operator owes, whatever happens to it and to the API server.

=======  =========================================================================================
alone    it takes one running member of a group at a time: the next one only after the last one it
         took was Ready again
master   it never takes the pod of a master that has served for a while and has a successor
quorum   it never takes a controller while the others that live are no majority, nor a broker while
         those that live are fewer than the minimum asks for
seats    no pod of a controller goes while a majority counts it as a member
volumes  it deletes no claim, and no volume goes
scale    a StatefulSet never shrinks below the wish, unless all of the group is put to sleep
bug      no reconcile ends in a fault of its own
loop     no looks at a resource bring each other while nothing that they read changes
rights   it asks the API server for nothing that the chart's Role does not allow
=======  =========================================================================================

What lives is the world's truth, and the operator's knowledge is late: members count as alive that
were so a moment ago (``LATE_US``). At the end it owes that the status is of the present generation
and says that all is well, that roles' labels tell the truth, and that nothing is done any more.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gantry_operator import names
from gantry_operator.api.kinds import CUSTOM
from sim.kernel.world import SECOND, Violation
from sim.product.cluster import CLUSTER, GROUP
from sim.product.operated import BROKERS

if TYPE_CHECKING:
    from sim.product.cluster import Node
    from sim.product.operated import OperatedCluster
    from sim.product.watch import Watch

LATE_US = 8 * SECOND
SERVED_US = 5 * SECOND
CONTROLLERS = names.controller_statefulset(CLUSTER)
IDLE_REQUESTS = 8  # of one kind about one object, while nothing changes for ``IDLE_S``
IDLE_S = 10
POLLED = ("leases", "secrets", "")  # by design; "" is discovery, of an operator that starts


class OperatorWatch:
    """See the module.

    Attributes:
        requests: how often each verb was asked for each object, since ``forget``.
        gap_us: the longest time without an acknowledged send, since ``forget``.
        all_goes: people delete everything: what goes is not looked at.
        sleeps: people put the group to sleep, or it is about to wake.
    """

    def __init__(self, cluster: OperatedCluster, watch: Watch) -> None:
        self._cluster = cluster
        self._watch = watch
        self._alive_us: dict[str, int] = {}
        self._taken: dict[str, tuple[str, str]] = {}  # StatefulSet: name and uid that it took last
        self._master = ("", 0)  # who serves, and since when
        self._sizes: dict[str, int] = {}  # of StatefulSets
        self._found: list[str] = []
        self._acks = 0
        self.all_goes = self.sleeps = False
        self.forget()
        cluster.asks.append(self._asked)
        cluster.deeds.append(self._deed)
        watch.more.append(self._look)

    def forget(self) -> None:
        """Count anew."""
        self.requests: dict[tuple[str, str, str], int] = {}
        self.gap_us = 0
        self._acked_us = self._cluster.world.now_us

    # ---- all the time

    def _look(self) -> None:
        cluster, now_us = self._cluster, self._cluster.world.now_us
        if self._found:
            raise Violation(self._found[0])
        if cluster.rights.refused:
            raise Violation(f"rights: {cluster.rights.refused[0]}")
        for node in cluster.nodes:
            process = node.process
            if process is not None and not process.is_dead and not process.frozen:
                self._alive_us[node.name] = now_us
        master = cluster.master()
        name = master.name if master is not None else ""
        if name != self._master[0]:
            self._master = (name, now_us)
        if self._watch.acks != self._acks:
            self._acks, self._acked_us = self._watch.acks, now_us
        self.gap_us = max(self.gap_us, now_us - self._acked_us)
        self._check_operators()
        if cluster.registry is not None:
            self._check_objects()

    def _check_operators(self) -> None:
        for node in self._cluster.operators:
            process = node.process
            metrics = None if process is None else process.globals.get("Metrics")
            if metrics is None:
                continue
            for kind in (one.kind for one in CUSTOM):
                if metrics.reconciles.labels(kind, "bug")._value.get():
                    raise Violation(f"bug: {node.name} hit a fault of its own over a {kind}")
                if metrics.spins.labels(kind)._value.get():
                    raise Violation(f"loop: {node.name} looks at a {kind} without a change")

    def _check_objects(self) -> None:
        for found in self._cluster.objects("statefulsets", "apps"):
            name, replicas = found["metadata"]["name"], found["spec"]["replicas"]
            if name not in (BROKERS, CONTROLLERS) or self.all_goes:
                continue
            if name == BROKERS and self.sleeps and replicas == 0:
                continue
            wished = self._cluster.replicas if name == BROKERS else self._cluster.quorum
            before = self._sizes.get(name, 0)
            if replicas < min(before, wished, 3):
                raise Violation(f"scale: {name} has {replicas} replicas of {wished}, had {before}")
            self._sizes[name] = replicas
        self._check_seats()
        self._forget_taken()
        lost = set(self._cluster.lost_disks) - self._cluster.disposable
        if lost:
            raise Violation(f"volumes: {lost} went")

    def _check_seats(self) -> None:
        """Raises Violation: the StatefulSet has no place for somebody who takes part."""
        found = self._cluster.objects("statefulsets", "apps")
        sizes = [one["spec"]["replicas"] for one in found if one["metadata"]["name"] == CONTROLLERS]
        for voters, everybody in self._memberships():
            if sizes and max(everybody) > sizes[0]:
                raise Violation(
                    f"seats: {CONTROLLERS} has {sizes[0]} replicas, and {sorted(everybody)} take "
                    f"part, of whom {sorted(voters)} vote"
                )

    def _memberships(self) -> list[tuple[frozenset[int], frozenset[int]]]:
        """Voters and all members, as a majority of these voters knows them."""
        known = Counter[tuple[frozenset[int], frozenset[int]]]()
        for node in self._cluster.controllers:
            controller = self._cluster.controller_of(node)
            if controller is not None:
                members = controller.node.members
                everybody = frozenset(members.nodes)
                known[frozenset(members.voters), everybody] += number_of(node) in members.voters
        return [one for one, count in known.items() if count > len(one[0]) // 2]

    def _forget_taken(self) -> None:
        """A pod that was taken is Ready again, or was scaled away since."""
        for pod in self._cluster.objects("pods") if self._taken else ():
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            statefulset = name.rpartition("-")[0]
            last, before = self._taken.get(statefulset, ("", ""))
            if last == name and before != uid and is_ready(pod):
                del self._taken[statefulset]
        for found in self._cluster.objects("statefulsets", "apps") if self._taken else ():
            name, replicas = found["metadata"]["name"], found["spec"]["replicas"]
            last, _ = self._taken.get(name, ("", ""))
            if last and int(last.rpartition("-")[2]) >= replicas:
                del self._taken[name]

    def _asked(self, verb: str, plural: str, name: str) -> None:
        key = (verb, plural, name)
        self.requests[key] = self.requests.get(key, 0) + 1

    def _deed(self, verb: str, plural: str, name: str) -> None:
        if verb != "delete" or self.all_goes:
            return
        if plural == "statefulsets" and name not in (BROKERS, CONTROLLERS):
            return  # of a guest; its claims tell
        if plural in ("persistentvolumeclaims", "statefulsets"):
            self._found.append(f"volumes: the operator deletes {plural} {name}")
        elif plural == "pods":
            self._take(name)

    def _take(self, name: str) -> None:
        """The operator takes a pod."""
        cluster = self._cluster
        cluster.world.note("operator", "takes", name)
        cluster.world.count("operator.takes")
        pods = {pod["metadata"]["name"]: pod for pod in cluster.objects("pods")}
        node = next((node for node in cluster.nodes if node.name == name), None)
        if node is None or name not in pods or not node.is_running:
            return
        self._forget_taken()
        statefulset = name.rpartition("-")[0]
        last, _ = self._taken.get(statefulset, ("", ""))
        if last not in ("", name) and is_ready(pods[name]):  # one that is not serves nobody
            self._found.append(f"alone: {name} is taken, and {last} was not Ready since it was")
        self._taken[statefulset] = (name, pods[name]["metadata"]["uid"])
        others = [
            other
            for other in (cluster.brokers if statefulset == BROKERS else cluster.controllers)
            if other is not node and self._lives(other)
        ]
        if statefulset == BROKERS:
            self._take_broker(node, len(others))
        else:
            self._take_controller(name, {number_of(other) for other in others})

    def _take_broker(self, node: Node, others: int) -> None:
        cluster = self._cluster
        master, since_us = self._master
        served = cluster.world.now_us - since_us > SERVED_US
        serving = cluster.group_of(node).core.serving if master == node.name and served else None
        if serving is not None and serving.in_sync > 1 and serving.epoch >= self._newest_epoch():
            self._found.append(f"master: {node.name} is taken, and it has served for a while")
        if others < min(cluster.min_in_sync, cluster.replicas - 1):
            self._found.append(f"quorum: {node.name} is taken, and {others} others live")

    def _take_controller(self, name: str, others: set[int]) -> None:
        for voters, _ in self._memberships():
            if len(others & voters) <= len(voters) // 2:
                self._found.append(f"quorum: {name} is taken, and of {voters} live {others}")

    def _newest_epoch(self) -> int:
        """The epoch that the controllers have decided, of which its old master may not know yet."""
        found = [
            controller.machine.state.groups.get((CLUSTER, GROUP))
            for controller in map(self._cluster.controller_of, self._cluster.controllers)
            if controller is not None
        ]
        return max((int(group.master_epoch) for group in found if group is not None), default=0)

    def _lives(self, node: Node) -> bool:
        return self._cluster.world.now_us - self._alive_us.get(node.name, -LATE_US) < LATE_US

    # ---- the end

    def unsettled(self) -> str:
        """What is not yet as it is wished; empty when all is."""
        cluster = self._cluster
        for plural, name in (("controllergroups", CLUSTER), ("brokergroups", GROUP)):
            said = _unsaid(cluster.resource(plural, name))
            if said:
                return f"{plural} {name}: {said}"
        wished = frozenset(range(1, cluster.quorum + 1))
        if self._memberships() != [(wished, wished)]:
            return f"controllers {set(wished)} are wished, and there are {self._memberships()}"
        master = cluster.master()
        revisions = {
            found["metadata"]["name"]: found["status"].get("updateRevision")
            for found in cluster.objects("statefulsets", "apps")
        }
        for pod in cluster.objects("pods"):
            meta = pod["metadata"]
            statefulset = meta["name"].rpartition("-")[0]
            if statefulset not in (BROKERS, CONTROLLERS):
                continue
            if meta["labels"].get(names.LABEL_REVISION) != revisions[statefulset]:
                return f"{meta['name']} is of an old revision"
            if statefulset != BROKERS:
                continue
            is_master = master is not None and meta["name"] == master.name
            role = names.ROLE_MASTER if is_master else names.ROLE_REPLICA
            if meta["labels"].get(names.LABEL_ROLE) != role:
                return f"{meta['name']} is labelled {meta['labels'].get(names.LABEL_ROLE)}"
            if meta["labels"].get(names.LABEL_TRAFFIC) != names.TRAFFIC_ON:
                return f"{meta['name']} gets no clients"
        return ""

    def judge_idleness(self) -> None:
        """Nothing has changed since ``forget``: nothing may have been asked for again and again.

        Raises:
            Violation: something was.
        """
        for (verb, plural, name), times in sorted(self.requests.items()):
            if verb not in ("watch", "list") and plural not in POLLED and times > IDLE_REQUESTS:
                raise Violation(f"idle: {verb} {plural} {name} {times} times in {IDLE_S} s")


def _unsaid(resource: dict[str, Any]) -> str:
    status = resource.get("status") or {}
    generation = resource["metadata"]["generation"]
    if status.get("observedGeneration") != generation:
        return f"observed {status.get('observedGeneration')} of generation {generation}"
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    if ready.get("status") != "True":
        return f"Ready is {ready.get('status')}: {ready.get('reason')} {ready.get('message')}"
    return ""


def number_of(node: Node) -> int:
    """Of a controller, in its quorum."""
    return int(node.name.rpartition("-")[2]) + 1


def is_ready(pod: dict[str, Any]) -> bool:
    """What its condition says."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
