"""A Kubernetes in the world: an API server that is unkind when it is told to, and a kubelet.

What runs is the cluster of processes (``gantry_local``): its registry with server-side apply, its
API server over HTTP, its StatefulSet, Deployment, claim, endpoint and garbage controllers, its
kubelet with probes and restart back-off. They share one process, at ``KUBE``, that never fails;
what fails is what the API server answers (``Unkindness``). A container is a simulated process, and
its settings are those of its pod: command, environment, ConfigMap and Secrets. Each pod is a
machine of its own, with a new address in each life, and the disk of its claim.

A Service's address leads to one of its ready endpoints, chosen for each connection by the kernel of
whoever connects. So do the addresses that its status says a cloud gave it, and its ports of the
node (``NODE``).

Not here: nodes (a pod's machine without power is a pod that answers nothing and cannot be deleted
meanwhile), DNS and Services that lag behind their endpoints, reads from an old copy, TLS. Rights
are not enforced: what the chart's Role does not allow is written down (``OperatedCluster.rights``).
The kubelet reaches its pods and the API server whatever happens to the network, as a pod's own node
does; the API server itself never restarts.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import signal
import zlib
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import gantry_broker.front.server
import gantry_broker.host.server
import gantry_controller.server
from aiohttp import web
from gantry_broker.front.settings import FrontSettings
from gantry_broker.host.settings import BrokerSettings
from gantry_cli.commands.controller import _size_beside
from gantry_controller.settings import ControllerSettings
from gantry_local.apiserver import errors, handlers, openapi, routes
from gantry_local.apiserver.addresses import AddressPool
from gantry_local.apiserver.bootstrap import ensure_namespaces
from gantry_local.apiserver.http import ApiServer
from gantry_local.apiserver.names import SUFFIX_ALPHABET
from gantry_local.apiserver.registry import Registry
from gantry_local.apiserver.store import Store
from gantry_local.apiserver.watching import WatchStream
from gantry_local.controllers.claims import ClaimController
from gantry_local.controllers.deployment import DeploymentController
from gantry_local.controllers.direct import Direct
from gantry_local.controllers.endpoints import SERVICES, SLICES, EndpointsController
from gantry_local.controllers.garbage import GarbageCollector
from gantry_local.controllers.runner import Runner
from gantry_local.controllers.statefulset import StatefulSetController
from gantry_local.kubelet.kubelet import Kubelet
from gantry_local.kubelet.logs import Logs
from gantry_local.kubelet.process import Process as LocalProcess
from gantry_local.kubelet.recorder import Recorder
from gantry_local.kubelet.volumes import Volumes
from gantry_local.kubelet.worker import Machine as Machinery
from gantry_local.network.hosts import HostsWriter, names
from gantry_local.network.proxy import wanted
from gantry_local.runtime import ensure_node
from gantry_protocol.errors import GantryError
from gantry_protocol.process.config import CONFIG_VARIABLE, load_settings
from gantry_protocol.process.runtime import _operating_error
from sim.kernel.world import MS, Violation
from sim.product.cluster import supervised
from sim.product.loop import failures
from sim.product.machines import Machine, Process, current
from sim.product.tcp import ListenSocket, connect
from support.rights import demands

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.selectors import Selector
    from gantry_local.apiserver.watching import WatchOptions
    from gantry_local.kubelet.environment import Launch, Sources
    from sim.kernel.world import World
    from sim.product.operated import OperatedCluster

KUBE = "10.0.0.1"
SERVICE_ADDRESSES = "10.96.0.0/24"
NODE = "10.97.0.1"  # what listens at its ports is Services' node ports
PORT = 6443
API_TOKEN = "token-of-the-simulated-api-server"
PROGRAMS: dict[str, tuple[Any, Any]] = {
    "broker": (BrokerSettings, gantry_broker.host.server),
    "controller": (ControllerSettings, gantry_controller.server),
    "front": (FrontSettings, gantry_broker.front.server),
}

Object = dict[str, Any]


class Unkindness:
    """How the API server treats those who ask; everything may be changed while the world runs.

    Attributes:
        refusals: shares of requests that are refused, by reason: ``conflict`` (writes, 409),
            ``busy`` (429), ``broken`` (500).
        lost_answers: share of writes that are carried out, and the connection is cut.
        slow_us: what each answer takes at most.
        lag_us: how late watches are.
        is_silent: watches deliver nothing, and say nothing.
        policies: the words of who does not allow writes of an object, by plural and name; they
            stay in peace.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.stream("unkindness")
        self.watches: list[_Watch] = []
        self.policies: dict[tuple[str, str], str] = {}
        self.calm()

    def calm(self) -> None:
        """From now on everything is answered, and soon; streams that are frozen stay so."""
        self.refusals: dict[str, float] = {}
        self.lost_answers = 0.0
        self.slow_us = 5 * MS
        self.lag_us = 5 * MS
        self.is_silent = False

    def cut_watches(self) -> None:
        """Every watch's connection is cut."""
        for watch in list(self.watches):
            watch.abort()

    def freeze_watches(self) -> None:
        """No present watch delivers anything any more; its connection stays."""
        for watch in self.watches:
            watch.is_frozen = True

    def refusal(self, resource: ResourceType | None, verb: str, name: str) -> Exception | None:
        """What a request is refused with, if it is."""
        if verb == "watch" or resource is None:
            return None
        words = self.policies.get((resource.plural, name))
        if words is not None and verb not in ("get", "list"):
            self.world.count("api.policy")
            return errors.forbidden(resource, name, words)
        for reason, share in self.refusals.items():
            if self.rng.random() >= share:
                continue
            self.world.count(f"api.{reason}")
            if reason == "busy":
                return errors.too_many_requests(1)
            if reason == "broken":
                return errors.internal("etcdserver: leader changed")
            if verb not in ("get", "list"):
                return errors.conflict(resource, name)
        return None


