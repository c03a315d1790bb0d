"""People who make fronts for the cluster of the watched group, change them, and delete them.

=======  =========================================================================================
refused  what cannot be meant is refused: by the API server, or by the operator, which says why and
         builds nothing; a second resource of a cluster waits until the first one is gone
wished   there are the objects, the fronts and the ports that are wished, and the status says so;
         an autoscaler's number stays; what others delete comes again; nothing changes in a pause
way      clients are led to fronts once one is Ready, and back to the brokers while none is; a
         resource that is deleted stays until those who were led there have looked again
gone     of a resource that was deleted nothing is left, and brokers have no store port without one
alone    what others own stays what it was
=======  =========================================================================================

Fronts are processes of the product, and the clients of the run go where they are led.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from gantry_controller.metadata.fronts import at_fronts
from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.errors import StatusError
from gantry_operator import names
from sim.kernel.world import SECOND, Violation
from sim.product import kube
from sim.product.cluster import CLUSTER, GROUP
from sim.product.operated import API, BROKERS, MERGE
from sim.product.operated_faults import NAMESPACE
from sim.product.operated_watch import is_ready
from sim.product.people import People

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from sim.product.cluster import Node
    from sim.product.operated import OperatedCluster
    from sim.product.watch import Watch

PAUSED_S = 4.0
LOOKS_S = 30  # clients read their routes that often
KNOWN_US = 10 * SECOND  # the operator may know of a front that was Ready so long ago
CLOUD = "10.97.0.2"
OUTSIDE = "10.97.0.3"
OBJECTS = (
    ("deployments", "apps"),
    ("services", ""),
    ("poddisruptionbudgets", "policy"),
    ("networkpolicies", "networking.k8s.io"),
)
SCALER = ("horizontalpodautoscalers", "autoscaling")

LAST = "edge-last"
LAST_SPEC: dict[str, Any] = {"replicas": 1, "ports": 16}
PEACE_S = 90

MEANINGLESS: tuple[dict[str, Any], ...] = (  # the API server refuses these
    {"replicas": 0},
    {"ports": 65},
    {"service": {"type": "NodePort"}},
    {"service": {"type": "NodePort", "advertisedAddress": kube.NODE, "firstNodePort": 32767}},
    {"service": {"advertisedAddress": "a host"}},
    {"autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 2}},
    {"tier": {"url": "s3://bucket?key=secret"}},
    {"nothing": True},
)
UNWISE: tuple[tuple[dict[str, Any], str], ...] = (  # and the operator these
    ({"controllerRef": {"name": "nobody"}}, "ControllerGroupNotFound"),
    (
        {"autoscaling": {"enabled": True}, "resources": {"requests": {"memory": "1Gi"}}},
        "InvalidSpec",
    ),
)
SERVICES: tuple[dict[str, Any], ...] = (
    {"type": "ClusterIP"},
    {"type": "NodePort", "advertisedAddress": kube.NODE, "firstNodePort": 31000},
    {"type": "LoadBalancer", "annotations": {"cloud.example/internal": "true"}},
)
EXTRAS: tuple[dict[str, Any], ...] = (
    {},
    {"connectionAgeSeconds": 2},
    {
        "resources": {"requests": {"cpu": 1}},
        "template": {"metadata": {"labels": {"team": "edge"}}},
        "networkPolicy": {"clientsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    },
)


class FrontsWatch:
    """Rule ``way``; see the module.

    Attributes:
        quorum_goes: people delete it, and who leads nobody is waited for by nobody.
    """

    def __init__(self, cluster: OperatedCluster, watch: Watch) -> None:
        self._cluster = cluster
        self._index = 0
        self._led: Any = None  # as the controllers have it
        self._led_us: dict[str, int] = {}  # when clients were last led to the fronts of a resource
        self._ready_us: dict[str, int] = {}  # when one of them was last Ready
        self.quorum_goes = False
        watch.more.append(self._look)

    def _look(self) -> None:
        cluster, now_us = self._cluster, self._cluster.world.now_us
        if cluster.registry is None or not (cluster.fronts or self._led_us):
            return
        for pod in cluster.objects("pods") if cluster.fronts else ():
            labels = pod["metadata"].get("labels") or {}
            if labels.get(names.LABEL_COMPONENT) == names.FRONT and is_ready(pod):
                self._ready_us[labels[names.LABEL_INSTANCE]] = now_us
        self._look_at_way(now_us)
        there = {one["metadata"]["name"] for one in cluster.objects("frontgroups", "mq.gantry.dev")}
        for name in [one for one in self._led_us if one not in there]:
            ago_us = now_us - self._led_us.pop(name)
            if ago_us < (LOOKS_S - 1) * SECOND and not self.quorum_goes:
                raise Violation(f"way: {name} is gone, and clients were led there {ago_us} us ago")

    def _look_at_way(self, now_us: int) -> None:
        """Raises Violation: clients are led to fronts, and none is Ready."""
        for controller in map(self._cluster.controller_of, self._cluster.controllers):
            state = None if controller is None else controller.machine.state
            if state is None or int(state.index) < self._index:
                continue
            self._index = int(state.index)
            led = state.fronts.get(CLUSTER)
            if led is not None and led != self._led:
                ready_us = self._ready_us.get(led.name)
                if ready_us is None or now_us - ready_us > KNOWN_US:
                    raise Violation(f"way: clients are led to {led}, Ready was {ready_us}")
            self._led = led
        if self._led is not None:
            self._led_us[self._led.name] = now_us


class FrontGroups(People):
    """See the module.

    Args:
        cluster: where.
        uploads: whether fronts are to read the tier.
    """

    unsettled = "fronts are still changed"
    plural = "frontgroups"

    def __init__(self, cluster: OperatedCluster, *, uploads: bool = False) -> None:
        super().__init__(cluster)
        self._uploads = uploads
        self._number = 0

    def start(self) -> None:
        """Begin."""
        self._cluster.client("fronts-people", self._live).boot()

    async def _live(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        while not self._stops:
            await asyncio.sleep(rng.random())
            if not self._cluster.is_set_up:
                continue
            self._number += 1
            await self._one(f"edge-{self._number}", rng)
            self._cluster.world.count("fronts")
        self._busy -= 1

    def one_that_stays(self) -> LastFronts:
        """One more resource, which clients are led to. Raises Violation."""
        last = LastFronts(self, self._cluster)
        last.stands()
        return last

    async def _one(self, name: str, rng: Random) -> None:
        """One resource, from the first mistake to its end."""
        if rng.random() < 0.7:
            self._must_be_refused(name, rng)
        if rng.random() < 0.5:
            await self._must_not_be_built(name, rng)
        before = self._owned_by_others()
        spec = self._wish(rng)
        self._create(name, spec)
        await self._stands(name, spec)
        for _ in range(rng.randint(1, 2)):
            await self._change(name, spec, rng)
            await self._stands(name, spec)
        next_name = f"{name}-next" if rng.random() < 0.3 else ""
        if next_name:
            await self._must_wait(next_name, name)
        await self._delete(name)
        if next_name:
            await self._stands(next_name, {"replicas": 1, "ports": 2})
            self._cluster.world.count("fronts-replaced")
            await self._delete(next_name)
        gone = before.items() - self._owned_by_others().items()
        if gone:
            raise Violation(f"alone: {name} was there and is gone, and so are {gone}")

    def _wish(self, rng: Random) -> dict[str, Any]:
        extra = dict(rng.choice(EXTRAS))
        if self._uploads:
            extra["tier"] = {"url": "s3://bucket", "credentialsSecret": {"name": "keys"}}
        return {"replicas": rng.choice([1, 2]), "ports": rng.choice([1, 2, 16]), **extra}

    # ---- what cannot be meant

    def _must_be_refused(self, name: str, rng: Random) -> None:
        """Raises Violation: the API server takes what cannot be meant."""
        spec = rng.choice(MEANINGLESS)
        try:
            self._create(name, spec)
        except StatusError:
            self._cluster.world.count("fronts-meaningless")
        else:
            raise Violation(f"refused: the API server takes {spec}")

    async def _must_not_be_built(self, name: str, rng: Random) -> None:
        spec, reason = rng.choice(UNWISE)
        uid = self._create(name, spec)
        await self._is_refused(name, uid, reason)
        self._cluster.world.count("fronts-unwise")
        self._cluster.remove("frontgroups", name)
        await self._until(f"{name} to go", lambda: self._resource(name) is None)

    async def _must_wait(self, name: str, first: str) -> None:
        """A second resource of the cluster is there, and nothing of it."""
        uid = self._create(name, {"replicas": 1, "ports": 2})
        await self._is_refused(name, uid, "ClusterHasFronts")
        if (self._condition(first, "Accepted") or ("",))[0] != "True":
            raise Violation(f"refused: {first} was there first, and {name} is there, too")

    async def _is_refused(self, name: str, uid: str, reason: str) -> None:
        await self._until(
            f"{name} to be refused as {reason}",
            lambda: self._condition(name, "Accepted") == ("False", reason),
        )
        if self._owned(uid):
            raise Violation(f"refused: of {name}, {reason}, there are {self._owned(uid)}")

    # ---- life

    async def _change(self, name: str, spec: dict[str, Any], rng: Random) -> None:
        """A change that people make."""
        what = rng.choice(["scale", "roll", "ports", "pause", "scaler", "service", "host", "lose"])
        self._cluster.world.count(f"fronts-{what}")
        match what:
            case "scale":
                spec["replicas"] = rng.randint(1, 3)
                self._patch(name, {"replicas": spec["replicas"]})
            case "roll":
                notes = {"roll": f"{rng.getrandbits(32):x}"}
                self._patch(name, {"template": {"metadata": {"annotations": notes}}})
            case "ports":
                spec["ports"] += rng.randint(1, 3)
                self._patch(name, {"ports": spec["ports"]})
                await self._until(f"{name} to know", lambda: bool(self._status(name)))
                self._must_stay(name, {"ports": spec["ports"] - 1})
            case "pause":
                await self._pause(name, rng)
            case "scaler":
                await self._let_it_scale(name, spec, rng)
            case "service":
                await self._lead_by(name, spec, rng.choice(SERVICES))
            case "host":
                await self._mistake_a_host(name, spec)
            case "lose":
                plural, group = rng.choice(OBJECTS)
                self._cluster.remove(plural, names.front_deployment(name), group)

    def _must_stay(self, name: str, spec: dict[str, Any]) -> None:
        """Raises Violation: the API server takes a change that it must not take."""
        try:
            self._patch(name, spec)
        except StatusError:
            return
        raise Violation(f"refused: {name} is changed to {spec}")

    async def _pause(self, name: str, rng: Random) -> None:
        """A change while it is paused: nothing comes of it. Raises Violation."""
        self._patch(name, {"paused": True})
        await self._until(
            f"{name} to be paused", lambda: (self._condition(name, "Paused") or ("",))[0] == "True"
        )
        before = self._deployment(name)["metadata"]["generation"]
        notes = {"roll": f"{rng.getrandbits(32):x}"}
        self._patch(name, {"template": {"metadata": {"annotations": notes}}})
        await asyncio.sleep(PAUSED_S)
        if self._deployment(name)["metadata"]["generation"] != before:
            raise Violation(f"wished: {name} is paused, and its Deployment is another one")
        self._patch(name, {"paused": False})

    async def _let_it_scale(self, name: str, spec: dict[str, Any], rng: Random) -> None:
        """An autoscaler sets the number of fronts for a while, to none at all sometimes."""
        before = self._deployment(name)["spec"]["replicas"]
        self._patch(name, {"autoscaling": {"enabled": True, "minReplicas": 1, "maxReplicas": 3}})
        await self._stands(name, spec | {"replicas": before, "scaled": True})
        number = rng.choice([0, 1, 3])
        self._scale(name, number)
        if not number:
            await self._until(f"nobody to be led to {name}", lambda: self._led_by() is None)
            number = rng.choice([1, 2])
            self._scale(name, number)
        await self._stands(name, spec | {"replicas": number, "scaled": True})
        self._patch(name, {"autoscaling": {"enabled": False}})

    def _scale(self, name: str, number: int) -> None:
        """What an autoscaler does."""
        deployment = names.front_deployment(name)
        self._cluster.change("deployments", deployment, {"spec": {"replicas": number}}, "apps")

    async def _lead_by(self, name: str, spec: dict[str, Any], service: dict[str, Any]) -> None:
        """Another type of Service; the cloud gives a load balancer its address after a while."""
        nothing = {"advertisedAddress": None, "firstNodePort": None, "annotations": None}
        self._patch(name, {"service": nothing | service})
        spec["service"] = service
        if service["type"] != "LoadBalancer":
            return
        await self._until(
            f"{name} to wait for an address",
            lambda: self._condition(name, "Available") == ("False", "WaitingForAddress"),
        )
        registry = self._cluster.registry
        assert registry is not None
        registry.patch(
            registry.catalogue.type("", "services"),
            NAMESPACE,
            names.front_deployment(name),
            MERGE,
            {"status": {"loadBalancer": {"ingress": [{"ip": CLOUD}]}}},
            Options(manager="cloud"),
            subresource="status",
        )

    async def _mistake_a_host(self, name: str, spec: dict[str, Any]) -> None:
        """A host with a port is no host: the controllers refuse it, and clients stay."""
        before = self._led_by()
        self._patch(name, {"service": {"advertisedAddress": f"{OUTSIDE}:80"}})
        await self._until(
            f"{name} to be refused",
            lambda: self._condition(name, "Accepted") == ("False", "ApiRefused"),
        )
        if before is not None and self._led_by() not in (before, None):
            raise Violation(f"way: clients of {name} are led by {self._led_by()}, were by {before}")
        right = (spec.get("service") or {}).get("advertisedAddress")
        self._patch(name, {"service": {"advertisedAddress": right}})

    async def _delete(self, name: str) -> None:
        """Delete it; nothing is left. Raises Violation."""
        resource = self._resource(name)
        assert resource is not None, "only people delete it"
        uid = resource["metadata"]["uid"]
        self._cluster.remove("frontgroups", name)
        await self._until(f"{name} to go", lambda: self._resource(name) is None)
        led = self._led_by()
        if led is not None and led.name == name:
            raise Violation(f"gone: {name} is, and clients are led to {led}")
        await self._until(f"all of {name} to go", lambda: not self._owned(uid))
        await self._until(
            f"the fronts of {name} to go",
            lambda: not any(node.name.startswith(f"{name}-front") for node in self._cluster.fronts),
        )
        self._cluster.world.count("fronts-deleted")

    # ---- what there is

    async def _stands(self, name: str, spec: dict[str, Any]) -> None:
        """Until all is as it is wished."""
        self.waits_for = f"{name} to stand"
        while unlike := self._unlike(name, spec):
            self.waits_for = f"{name}: {unlike}"
            await asyncio.sleep(0.2)

    def _unlike(self, name: str, spec: dict[str, Any]) -> str:
        """What is not as it is wished; empty when all is."""
        for kind, wanted in (("Accepted", "True"), ("Available", "True"), ("Progressing", "False")):
            found = self._condition(name, kind)
            if found is None or found[0] != wanted:
                return f"{kind} is {found}"
        wished = set(OBJECTS) | ({SCALER} if spec.get("scaled") else set())
        there = {one for one in {*OBJECTS, SCALER} if self._object(name, *one) is not None}
        if there != wished:
            return f"there are {sorted(there)}"
        number, status = spec["replicas"], self._status(name)
        counted = (status.get("replicas"), status.get("readyReplicas"), status.get("ready"))
        if counted != (number, number, f"{number}/{number}"):
            return f"of {number} fronts there are {counted}"
        return self._unlike_way(name, spec)

    def _unlike_way(self, name: str, spec: dict[str, Any]) -> str:
        state, led, status = self._state(), self._led_by(), self._status(name)
        service = spec.get("service") or {}
        host = service.get("advertisedAddress")
        if service.get("type") == "LoadBalancer":
            host = CLOUD
        host = host or (self._object(name, "services", "") or {})["spec"]["clusterIP"]
        first = service.get("firstNodePort", names.FIRST_FRONT_PORT)
        if led is None or (led.name, led.address) != (name, host):
            return f"clients are led by {led}, not to {host}"
        if (led.first_port, led.ports) != (first, spec["ports"]):
            return f"clients are led by {led}, not to {first} and {spec['ports']} ports"
        if status.get("address") != f"{host}:{first}":
            return f"clients are said to be led to {status.get('address')}"
        told = {one["name"]: one["port"] for one in status.get("groups") or ()}
        at = at_fronts(state, (CLUSTER, GROUP))
        if at is not None and told.get(GROUP) != at[1]:
            return f"{GROUP} is at {at}, and is said to be at {told}"
        return ""

    def _led_by(self) -> Any:
        """The fronts that clients are led to; None for none."""
        state = self._state()
        return None if state is None else state.fronts.get(CLUSTER)

    def _object(self, name: str, plural: str, group: str) -> dict[str, Any] | None:
        found = self._cluster.objects(plural, group)
        wanted = names.front_deployment(name)
        return next((obj for obj in found if obj["metadata"]["name"] == wanted), None)

    def _deployment(self, name: str) -> dict[str, Any]:
        found = self._object(name, "deployments", "apps")
        assert found is not None, f"{name} stands"
        return found

    def _owned_by_others(self) -> dict[str, str]:
        """Uids of what the quorum and the watched group own, by name; pods come and go."""
        found = [
            self._cluster.resource("controllergroups", CLUSTER),
            self._cluster.resource("brokergroups", GROUP),
        ]
        registry = self._cluster.registry
        assert registry is not None
        return {
            f"{one.resource[1]} {one.key[1]}": one.uid
            for owner in found
            for one in registry.store.owned_by(owner["metadata"]["uid"])
            if one.resource[1] != "pods"
        }

    def _create(self, name: str, spec: dict[str, Any]) -> str:
        """Its uid. Raises StatusError."""
        manifest = {
            "apiVersion": API,
            "kind": "FrontGroup",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"controllerRef": {"name": CLUSTER}, **spec},
        }
        self._cluster.create("mq.gantry.dev", "frontgroups", manifest)
        resource = self._resource(name)
        assert resource is not None
        return str(resource["metadata"]["uid"])


class LastFronts:
    """Fronts that are there when the quorum is deleted: they go with it, or outlive it.

    Args:
        people: who make them.
        cluster: where.
    """

    def __init__(self, people: FrontGroups, cluster: OperatedCluster) -> None:
        self._people = people
        self._cluster = cluster
        self._stays = cluster.world.stream("last-fronts").random() < 0.5
        self._uid = people._create(LAST, LAST_SPEC)

    def stands(self) -> None:
        """Until clients are led there. Raises Violation."""
        people = self._people
        if not self._cluster.run(PEACE_S, until=lambda: not people._unlike(LAST, LAST_SPEC)):
            raise Violation(f"wished: {LAST}: {people._unlike(LAST, LAST_SPEC)}")

    def quorum_goes(self) -> None:
        """It goes with these, or first, since a person has lost patience. Raises Violation."""
        if not self._stays:
            self._cluster.remove("frontgroups", LAST)
            return
        self._wait("to be what the quorum waits for", self._is_waited_for)
        self._cluster.change("controllergroups", CLUSTER, {"metadata": {"finalizers": None}})

    def _is_waited_for(self) -> bool:
        conditions = self._cluster.resource("controllergroups", CLUSTER)["status"]["conditions"]
        said = next(one["message"] for one in conditions if one["type"] == "Progressing")
        return f"refer to it, FrontGroup {LAST}:" in said

    def quorum_is_gone(self) -> None:
        """Who stays serves on, and says what is missing. Raises Violation."""
        people = self._people
        if self._stays:
            lost = ("False", "ControllerGroupNotFound")
            self._wait("to miss the quorum", lambda: people._condition(LAST, "Accepted") == lost)
            if not any(node.is_running for node in self._cluster.fronts):
                raise Violation("wished: the quorum is gone, and so are the fronts")
        elif people._resource(LAST) is not None:
            raise Violation(f"gone: the quorum is, and did not wait for {LAST}")

    def quorum_is_back(self) -> None:
        """Clients are led there as before, and then back, or to nobody. Raises Violation."""
        people = self._people
        if self._stays:
            self.stands()
            self._cluster.remove("frontgroups", LAST)
        self._wait("to lead nobody", lambda: people._led_by() is None)
        self._wait("to leave nothing", lambda: not people._owned(self._uid))
        self._wait("to leave no port", lambda: not has_store_port(self._cluster))
        self._cluster.world.count("fronts-stayed" if self._stays else "fronts-went-with-quorum")

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        if not self._cluster.run(PEACE_S, until=holds):
            raise Violation(f"gone: {LAST} was {what}; clients are led by {self._people._led_by()}")


def has_store_port(cluster: OperatedCluster) -> bool:
    """Whether fronts may read at the stores of the watched group's brokers."""
    found = cluster.objects("statefulsets", "apps")
    watched = next(one for one in found if one["metadata"]["name"] == BROKERS)
    container = watched["spec"]["template"]["spec"]["containers"][0]
    return any(one["name"] == "GANTRY_STORE_PORT" for one in container["env"])
