"""A cluster that the operator makes: its own process, beside the API server, controllers, brokers.

Addresses: the API server is 10.0.0.1, operators 10.0.0.N, pods 10.0.3.N, clients 10.0.9.N, Services
10.96.0.N, and 10.97.0.N where they are reached from outside. What people write are two resources;
everything else in the API server is the operator's doing.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gantry_operator.server
from gantry_cli.client.session import session
from gantry_cli.client.topics import create_topic
from gantry_local import manifests
from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.bootstrap import kubeconfig
from gantry_local.apiserver.deletion import DeleteOptions
from gantry_operator import names
from gantry_operator.settings import OperatorSettings
from gantry_protocol.errors import GantryError
from sim.kernel.world import MS, SECOND
from sim.product import kube, operated_faults
from sim.product.cluster import CLUSTER, GROUP, SEGMENT_BYTES, Cluster, Node, supervised
from sim.product.files import Volume
from sim.product.machines import Machine
from sim.product.operated_faults import NAMESPACE
from sim.product.tcp import Network
from support.rights import Rights

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_local.apiserver.registry import Registry
    from gantry_local.kubelet.environment import Launch
    from sim.kernel.disk import DiskOptions
    from sim.kernel.network import NetworkOptions
    from sim.kernel.world import World

MERGE = "application/merge-patch+json"
BROKERS = names.broker_statefulset(GROUP)
CRDS = Path(__file__).parents[3] / "crds"
API = "mq.gantry.dev/v1alpha1"


class KubeNetwork(Network):
    """Services' addresses lead to pods, and the kubelet reaches its pods whatever is cut.

    Attributes:
        services: ready endpoints by address and port of a Service.
    """

    def __init__(self, world: World, options: NetworkOptions) -> None:
        super().__init__(world, options)
        self.services: dict[tuple[str, int], list[tuple[str, int]]] = {}

    def route(self, host: str, port: int) -> tuple[str, int]:
        if not host.startswith(("10.96.", "10.97.")):
            return host, port
        backends = self.services.get((host, port))
        if not backends:  # as kube-proxy rejects it
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return self.rng.choice(backends)

    def carries(self, source: str, target: str) -> bool:
        for one, other in ((source, target), (target, source)):
            if one == kube.KUBE and not other.startswith("10.0.0."):
                return True
        return super().carries(source, target)


@cache
def _crds() -> str:
    """The definitions as JSON, read once."""
    return json.dumps(manifests.read(str(CRDS)))


class PodNode(Node):
    """A pod's main container by the pod's name, whichever life of it runs."""

    def boot(self) -> None:
        """The kubelet does that."""


class OperatedCluster(Cluster):
    """See the module.

    Args:
        operators: how many operator processes; more than one elect a leader.
        replicas: of the broker group at first.
        operator_settings: beside those that every operator here has; read when one starts.
        group_spec: of the watched broker group, beside what every one here has.

    Attributes:
        registry: of the API server, once it runs.
        asks: called before each request to the API server, with verb, resource and name.
        deeds: called after each that was carried out.
        asker: the address of who asked last.
        rights: what operators asked for, and what of it the chart's Role does not allow.
        lost_disks: volumes that the claim controller gave up.
        disposable: volumes that people have let go.
        deleted_by_people: uids of pods.
        begins: called once the resources are there.
        guests: brokers of other groups than the watched one, by StatefulSet.
    """

    network_class = KubeNetwork
    more_faults = operated_faults.KINDS

    def __init__(
        self,
        world: Any,
        *,
        operators: int = 1,
        controllers: int = 3,
        brokers: int = 3,
        min_in_sync: int = 2,
        operator_settings: dict[str, Any] | None = None,
        group_spec: dict[str, Any] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(world, controllers=0, brokers=0, min_in_sync=min_in_sync, **named)
        self.replicas = brokers
        self.quorum = controllers
        self.registry: Registry | None = None
        self.unkind = kube.Unkindness(world)
        self.disks: dict[str, Volume] = {}
        self.lost_disks: list[str] = []
        self.disposable: set[str] = set()
        self.deleted_by_people: set[str] = set()
        self.guests: dict[str, list[Node]] = {}
        self.asks: list[Callable[[str, str, str], None]] = []
        self.deeds: list[Callable[[str, str, str], None]] = []
        self.begins: list[Callable[[], None]] = []
        self.asker = ""
        self.rights = Rights(home=NAMESPACE)
        self.operator_settings = operator_settings or {}
        self._group_spec = group_spec or {}
        self._stack = ExitStack()
        self._stack.enter_context(kube.bound(self))
        self.kube = self._node(kube.KUBE, "kube", lambda _: kube.serve(self, self._ready))
        self.operators = [
            self._node(f"10.0.0.{number + 2}", f"operator-{number}", self._operator)
            for number in range(operators)
        ]
        config = kubeconfig(f"http://{kube.KUBE}:{kube.PORT}", kube.API_TOKEN)
        config["clusters"][0]["cluster"]["server"] = f"http://{kube.KUBE}:{kube.PORT}"
        (self.root / "kubeconfig").write_text(json.dumps(config))

    @property
    def uploads(self) -> bool:
        """Whether the watched group has a tier."""
        return "tier" in self._group_spec

    # ---- pods

    def disk(self, name: str) -> Volume:
        """The disk of a claim."""
        found = self.disks.get(name)
        if found is None:
            options: DiskOptions = type(self._disk)(**vars(self._disk))
            found = Volume(self.world, self.root, name, options)
            found.lives = len(self.disks)  # a replica's next one is another life of its log
            self.disks[name] = found
        return found

    def place(self, component: str, launch: Launch) -> PodNode:
        """Where a container begins to run: the pod's machine, new with its address."""
        name, address = launch.env["GANTRY_NAME"], launch.env["POD_IP"]
        statefulset = name.rpartition("-")[0]
        all_nodes = {"broker": self.brokers, "controller": self.controllers, "front": self.fronts}
        nodes = all_nodes[component]
        if component == "broker" and statefulset != BROKERS:
            nodes = self.guests.setdefault(statefulset, [])
        node = next((node for node in nodes if node.name == name), None)
        if node is None or node.machine.address != address:
            data = launch.env.get("GANTRY_DATA_DIR")  # a front has none, and writes nothing
            disk = self.disk(name if data is None else Path(data).parent.name)
            machine = Machine(self.world, self.network, address, disk)
            if node is None:
                node = PodNode(self, machine, name, self._nothing)
                nodes.append(node)
                nodes.sort(key=lambda one: one.name)
            node.machine = machine
        assert isinstance(node, PodNode)
        return node

    def unplace(self, address: str) -> None:
        """A pod is gone, and its address with it."""
        machine = self.network.machines.pop(address, None)
        if machine is not None:
            machine.is_up = False
            machine.life += 1
        for nodes in (self.brokers, self.controllers, self.fronts, *self.guests.values()):
            for node in [one for one in nodes if one.machine is machine]:
                wished = {id(self.brokers): self.replicas, id(self.controllers): self.quorum}
                if nodes.index(node) >= wished.get(id(nodes), 0):
                    nodes.remove(node)  # it is not wished for any more

    async def _nothing(self, _: Node) -> None:
        raise AssertionError("the kubelet starts pods")

    # ---- programs

    async def _operator(self, node: Node) -> None:
        settings = OperatorSettings(
            name=node.name,
            kubeconfig=self.root / "kubeconfig",
            bind=node.machine.address,
            leader_election=len(self.operators) > 1,
            lease_namespace=NAMESPACE,
            workers=4,
            **self.operator_settings,
        )
        await supervised(partial(gantry_operator.server.serve, settings))

    def _ready(self, registry: Registry) -> None:
        self.registry = registry
        for manifest in self.definitions():
            self.create("apiextensions.k8s.io", "customresourcedefinitions", manifest)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self.create("", "namespaces", namespace)
        self.declare()
        for begin in self.begins:
            begin()

    def definitions(self) -> list[dict[str, Any]]:
        """The definitions of our resources."""
        found: list[dict[str, Any]] = json.loads(_crds())
        return found

    def declare(self) -> None:
        """Create the quorum and the watched group."""
        self.create(
            "mq.gantry.dev",
            "controllergroups",
            {
                "apiVersion": API,
                "kind": "ControllerGroup",
                "metadata": {"name": CLUSTER, "namespace": NAMESPACE},
                "spec": {"replicas": self.quorum, "storage": {"size": "1Gi"}},
            },
        )
        self.create(
            "mq.gantry.dev",
            "brokergroups",
            {
                "apiVersion": API,
                "kind": "BrokerGroup",
                "metadata": {"name": GROUP, "namespace": NAMESPACE},
                "spec": {
                    "controllerRef": {"name": CLUSTER},
                    "replicas": self.replicas,
                    "replication": {"minInSyncReplicas": self.min_in_sync},
                    "storage": {"size": "1Gi"},
                    "clients": {"door": {"enabled": False}},
                    "config": {
                        "log_segment_bytes": str(SEGMENT_BYTES),
                        "disk_spare_bytes": "0",
                        **{key: str(value) for key, value in self._broker_settings.items()},
                    },
                    **self._group_spec,
                },
            },
        )

    def create(self, group: str, plural: str, manifest: dict[str, Any]) -> None:
        """``kubectl create``. Raises StatusError: the API server refuses it."""
        assert self.registry is not None
        resource = self.registry.catalogue.type(group, plural)
        self.registry.create(
            resource,
            manifest["metadata"].get("namespace", ""),
            manifest,
            Options(manager="people", field_validation="Strict"),
        )

    def member_of(self, node: Node, name: str) -> Any:
        """The ``ReplicationGroup`` of a guest's broker by the group's name; None for none."""
        server = self._object(node, "BrokerServer")
        hosted = [] if server is None else server.hosted
        return next((one.group for one in hosted if one.name == name), None)

    async def _administrator(self, node: Node) -> None:
        async with session(self.name_servers) as client:
            for topic in self.topics:
                while True:
                    try:
                        await create_topic(client, topic, queues=2, cluster=CLUSTER)
                        break
                    except GantryError:
                        await asyncio.sleep(0.2)
        self.is_set_up = True

    # ---- what people do

    def change(
        self, plural: str, name: str, patch: dict[str, Any], group: str = "mq.gantry.dev"
    ) -> None:
        """``kubectl patch``."""
        assert self.registry is not None
        resource = self.registry.catalogue.type(group, plural)
        self.registry.patch(resource, NAMESPACE, name, MERGE, patch, Options(manager="people"))

    def remove(self, plural: str, name: str, group: str = "mq.gantry.dev") -> None:
        """``kubectl delete``."""
        assert self.registry is not None
        resource = self.registry.catalogue.type(group, plural)
        self.registry.delete(resource, NAMESPACE, name, DeleteOptions())

    def resize_quorum(self, size: int) -> None:
        """Wish for so many controllers."""
        self.quorum = size
        there = self.network.machines
        self.controllers[size:] = [
            node for node in self.controllers[size:] if node.machine.address in there
        ]
        self.change("controllergroups", CLUSTER, {"spec": {"replicas": size}})

    def delete_pod(self, name: str) -> None:
        """``kubectl delete pod``, with its grace period."""
        assert self.registry is not None
        pods = {one["metadata"]["name"]: one["metadata"]["uid"] for one in self.objects("pods")}
        self.deleted_by_people.add(pods[name])
        self.remove("pods", name, group="")

    def objects(self, plural: str, group: str = "") -> list[dict[str, Any]]:
        """What the API server has, itself."""
        assert self.registry is not None
        return [record.obj for record in self.registry.store.records((group, plural))]

    def resource(self, plural: str, name: str) -> dict[str, Any]:
        """One of our resources."""
        found = self.objects(plural, "mq.gantry.dev")
        return next(obj for obj in found if obj["metadata"]["name"] == name)

    def asked(self, verb: str, plural: str, name: str) -> None:
        """Somebody asks the API server (only operators do, over HTTP)."""
        for ask in self.asks:
            ask(verb, plural, name)

    def done(self, verb: str, plural: str, name: str) -> None:
        """What was asked for is carried out."""
        for deed in self.deeds:
            deed(verb, plural, name)

    # ---- as of any cluster

    @property
    def name_servers(self) -> list[str]:
        statefulset = names.controller_statefulset(CLUSTER)
        return [
            f"{names.pod_host(statefulset, ordinal, NAMESPACE)}:{names.NAMESERVER_PORT}"
            for ordinal in range(self.quorum)
        ]

    @property
    def is_whole(self) -> bool:
        stands = len(self.brokers) == self.replicas and len(self.controllers) == self.quorum
        return stands and super().is_whole

    def node_exited(self, node: Node, error: BaseException | None) -> None:
        if node in self.operators:
            self.world.after(self._rng.randint(*self.restart_us), node.boot)
        else:
            super().node_exited(node, error)

    def boot(self) -> None:
        self.kube.boot()
        for node in self.operators:
            self.world.after(self._rng.randrange(SECOND), node.boot)
        self.client("administrator", self._administrator).boot()

    def make_peace(self) -> None:
        self.unkind.calm()
        super().make_peace()
        for node in self.operators:
            if node.process is not None and node.process.frozen and not node.process.is_dead:
                node.process.thaw()
            self.world.after(self._rng.randrange(500 * MS), node.boot)

    def close(self) -> None:
        guests = [node for nodes in self.guests.values() for node in nodes]
        for node in [self.kube, *self.operators, *guests]:
            node.wanted = False
            if node.process is not None:
                node.process.kill(silently=True)
        super().close()
        self._stack.close()