class _Watch(WatchStream):
    """A watch that may be late, silent for a while, or frozen for good."""

    is_frozen = False

    def __init__(self, unkind: Unkindness, *arguments: Any) -> None:
        self._unkind = unkind
        super().__init__(*arguments)
        unkind.watches.append(self)

    async def take(self) -> bytes | None:
        chunk = await super().take()
        unkind = self._unkind
        await asyncio.sleep(unkind.rng.randint(0, unkind.lag_us) / 1e6)
        while (unkind.is_silent or self.is_frozen) and not self.ended:
            await asyncio.sleep(0.05)
        return None if self.aborted else chunk

    def close(self) -> None:
        self._unkind.watches.remove(self)
        super().close()


class WorldApiServer(ApiServer):
    """The API server, asked over simulated TCP.

    Args:
        registry: the verbs.
        unkind: how it treats requests.
        cluster: is told of what is asked and what is carried out.
    """

    def __init__(self, registry: Registry, unkind: Unkindness, cluster: OperatedCluster) -> None:
        super().__init__(registry, token=API_TOKEN)
        self._unkind = unkind
        self._cluster = cluster

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        unkind = self._unkind
        schemas = request.path.startswith(openapi.ROOT)
        target = routes.Discovery(legacy=False) if schemas else routes.parse(request.path)
        resource, verb, name = None, "discover", ""
        if not isinstance(target, routes.Discovery):
            resource, verb = self._resource(target), handlers.verb_of(request, target)
            name = target.name or ""
        await asyncio.sleep(unkind.rng.randint(0, unkind.slow_us) / 1e6)
        refusal = unkind.refusal(resource, verb, name)
        if refusal is not None:
            raise refusal
        if resource is not None and isinstance(target, routes.Target):
            content = request.content_type
            for demand in demands(self.registry, resource, target, verb, content, {}):
                self._cluster.rights.allows(demand)
        self._cluster.asker = request.remote or ""
        said = (verb, resource.plural if resource is not None else "", name)
        self._cluster.asked(*said)
        try:
            answer = await super()._dispatch(request)
        except (errors.StatusError, web.HTTPException, OSError):
            raise
        except Exception as error:  # a fault of the stand-in is no answer
            failures.append(("kube", {"message": request.path, "exception": error}))
            raise
        self._cluster.asker = request.remote or ""
        self._cluster.done(*said)
        writes = verb not in ("get", "list", "watch", "discover")
        if writes and unkind.rng.random() < unkind.lost_answers:
            unkind.world.count("api.lost-answer")
            if request.transport is not None:
                request.transport.abort()
        elif verb != "watch":
            await asyncio.sleep(unkind.rng.randint(0, unkind.slow_us) / 1e6)
        return answer

    def _stream(
        self, resource: ResourceType, namespace: str | None, selector: Selector, asked: WatchOptions
    ) -> WatchStream:
        return _Watch(self._unkind, self.registry.store, resource, namespace, selector, asked)


