"""A local cluster over a real API server, as one object: servers, mirror, kubelet, Services."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import yaml
from gantry_protocol.errors import GantryError
from gantry_protocol.process import log

from gantry_local.apiserver.ambient import SystemAmbient
from gantry_local.apiserver.bootstrap import kubeconfig
from gantry_local.client import ApiError, Client, Resource
from gantry_local.controllers.runner import Runner
from gantry_local.files import replace_file
from gantry_local.kubelet.addresses import PodAddresses
from gantry_local.kubelet.kubelet import Kubelet
from gantry_local.kubelet.logs import Logs
from gantry_local.kubelet.serving import LogServer
from gantry_local.kubelet.volumes import Volumes
from gantry_local.kubelet.worker import NODE_NAME, Machine
from gantry_local.network.hosts import HostsWriter
from gantry_local.network.proxy import Proxies
from gantry_local.real.endpoints import KeptEndpoints, MirroredOnly
from gantry_local.real.mirror import Mirror
from gantry_local.real.outbox import Events, Outbox
from gantry_local.real.provisioner import Provisioner, storage_classes
from gantry_local.real.servers import Servers
from gantry_local.real.wishes import Wishes
from gantry_local.runtime import DRAIN_GRACE_S, base_environment

if TYPE_CHECKING:
    import socket
    from collections import Counter
    from collections.abc import Coroutine

    from gantry_local.real.binaries import Binaries
    from gantry_local.state import Cluster, StateDir

_log = log.get("local.cluster")

SETTLE_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.1
_NAMESPACES: Final = Resource("", "v1", "namespaces", "namespace", "Namespace", namespaced=False)
_NODES: Final = Resource("", "v1", "nodes", "node", "Node", namespaced=False)


class RealCluster:
    """One cluster over one state directory.

    Attributes:
        url: Base URL of the API server once started.
    """

    def __init__(
        self,
        state: StateDir,
        identity: Cluster,
        binaries: Binaries,
        *,
        index: int,
        env: dict[str, str] | None = None,
        emulated: str = "",
    ) -> None:
        self.url = ""
        self._state = state
        self._token = identity.token
        self._network = f"127.78.{index}.0/24"
        self._index = index
        self._emulated = emulated
        self._environment = base_environment(state, env or {})
        self._servers = Servers(state.real, binaries, token=identity.token)
        self._logs = Logs(state.logs)
        self._log_server = LogServer(self._logs)
        self._client: Client | None = None
        self._kubelet: Kubelet | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._counters: list[Counter[str]] = []

    @property
    def failures(self) -> dict[str, int]:
        """Requests and deliveries that failed, by what they were about."""
        return {name: count for counter in self._counters for name, count in counter.items()}

    async def start(self, listener: socket.socket) -> None:
        """Start everything; the API server takes the port of ``listener``, which is closed.

        Raises:
            GantryError: a program ended, or was not ready in time.
        """
        port = listener.getsockname()[1]
        listener.close()
        self.url = await self._servers.start_api(
            port=port, network=self._network, emulated=self._emulated
        )
        config = yaml.safe_dump(kubeconfig(self.url, self._token, ca=self._servers.ca))
        replace_file(self._state.kubeconfig, config.encode(), mode=0o600)
        self._servers.start_manager(self._state.kubeconfig)
        self._client = await Client(self.url, self._token, ca=self._servers.ca).__aenter__()
        self._task("servers", self._servers.run())
        await self._settle(self._prepare(self._client))
        await self._run_parts(self._client)

    async def _settle(self, step: Coroutine[Any, Any, None]) -> None:
        """A step of the start, as long as no part fails."""
        task = asyncio.create_task(step)
        try:
            async with asyncio.timeout(SETTLE_TIMEOUT_S):
                await asyncio.wait({task, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
            self._check()
            await task
        except TimeoutError:
            raise GantryError(
                f"The API server at {self.url} did not serve its first objects in "
                f"{SETTLE_TIMEOUT_S:g} s; see {self._servers.log_file('kube-apiserver')}."
            ) from None
        finally:
            task.cancel()

    async def _prepare(self, client: Client) -> None:
        """The objects that every local cluster begins with."""
        while True:
            with contextlib.suppress(ApiError):  # the server makes it a moment after its start
                await client.get(_NAMESPACES, "default", "")
                break
            await asyncio.sleep(_POLL_S)
        labels = {"kubernetes.io/hostname": NODE_NAME, "kubernetes.io/os": "linux"}
        meta = {"name": NODE_NAME, "labels": labels}
        await client.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta})
        port = await self._log_server.start(*self._servers.certificate)
        status = {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        }
        await client.patch(_NODES, NODE_NAME, "", {"status": status}, subresource="status")
        for storage_class in storage_classes():
            await client.apply(storage_class)

    async def _run_parts(self, client: Client) -> None:
        state, ambient, wishes = self._state, SystemAmbient(), Wishes()
        mirror = Mirror(client, wishes)
        outbox = Outbox(client, mirror.store, wishes, ambient)
        events = Events(client, ambient, "kubelet")
        volumes = Volumes(state.path)
        provisioner = Provisioner(client, mirror.store, state.volumes, volumes.remove_claim)
        self._counters = [mirror.failures, outbox.failures, provisioner.failures]
        self._task("mirror", mirror.run())
        await self._settle(mirror.synced())
        self._kubelet = Kubelet(
            Machine(
                outbox,
                volumes,
                PodAddresses(self._index),
                self._logs,
                events,
                self._environment,
            )
        )
        self._kubelet.reset_statuses()
        HostsWriter(mirror.store, state.hosts).start()
        endpoints = KeptEndpoints(MirroredOnly(mirror.store, ambient))
        self._task("outbox", outbox.run())
        self._task("events", events.run())
        self._task("provisioner", provisioner.run())
        self._task("controllers", Runner(mirror.store, [endpoints]).run())
        self._task("proxies", Proxies(mirror.store).run())
        self._task("kubelet", self._kubelet.run())

    def _task(self, name: str, run: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(run, name=name))

    def _check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def wait(self, stop: asyncio.Event) -> None:
        """Until ``stop``, or until a part fails; then its error is raised."""
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stopped, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
            self._check()
        finally:
            stopped.cancel()

    async def stop(self, grace_s: float = DRAIN_GRACE_S) -> None:
        """End every process, then everything else, the servers last."""
        _log.info("cluster ends", failures=self.failures)
        if self._kubelet is not None:
            await self._kubelet.drain(grace_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._log_server.stop()
        if self._client is not None:
            await self._client.__aexit__(None, None, None)
        await self._servers.stop()
