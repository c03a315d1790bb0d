"""The real operator against the local API server, pretend pods and a stand-in quorum."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.deletion import DeleteOptions
from gantry_operator.api.kinds import (
    BROKER_GROUP,
    CONTROLLER_GROUP,
    POD,
    SERVICE,
    STATEFULSET,
    Kind,
)
from gantry_operator.quorums import directory
from gantry_operator.server import serve
from gantry_operator.settings import OperatorSettings
from gantry_protocol.admin_client.quorum import Endpoint
from gantry_protocol.member_tls.asking import Trust
from integration.operator.quorum_double import FakeQuorum
from support.patience import PATIENCE_S
from support.pretend_cluster import PretendCluster
from support.rights import Right, Rights

ROOT = Path(__file__).parents[3]
Json = dict[str, Any]


class World:
    """A cluster, its quorum, and operators that come and go.

    Attributes:
        kubeconfig: of people, who may do everything. Operators have the rights of the chart's Role.
    """

    def __init__(self, cluster: PretendCluster, quorum: FakeQuorum, kubeconfig: Path) -> None:
        self.cluster = cluster
        self.quorum = quorum
        self.kubeconfig = kubeconfig
        self.namespace = "default"
        self._operators: list[Rights] = []

    # The cluster

    def apply(self, body: Json) -> Json:
        kind = self.cluster.registry.catalogue.of_kind(body["apiVersion"], body["kind"])
        if kind is not None and kind.namespaced:
            body["metadata"].setdefault("namespace", self.namespace)
        return self.cluster.apply(body)

    def move_to(self, namespace: str) -> None:
        """Makes a namespace, in which everything is from now on."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        self.namespace = namespace

    def example(self, name: str, **spec: Any) -> Json:
        body = yaml.safe_load((ROOT / "examples" / name).read_text())
        body["spec"] |= spec
        return self.apply(body)

    def group(self, name: str = "orders", **spec: Any) -> Json:
        return self.apply(
            {
                "apiVersion": BROKER_GROUP.api_version,
                "kind": BROKER_GROUP.kind,
                "metadata": {"name": name},
                "spec": spec,
            }
        )

    def get(self, kind: Kind, name: str) -> Json | None:
        record = self.cluster.registry.store.get((kind.group, kind.plural), (self.namespace, name))
        return None if record is None else record.obj

    def require(self, kind: Kind, name: str) -> Json:
        found = self.get(kind, name)
        assert found is not None, f"{kind.kind} {name} does not exist"
        return found

    def all(self, kind: Kind) -> list[Json]:
        return [r.obj for r in self.cluster.registry.store.records((kind.group, kind.plural))]

    def patch(self, kind: Kind, name: str, patch: Json, *, subresource: str = "") -> None:
        resource = self.cluster.registry.catalogue.type(kind.group, kind.plural)
        content = "application/merge-patch+json"
        options = Options(manager="somebody")
        self.cluster.registry.patch(
            resource, self.namespace, name, content, patch, options, subresource=subresource
        )

    def delete(self, kind: Kind, name: str) -> None:
        resource = self.cluster.registry.catalogue.type(kind.group, kind.plural)
        self.cluster.registry.delete(resource, self.namespace, name, DeleteOptions())

    # What the operator says

    def condition(self, name: str, of: str = "orders", kind: Kind = BROKER_GROUP) -> Json:
        body = self.get(kind, of) or {}
        for condition in (body.get("status") or {}).get("conditions", ()):
            if condition["type"] == name:
                found: Json = condition
                return found
        return {"status": "", "reason": "", "message": ""}

    def is_true(self, name: str, of: str = "orders", kind: Kind = BROKER_GROUP) -> bool:
        body = self.get(kind, of) or {"metadata": {}}
        condition = self.condition(name, of, kind)
        current = condition.get("observedGeneration") == body["metadata"].get("generation")
        return bool(current) and condition["status"] == "True"

    def roles(self, group: str = "orders") -> list[str | None]:
        pods = self.quorum.pods("broker", group)
        return [pod["metadata"]["labels"].get("mq.gantry.dev/role") for pod in pods]

    def revisions(self, group: str = "orders") -> tuple[set[str], str]:
        """Revisions of the pods, and the wished one."""
        pods = self.quorum.pods("broker", group)
        live = self.require(STATEFULSET, f"{group}-broker")
        found = {pod["metadata"]["labels"]["controller-revision-hash"] for pod in pods}
        return found, live["status"]["updateRevision"]

    def unready(self, *pods: str) -> None:
        """These pods, and no others, are not Ready."""
        kubelet = self.cluster.kubelet
        changed = kubelet.unready ^ set(pods)
        kubelet.unready = set(pods)
        for name in changed:
            kubelet.reconcile((self.namespace, name))

    # Time

    async def until(self, check: Callable[[], object], what: str = "") -> None:
        """Waits until something is so."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not check():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            groups = [body.get("status") for body in self.all(BROKER_GROUP)]
            quorums = [body.get("status") for body in self.all(CONTROLLER_GROUP)]
            raise AssertionError(f"never: {what}; {groups}; {quorums}") from None

    async def settled(self, group: str = "orders") -> None:
        """Waits until a group is well and nothing is under way."""
        await self.until(
            lambda: (
                self.is_true("Available", group)
                and self.is_true("FullyReplicated", group)
                and self.condition("Progressing", group)["status"] == "False"
                and None not in self.roles(group)
            ),
            f"{group} settles",
        )

    @contextlib.asynccontextmanager
    async def operator(self, **settings: Any) -> AsyncIterator[asyncio.Task[None]]:
        """A running operator, with the rights that the chart gives it."""
        stop = asyncio.Event()
        home = settings.get("lease_namespace", self.namespace)
        rights = Rights(home, settings.get("namespaces", ()))
        self._operators.append(rights)
        path = self.kubeconfig.with_name(f"operator-{len(self._operators)}")
        kubeconfig = self.cluster.write_user(path, rights)
        fields: Json = {"kubeconfig": kubeconfig, "http_port": 0, "image": "gantry:test"}
        task = asyncio.create_task(serve(OperatorSettings(**(fields | settings)), stop))
        try:
            yield task
        finally:
            stop.set()
            await asyncio.gather(task, return_exceptions=True)

    def used(self) -> set[Right]:
        """The rights that operators have needed."""
        return set().union(*(rights.used for rights in self._operators))

    def judge_rights(self) -> None:
        """Raises AssertionError: an operator asked for what it has no right to."""
        assert [demand for rights in self._operators for demand in rights.refused] == []

    async def up(self, **spec: Any) -> None:
        """The examples, settled."""
        self.example("controllergroup.yaml")
        self.example("brokergroup.yaml", **spec)
        await self.settled()


@contextlib.asynccontextmanager
async def a_world(tmp_path: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """An empty cluster with the CRDs, and a quorum that every controller pod stands for."""
    async with PretendCluster(bookmark_interval_s=0.2) as cluster, FakeQuorum(cluster) as quorum:
        cluster.load(ROOT / "crds")

        def endpoint(pod: str, _host: str, _port: int, trust: Trust | None) -> Endpoint:
            return Endpoint(pod, "127.0.0.1", quorum.port, trust)

        patch.setattr(directory, "Endpoint", endpoint)
        world = World(cluster, quorum, cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        yield world
        world.judge_rights()


__all__ = ["CONTROLLER_GROUP", "POD", "SERVICE", "World", "a_world"]
