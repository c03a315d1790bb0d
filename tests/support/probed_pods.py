"""An API server for probes: objects that were read, and real ways to the ports of processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from gantry_operator import names
from gantry_operator.api.credentials import Credentials
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, POD, Kind
from gantry_operator.api.kube import KubeApi
from gantry_operator.api.port_forward import Passage
from gantry_operator.support.material import Material
from support.port_forward import forward
from unit.operator.fake_support import FakeSupport

Body = dict[str, Any]


class ForwardingApi(FakeSupport):
    """Its ports are those of the addresses in `pods`, by way of WebSockets, as of a cluster.

    Attributes:
        pods: an address by the name of a pod.
        refusal: the status with which forwarding is refused; 0 for none.
        forwarded: each pod and port that a way was asked to.
        open: ways that nobody has closed.
    """

    def __init__(self, kube: KubeApi) -> None:
        super().__init__()
        self.pods: dict[str, str] = {}
        self.refusal = 0
        self.forwarded: list[tuple[str, str]] = []
        self.open = 0
        self._kube = kube

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.forwarded.append((request.path.split("/")[-2], request.query["ports"]))
        if self.refusal:
            return web.json_response({"kind": "Status"}, status=self.refusal)
        self.open += 1
        try:
            return await forward(request, self.pods)
        finally:
            self.open -= 1

    async def ask_port(
        self, namespace: str, pod: str, port: int, path: str, *, bytes_max: int
    ) -> bytes:
        return await self._kube.ask_port(namespace, pod, port, path, bytes_max=bytes_max)

    def pass_to_port(
        self, namespace: str, pod: str, port: int
    ) -> AbstractAsyncContextManager[Passage]:
        return self._kube.pass_to_port(namespace, pod, port)


@asynccontextmanager
async def forwarding(directory: Path) -> AsyncIterator[ForwardingApi]:
    """Such an API server, until the end of the block."""
    app = web.Application()
    api: ForwardingApi

    async def serve(request: web.Request) -> web.StreamResponse:
        return await api.serve(request)

    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = directory / "probed.config"
    config.write_text(yaml.safe_dump(_kubeconfig(runner.addresses[0][1])), "utf-8")
    credentials = Credentials(config)
    await credentials.load()
    kube = KubeApi(credentials)
    api = ForwardingApi(kube)
    try:
        yield api
    finally:
        await kube.close()
        await runner.cleanup()


def _kubeconfig(port: int) -> Body:
    named = {"name": "one"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [named | {"context": {"cluster": "one", "user": "one"}}],
        "clusters": [named | {"cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [named | {"user": {"token": "one"}}],
    }


def pod_of(component: str, group: str, ordinal: int, *, role: str = "", door: bool = False) -> Body:
    """A pod that is Ready."""
    containers = [component, *((names.DOOR,) if door else ())]
    labels = names.selector(component, group) | ({names.LABEL_ROLE: role} if role else {})
    return {
        "kind": POD.kind,
        "metadata": {
            "name": f"{group}-{component}-{ordinal}",
            "namespace": "mq",
            "labels": labels,
        },
        "spec": {"containers": [{"name": name} for name in containers]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": name, "state": {"running": {}}} for name in containers],
        },
    }


def group_of(kind: Kind, name: str, **spec: Any) -> Body:
    """A group; a BrokerGroup is of the quorum `gantry`."""
    reference = {"controllerRef": {"name": "gantry"}} if kind == BROKER_GROUP else {}
    return {
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": "mq"},
        "spec": reference | spec,
    }


def material_of(groups: list[tuple[Kind, Body]], pods: list[Body]) -> Material:
    """What a doctor has read."""
    objects: dict[str, list[Body]] = {POD.kind: pods}
    for kind, body in groups:
        objects.setdefault(kind.kind, []).append(body)
    return Material("mq", "", {}, objects, [], [])


def one_group(
    *, replicas: int = 3, door: bool = False, controllers: int = 0, **spec: Any
) -> Material:
    """BrokerGroup `orders`, whose pod 0 has the master, and perhaps a quorum `gantry`."""
    groups = [(BROKER_GROUP, group_of(BROKER_GROUP, "orders", **spec))]
    pods = [
        pod_of(
            names.BROKER,
            "orders",
            ordinal,
            role=names.ROLE_REPLICA if ordinal else names.ROLE_MASTER,
            door=door,
        )
        for ordinal in range(replicas)
    ]
    if controllers:
        groups.append((CONTROLLER_GROUP, group_of(CONTROLLER_GROUP, "gantry")))
        pods += [pod_of(names.CONTROLLER, "gantry", ordinal) for ordinal in range(controllers)]
    return material_of(groups, pods)
