"""A local cluster in the test's own loop: arrange, wait for what is seen, never for a time."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.deletion import DeleteOptions
from gantry_local.kubelet import identity
from gantry_local.runtime import LocalCluster
from gantry_local.state import StateDir, claim_index
from gantry_protocol.process.listening import bind
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

Object = dict[str, Any]
SERVER = Path(__file__).with_name("pod_server.py")
MERGE = "application/merge-patch+json"


class LocalWorld:
    """Verbs over a running cluster, in namespace ``default``."""

    def __init__(self, cluster: LocalCluster, state: StateDir) -> None:
        self.cluster = cluster
        self.state = state
        self.registry = cluster.registry

    def type(self, plural: str, group: str = "") -> Any:
        return self.registry.catalogue.type(group, plural)

    def apply(self, obj: Object) -> Object:
        resource = self.registry.catalogue.of_kind(obj["apiVersion"], obj["kind"])
        assert resource is not None
        name = obj["metadata"]["name"]
        options = Options(manager="test", force=True)
        return self.registry.apply(resource, "default", name, obj, options).record.obj

    def get(self, plural: str, name: str, group: str = "") -> Object | None:
        record = self.registry.store.get((group, plural), ("default", name))
        return None if record is None else record.obj

    def patch(self, plural: str, name: str, patch: Object, group: str = "") -> None:
        resource = self.type(plural, group)
        self.registry.patch(resource, "default", name, MERGE, patch, Options())

    def delete(self, plural: str, name: str, group: str = "", **options: Any) -> None:
        resource = self.type(plural, group)
        self.registry.delete(resource, "default", name, DeleteOptions(**options))

    def pod(self, name: str) -> Object:
        found = self.get("pods", name)
        assert found is not None, f"no pod {name}"
        return found

    def process(self, name: str) -> identity.ProcessIdentity | None:
        """The running process of a pod."""
        pod = self.get("pods", name)
        statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or []
        if not statuses or "running" not in statuses[0]["state"]:
            return None
        return identity.parse(statuses[0]["containerID"])

    def ready(self, name: str) -> bool:
        pod = self.get("pods", name)
        conditions = ((pod or {}).get("status") or {}).get("conditions") or []
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    async def until(self, check: Callable[[], Any], what: str = "") -> Any:
        """Wait until ``check`` gives something true; every change of the store asks again."""
        changed = asyncio.Event()
        unsubscribe = self.registry.store.subscribe(lambda _event: changed.set(), name="test")
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not (found := check()):
                    changed.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await changed.wait()
                return found
        except TimeoutError:
            raise AssertionError(f"never happened: {what or check}") from None
        finally:
            unsubscribe()

    async def until_ready(self, *names: str) -> None:
        await self.until(lambda: all(map(self.ready, names)), f"{names} Ready")

    async def ask(self, host: str, port: int, path: str = "/") -> str:
        """GET over plain TCP; the body."""
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            answer = await reader.read()
        finally:
            writer.close()
        return answer.decode().partition("\r\n\r\n")[2]


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[LocalWorld]:
    """A started cluster over ``directory``; stopped hard at the end."""
    state = StateDir(directory)
    identity_ = state.open()
    index, claim = claim_index(identity_.index)
    identity_.index = index
    state.save(identity_)
    cluster = LocalCluster(state, identity_, index=index)
    await cluster.start(bind("127.0.0.1", 0, purpose="the API"))
    try:
        yield LocalWorld(cluster, state)
        assert cluster.registry.store.failures == {}, "a part failed on a change of an object"
    finally:
        await cluster.stop(grace_s=0.0)
        claim.close()


def container(*args: str, **fields: Any) -> Object:
    """A container that runs the test's HTTP server."""
    probe = {"httpGet": {"path": "/ready", "port": 8000}, "periodSeconds": 1, "failureThreshold": 1}
    return {
        "name": "web",
        "image": "test",
        "command": ["python", str(SERVER), *args],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "DATA", "value": "/data"},
        ],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": probe,
        **fields,
    }


def stateful_set(name: str = "web", replicas: int = 1, **fields: Any) -> Object:
    """A StatefulSet of test servers with one claim each, mounted at /data."""
    mounts = [{"name": "data", "mountPath": "/data"}]
    spec = {
        "terminationGracePeriodSeconds": 5,
        "containers": [container(volumeMounts=mounts, **fields)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        },
    }


def service(name: str, app: str = "web", **spec: Any) -> Object:
    """A Service over the pods of a StatefulSet."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "selector": {"app": app},
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
            **spec,
        },
    }