class WorldAmbient:
    """The registry's clock and chance; ``gantry_local.apiserver.ambient.Ambient``."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._rng = machine.world.stream("ambient")

    def now_text(self) -> str:
        return self.later_text(0)

    def later_text(self, seconds: int) -> str:
        when = dt.datetime.fromtimestamp(self._machine.wall_s() + seconds, dt.UTC)
        return when.strftime("%Y-%m-%dT%H:%M:%SZ")

    def uid(self) -> str:
        text = f"{self._rng.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"

    def suffix(self, length: int) -> str:
        return "".join(self._rng.choices(SUFFIX_ALPHABET, k=length))


class PodAddresses:
    """A new address for each life of a pod."""

    def __init__(self, gone: Callable[[str], None]) -> None:
        self._next = 0
        self.release = gone

    def take(self) -> str:
        self._next += 1
        return f"10.0.{3 + self._next // 250}.{1 + self._next % 250}"


class ClaimVolumes(Volumes):
    """Claims are disks of the world; everything else is files beside it."""

    def __init__(self, cluster: OperatedCluster) -> None:
        super().__init__(cluster.root / "kubelet")
        self._cluster = cluster

    def _directory(self, pod: Object, volume: Object, claims: dict[str, str]) -> Path:
        claim = volume.get("persistentVolumeClaim")
        if claim is None or claim["claimName"] not in claims:
            return super()._directory(pod, volume, claims)
        return self._cluster.disk(claims[claim["claimName"]]).directory / "data"

    def prepare(self, pod: Object, sources: Sources, claims: dict[str, str]) -> dict[str, Path]:
        found = super().prepare(pod, sources, claims)
        for name in claims.values():
            disk = self._cluster.disk(name)
            disk._remember(str(disk.directory))  # a mounted directory is there after a power cut
        return found

    def remove_claim(self, volume_name: str) -> None:
        self._cluster.lost_disks.append(volume_name)


class Names(HostsWriter):
    """What the name server says, and where Services' addresses lead."""

    def __init__(self, store: Store, network: Any) -> None:
        super().__init__(store, Path())
        self._network = network

    def write(self) -> None:
        self._scheduled = False
        services = self._store.records(SERVICES)
        slices = [record.obj for record in self._store.records(SLICES)]
        self._network.names = names([service.obj for service in services], slices)
        self._network.services = {}
        for service in services:
            owned = self._store.owned_by(service.uid)
            found = wanted(service.obj, [one.obj for one in owned if one.resource == SLICES])
            self._network.services |= found | _from_outside(service.obj, found)


def _from_outside(
    service: Object, found: dict[tuple[str, int], list[tuple[str, int]]]
) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """Where the addresses lead that a Service has beside its own."""
    spec = service["spec"]
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    given = [one["ip"] for one in balancer.get("ingress") or ()]
    hosts = given if spec.get("type") == "LoadBalancer" else []
    outside = {(host, port): ends for host in hosts for (_, port), ends in found.items()}
    for port in spec.get("ports") or ():
        ends = found.get((spec.get("clusterIP", ""), port["port"]))
        if ends and "nodePort" in port:
            outside[NODE, port["nodePort"]] = ends
    return outside


class _Contained(Process):
    """A simulated process whose end is told, however it ends."""

    def __init__(self, told: Callable[[], None], *arguments: Any, **named: Any) -> None:
        self._told = told
        super().__init__(*arguments, **named)

    def _end(self, *, silently: bool) -> None:
        super()._end(silently=silently)
        self._told()


