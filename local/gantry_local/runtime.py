"""A whole local cluster as one object: API server, controllers, kubelet, names, Services.

Everything runs in one event loop and is started and stopped in a fixed order.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from gantry_local.apiserver.addresses import AddressPool
from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.ambient import SystemAmbient
from gantry_local.apiserver.bootstrap import ensure_namespaces, kubeconfig
from gantry_local.apiserver.errors import bad_request, not_found
from gantry_local.apiserver.http import ApiServer
from gantry_local.apiserver.registry import Registry
from gantry_local.apiserver.store import Store
from gantry_local.controllers.claims import ClaimController
from gantry_local.controllers.deployment import DeploymentController
from gantry_local.controllers.direct import Direct
from gantry_local.controllers.endpoints import EndpointsController
from gantry_local.controllers.garbage import GarbageCollector
from gantry_local.controllers.runner import Controller, Runner
from gantry_local.controllers.statefulset import StatefulSetController
from gantry_local.files import replace_file
from gantry_local.journal import Journal
from gantry_local.kubelet import logs
from gantry_local.kubelet.addresses import PodAddresses
from gantry_local.kubelet.kubelet import Kubelet
from gantry_local.kubelet.recorder import Recorder
from gantry_local.kubelet.serving import answer
from gantry_local.kubelet.volumes import Volumes
from gantry_local.kubelet.worker import NODE_NAME, PODS, Machine
from gantry_local.network.hosts import HostsWriter
from gantry_local.network.proxy import Proxies

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from aiohttp import web

    from gantry_local.state import Cluster, StateDir

DRAIN_GRACE_S: Final = 5.0
"""What every process gets on the way down; brokers hand over in less (the design's one second)."""
_INHERITED: Final = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "TMPDIR",
    "TZ",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "SSL_CERT_FILE",
)


def base_environment(state: StateDir, extra: dict[str, str]) -> dict[str, str]:
    """Variables every pod's process gets: little of this shell's, nothing of its GANTRY_*."""
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        **env,
        "GANTRY_HOSTS": str(state.hosts),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        **extra,
    }


def controllers(
    registry: Registry, ambient: SystemAmbient, release_volume: Callable[[str], None]
) -> list[Controller]:
    """The controllers of a cluster, each writing under its own name."""

    def direct(name: str) -> Direct:
        return Direct(registry, name, ambient)

    return [
        StatefulSetController(direct("statefulset-controller")),
        DeploymentController(direct("deployment-controller")),
        EndpointsController(direct("endpoints-controller")),
        ClaimController(direct("persistentvolume-binder"), release_volume),
        GarbageCollector(direct("garbage-collector")),
    ]


class LocalCluster:
    """One cluster over one state directory.

    Attributes:
        api: The API server.
        registry: The verbs behind it.
        url: Its base URL once started.
    """

    def __init__(
        self, state: StateDir, identity: Cluster, *, index: int, env: dict[str, str] | None = None
    ) -> None:
        self._state = state
        self._token = identity.token
        ambient = SystemAmbient()
        store = Store()
        self._journal = Journal(state.journal)
        self._journal.load(store)
        network = f"127.78.{index}.0/24"
        readdress_services(store, network)
        self.registry = Registry(store, ambient, AddressPool(network))
        ensure_namespaces(self.registry)
        ensure_node(self.registry)
        volumes = Volumes(state.path)
        direct = Direct(self.registry, "kubelet", ambient)
        self._logs = logs.Logs(state.logs)
        machine = Machine(
            direct,
            volumes,
            PodAddresses(index),
            self._logs,
            Recorder(direct, "kubelet"),
            base_environment(state, env or {}),
        )
        self._kubelet = Kubelet(machine)
        self._kubelet.reset_statuses()
        self._runner = Runner(store, controllers(self.registry, ambient, volumes.remove_claim))
        self._proxies = Proxies(store)
        self._hosts = HostsWriter(store, state.hosts)
        self.api = ApiServer(self.registry, token=self._token, read_log=self._read_log)
        self.url = ""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, listener: socket.socket) -> None:
        """Start everything; the API server serves on ``listener``."""
        self._journal.follow(self.registry.store)
        self._hosts.start()
        self.url = await self.api.start(listener)
        config = yaml.safe_dump(kubeconfig(self.url, self._token))
        replace_file(self._state.kubeconfig, config.encode(), mode=0o600)
        for name, run in (
            ("controllers", self._runner.run()),
            ("proxies", self._proxies.run()),
            ("kubelet", self._kubelet.run()),
        ):
            self._tasks.append(asyncio.create_task(run, name=name))

    async def wait(self, stop: asyncio.Event) -> None:
        """Until ``stop``, or until a part fails; then its error is raised."""
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stopped, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()
        finally:
            stopped.cancel()

    async def stop(self, grace_s: float = DRAIN_GRACE_S) -> None:
        """End every process, then everything else."""
        await self._kubelet.drain(grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.api.stop()
        self._journal.close()

    async def _read_log(
        self, request: web.Request, namespace: str, name: str
    ) -> web.StreamResponse:
        resource = self.registry.catalogue.type(*PODS)
        pod = self.registry.store.get(PODS, (namespace, name))
        if pod is None:
            raise not_found(resource, name)
        query = request.query
        spec = pod.obj["spec"]["containers"]
        container = query.get("container") or spec[0]["name"]
        if container not in [item["name"] for item in spec]:
            raise bad_request(f"container {container} is not valid for pod {name}")
        lines = query.get("tailLines")
        if lines is not None and not lines.isdigit():
            raise bad_request(f"tailLines must be a non-negative integer, got {lines!r}")
        return await answer(self._logs, request, namespace, name, container)


def ensure_node(registry: Registry) -> None:
    """The one node, Ready; cordoning and tainting it only changes the object."""
    resource = registry.catalogue.type("", "nodes")
    if registry.store.get(resource.key, ("", NODE_NAME)) is not None:
        return
    options = Options(manager="kubelet")
    labels = {"kubernetes.io/hostname": NODE_NAME, "kubernetes.io/os": "linux"}
    node = {"metadata": {"name": NODE_NAME, "labels": labels}}
    registry.create(resource, "", node, options)
    status = {
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
    }
    merge = "application/merge-patch+json"
    registry.patch(
        resource, "", NODE_NAME, merge, {"status": status}, options, subresource="status"
    )


def readdress_services(store: Store, network: str) -> None:
    """Give restored Services addresses of this run's range, in case it is another one.

    The last octet is kept, so addresses only change with the cluster's index.
    """
    prefix = network.removesuffix("0/24")
    for record in store.records(("", "services")):
        spec: dict[str, Any] = record.obj["spec"]
        address = spec.get("clusterIP", "None")
        if address == "None" or address.startswith(prefix):
            continue
        moved = prefix + address.rpartition(".")[2]
        obj = {**record.obj, "spec": {**spec, "clusterIP": moved, "clusterIPs": [moved]}}
        store.put(record.resource, record.key, msgspec.json.decode(msgspec.json.encode(obj)))
