"""Chaos on `gantry local`: pods are processes, and the load runs in this process."""

from __future__ import annotations

import asyncio
import base64
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from gantry_broker.tier.stores.credentials import Credentials
from gantry_chaos.inject import local as backend
from gantry_chaos.inject import objects
from gantry_chaos.manifests.selection import with_quorum_labels
from gantry_cli.admin import AdminClient
from gantry_cli.target import NAMESPACE, local_admin
from gantry_cli.trial.load import LoadPace
from gantry_local import cluster
from gantry_operator import names
from gantry_protocol.errors import ConfigError

from gantry_lab.chaos.client_pod import KEYS
from gantry_lab.chaos.tiering import judge, question
from gantry_lab.soak.run import Plan, open_soak

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence

    from gantry_chaos.checkers.verdicts import Verdict
    from gantry_chaos.core.timeline import Timeline
    from gantry_chaos.history.observations import Observation
    from gantry_chaos.history.records import Batch
    from gantry_chaos.manifests.selection import Pod
    from gantry_cli.target import Admin
    from gantry_local.settings import LocalSettings

    from gantry_lab.chaos.stage import LoadClient
    from gantry_lab.soak.soak import Soak
    from gantry_lab.soak.views import Count, SoakState

ASK_TIMEOUT_S = 30.0
LANES, INTERVAL_S, QUEUES = 4, 0.02, 4


class LocalStage:
    """The cluster that `gantry local up` started.

    Args:
        settings: which one.
        admin: its controllers.
        group: the group that is watched, as the API server has it.
    """

    kind = "local"
    kubectl: tuple[str, ...] = ()

    def __init__(self, settings: LocalSettings, admin: Admin, group: dict[str, Any]) -> None:
        self.namespace = group["metadata"]["namespace"]
        self.group = group["metadata"]["name"]
        self._object = group
        self._settings = settings
        self._admin = admin
        self._loop = asyncio.get_running_loop()
        self.names: dict[str, str] = {}

    def check(self, timeline: Timeline) -> None:
        """See `Stage`."""
        backend.check(timeline)

    def pods(self) -> Sequence[Pod]:
        """See `Stage`."""
        found: list[Pod] = self._run(self._pods())
        return found

    def backend(self, run: str) -> backend.LocalBackend:
        """See `Stage`."""
        return backend.LocalBackend(self.pods, self)

    def kill(self, pod: str) -> None:
        """SIGKILL the process of `pod`."""
        self._run(cluster.kill(self._settings, pod, namespace=self.namespace))

    def delete(self, pod: str) -> None:
        """Delete `pod`, which is asked to stop."""
        self._run(self._delete(pod))

    @asynccontextmanager
    async def client(self, topic: str) -> AsyncIterator[LoadClient]:
        """See `Stage`."""
        plan = Plan(
            name_servers=self._admin.name_servers,
            topic=topic,
            pace=LoadPace(LANES, INTERVAL_S),
            queues=QUEUES,
            duration_s=None,
            patience_s=0.0,
            metadata=True,
            admin=self._admin,
            group=self.group,
            http=None,
            record=True,
        )
        async with AsyncExitStack() as stack:
            soak = await open_soak(plan, stack)
            yield InProcess(await stack.enter_async_context(soak))

    async def tier(self, client: LoadClient, seen: Sequence[Observation]) -> Verdict | None:
        """See `Stage`."""
        wish = self._object["spec"].get("tier")
        if not wish:
            return None
        uid = self._object["metadata"]["uid"]
        wanted = names.selector(names.BROKER, self.group).items()
        addresses = [pod.ip for pod in await self._pods() if wanted <= pod.labels.items()]
        asked = question(wish, uid, addresses, seen)
        return await judge(asked, await self._keys(wish))

    async def _keys(self, wish: Mapping[str, Any]) -> Credentials:
        secret = (wish.get("credentialsSecret") or {}).get("name")
        if not secret:
            return Credentials()
        async with cluster.client(self._settings) as api:
            found = await api.get(await api.resource("secrets"), secret, self.namespace)
        data = {name: base64.b64decode(text).decode() for name, text in found["data"].items()}
        return Credentials(*(data.get(name, "") for name in KEYS))

    async def _pods(self) -> list[Pod]:
        async with cluster.client(self._settings) as api:
            found = objects.pods(await api.list(await api.resource("pods"), None))
        self.names |= {pod.uid: pod.name for pod in found}
        async with AdminClient(self._admin.controllers, self._admin.token) as admin:
            members = await admin.members()
        return with_quorum_labels(
            found,
            {
                member.name: "leader" if member.role == "leader" else "follower"
                for member in members
            },
        )

    async def _delete(self, pod: str) -> None:
        async with cluster.client(self._settings) as api:
            await api.delete(await api.resource("pods"), pod, self.namespace)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do it on the loop, for a caller in another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ASK_TIMEOUT_S)


class InProcess:
    """A soak in this process as a `LoadClient`."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak

    async def state(self) -> SoakState:
        """See `LoadClient`."""
        return self._soak.state()

    async def pause(self, patience_s: float) -> Count:
        """See `LoadClient`."""
        return await self._soak.pause(patience_s)

    async def batch(self, after: int) -> Batch:
        """See `LoadClient`."""
        assert self._soak.recording is not None, "it was started with one"
        return self._soak.recording.records.batch(after)


async def open_local(settings: LocalSettings, group: str | None) -> LocalStage:
    """The running local cluster and one of its groups.

    Raises:
        ConfigError: no cluster runs, or which group is meant is not clear.
    """
    admin = await local_admin(settings, option="--on kind")
    async with cluster.client(settings) as api:
        groups = await api.list(await api.resource("brokergroups"), NAMESPACE)
    return LocalStage(settings, admin, choose(groups, group))


def choose(groups: Sequence[dict[str, Any]], name: str | None) -> dict[str, Any]:
    """The group that is meant.

    Raises:
        ConfigError: there is none, or there are several.
    """
    there = {group["metadata"]["name"]: group for group in groups}
    if name is None and len(there) == 1:
        return next(iter(there.values()))
    if name is not None and name in there:
        return there[name]
    said = f"no BrokerGroup {name!r}" if name is not None else f"{len(there)} BrokerGroups"
    have = ", ".join(sorted(there)) or "none; apply one, for example examples/brokergroup.yaml"
    raise ConfigError(f"There is {said} here; say which with --group: {have}.")