class ContainerProcess(LocalProcess):
    """One run of a container: what the kubelet has of a process."""

    def __init__(
        self, cluster: OperatedCluster, launch: Launch, *, directory: Path, log_file: Path
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited = self._loop.create_future()
        self._log_file = log_file
        self._code = 137
        component = launch.argv[-1]
        model, server = PROGRAMS[component]

        async def program() -> None:
            told = _told_beside(component, launch)
            settings = load_settings(
                model, {}, launch.env, table=component, otherwise=lambda _: told
            )
            await supervised(partial(server.serve, settings))

        node = cluster.place(component, launch)
        self._machine = node.machine
        rng = cluster.world.stream(f"drift/{node.name}/{node.machine.address}/{len(node.exits)}")
        node.process = self._process = _Contained(
            self._told,
            node.machine,
            node.name,
            program,
            exited=self._by_itself,
            drift=rng.uniform(-cluster.drift, cluster.drift),
        )
        self._process.last_look = cluster.look
        self._node = node
        self.pid = self._process.pid

    def _by_itself(self, process: Process, error: BaseException | None) -> None:
        self._node.exits.append(error)
        operating = None if error is None else _operating_error(error)
        if isinstance(operating, GantryError):
            self._log_file.write_text(f"gantry: {operating}\n")
            self._code = operating.exit_code
        elif error is None or isinstance(error, asyncio.CancelledError):
            self._code = 0
        else:
            raise Violation(f"{self._node.name} ended with a programmer's error") from error

    def _told(self) -> None:
        """The process has ended; a machine without power tells nobody before it is back."""
        if not self._machine.is_up:
            self._machine.world.after(100 * MS, self._told)
        elif not self.exited.done():
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        if not self.exited.done():
            self.exited.set_result(self._code)

    def signal(self, number: int) -> None:
        process = self._process
        if process.is_dead or not self._machine.is_up:
            return
        if number == signal.SIGKILL or number not in process.loop.signals:
            process.kill()
        else:
            process.loop.signal(number)


def _told_beside(component: str, launch: Launch) -> dict[str, str]:
    """What the command reads beside its settings."""
    file = launch.env.get(CONFIG_VARIABLE, "")
    size = _size_beside(file) if component == "controller" else None
    return {} if size is None else {"quorum_size": size}


async def serve(cluster: OperatedCluster, ready: Callable[[Registry], None]) -> None:
    """The program at ``KUBE``; ``ready`` is called when the API server answers."""
    machine = cluster.kube.machine
    ambient = WorldAmbient(machine)
    store = Store()
    registry = Registry(store, ambient, AddressPool(SERVICE_ADDRESSES))
    ensure_namespaces(registry)
    ensure_node(registry)
    volumes = ClaimVolumes(cluster)

    def direct(name: str) -> Direct:
        return Direct(registry, name, ambient)

    kubelet = Kubelet(
        Machinery(
            direct("kubelet"),
            volumes,
            PodAddresses(cluster.unplace),  # type: ignore[arg-type]
            Logs(cluster.root / "logs"),
            Recorder(direct("kubelet"), "kubelet"),
            {},
        )
    )
    runner = Runner(
        store,
        [
            StatefulSetController(direct("statefulset-controller")),
            DeploymentController(direct("deployment-controller")),
            EndpointsController(direct("endpoints-controller")),
            ClaimController(direct("persistentvolume-binder"), volumes.remove_claim),
            GarbageCollector(direct("garbage-collector")),
        ],
    )
    Names(store, cluster.network).start()
    listening = ListenSocket()
    listening.bind((machine.address, PORT))
    await WorldApiServer(registry, cluster.unkind, cluster).start(listening)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.run())
        group.create_task(kubelet.run())
        ready(registry)


async def start_connection(addr_infos: Any, **_: Any) -> Any:
    """``aiohappyeyeballs.start_connection``: a connection that ``create_connection`` takes over."""
    host, port = addr_infos[0][4][:2]
    return await connect(current(), host, port)


@contextmanager
def aiohttp_connects() -> Iterator[None]:
    """aiohttp connects through simulated TCP."""
    import aiohappyeyeballs
    import aiohttp.connector

    eyeballs = SimpleNamespace(**vars(aiohappyeyeballs) | {"start_connection": start_connection})
    with mock.patch.object(aiohttp.connector, "aiohappyeyeballs", eyeballs):
        yield


def _as_completed(coroutines: Collection[Any]) -> Iterator[Any]:
    """``asyncio.as_completed`` of kopf's sets of coroutines, which lie in them by their address."""

    def place(coroutine: Any) -> tuple[str, str]:
        return coroutine.__qualname__, coroutine.cr_frame.f_locals.get("url", "")

    tasks = [asyncio.ensure_future(one) for one in sorted(coroutines, key=place)]
    return asyncio.as_completed(tasks)


@contextmanager
def bound(cluster: OperatedCluster) -> Iterator[None]:
    """The kubelet starts simulated processes, and aiohttp connects through simulated TCP."""
    import gantry_local.kubelet.container as containers
    import gantry_local.kubelet.worker as workers
    from kopf._cogs.clients import scanning
    from kopf._cogs.structs import references

    # Their hashes are those of strings, which differ from process to process, and kopf keeps sets.
    stable = {"__hash__": lambda self: zlib.crc32(repr(self).encode())}
    identity = SimpleNamespace(identify=lambda pid: SimpleNamespace(text=lambda: f"sim://{pid}"))
    with (
        mock.patch.multiple(references.Resource, **stable),
        mock.patch.multiple(references.Selector, **stable),
        mock.patch.object(scanning, "asyncio", SimpleNamespace(as_completed=_as_completed)),
        aiohttp_connects(),
        mock.patch.object(containers, "identity", identity),
        mock.patch.object(workers, "Process", partial(ContainerProcess, cluster)),
        mock.patch.object(logging.getLogger("kopf"), "level", logging.CRITICAL),
    ):
        yield
