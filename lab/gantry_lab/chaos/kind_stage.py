"""Chaos on kind: pods of a real cluster whose nodes run on this machine.

The load is a pod outside the group. It is asked from inside its network namespace, so no port is
forwarded, and nothing that happens to the API server changes what it measures. Its removal is in a
journal of its own before it is made.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from gantry_chaos.checkers.verdicts import Verdict
from gantry_chaos.core.actions import Command
from gantry_chaos.history.records import Batch
from gantry_chaos.inject import objects
from gantry_chaos.inject.kind import KindBackend, pod_namespace
from gantry_chaos.inject.shell import Shell
from gantry_chaos.manifests.selection import with_quorum_labels
from gantry_chaos.plan import engine
from gantry_chaos.plan.journal import Journal
from gantry_chaos.run import SUFFIX
from gantry_operator import names
from gantry_protocol.errors import EXIT_TEMPORARY, ConfigError, GantryError

from gantry_lab.chaos.client_pod import client_pod
from gantry_lab.chaos.local_stage import choose
from gantry_lab.chaos.tiering import question
from gantry_lab.soak.pod import HTTP_PORT
from gantry_lab.soak.views import Count, SoakState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from gantry_chaos.core.timeline import Timeline
    from gantry_chaos.history.observations import Observation
    from gantry_chaos.manifests.selection import Pod

    from gantry_lab.chaos.stage import LoadClient

KUBECTL_TIMEOUT_S = 300.0  # with the judgement of a whole tier, on a busy machine
ASK_TIMEOUT_S = 10.0
START_PATIENCE_S = 90.0
POLL_S = 0.5
SAID_MAX = 300  # characters of what kubectl said, in an error


class ClusterError(GantryError):
    """The cluster did not do what it was asked; the same command may work later."""

    exit_code = EXIT_TEMPORARY


class KindStage:
    """The cluster that kubectl talks to, with one of its groups.

    Args:
        kubectl: the command, with what it needs to find the cluster.
        group: the group that is watched, as the API server has it.
        image: what the load's pod runs: Gantry and the lab.
        folder: where the removal of the load's pod is journaled.
    """

    kind = "kind"

    def __init__(
        self, kubectl: Sequence[str], group: dict[str, Any], image: str, folder: Path
    ) -> None:
        self.kubectl = tuple(kubectl)
        self.namespace = group["metadata"]["namespace"]
        self.group = group["metadata"]["name"]
        self._object = group
        self._controllers = group["spec"]["controllerRef"]["name"]
        self._image = image
        self._folder = folder
        self._shell = Shell(self.kubectl)
        self.names: dict[str, str] = {}
        self._client: PodClient | None = None

    def check(self, timeline: Timeline) -> None:
        """Everything can be played here."""

    def pods(self) -> Sequence[Pod]:
        """See `Stage`."""
        found = objects.pods(self._get("pods", "--all-namespaces")["items"])
        self.names |= {pod.uid: pod.name for pod in found}
        leader = self._leader()
        statefulset = names.controller_statefulset(self._controllers)
        quorum = [
            item.name
            for item in found
            if item.namespace == self.namespace and item.name.startswith(f"{statefulset}-")
        ]
        return with_quorum_labels(
            found, {name: "leader" if name == leader else "follower" for name in quorum}
        )

    def backend(self, run: str) -> KindBackend:
        """See `Stage`."""
        return KindBackend(self.pods, objects.port, run, self._shell)

    @asynccontextmanager
    async def client(self, topic: str) -> AsyncIterator[LoadClient]:
        """See `Stage`."""
        name = f"chaos-{secrets.token_hex(4)}"
        remove = (
            *(*self.kubectl, "--namespace", self.namespace, "delete", "pod", name),
            *("--ignore-not-found", "--grace-period=0", "--force", "--wait=false"),
        )
        with Journal(self._folder / f"client{SUFFIX}", "client") as journal:
            for left in await asyncio.to_thread(engine.heal, journal, self._shell):
                sys.stderr.write(f"{left}: an earlier run left it; removed\n")
            journal.begin(name, (f"{self.namespace}/{name}",), (Command(remove),))
            try:
                self._client = await self._start(name, topic)
                yield self._client
            finally:
                self._client = None
                await asyncio.shield(asyncio.to_thread(engine.heal, journal, self._shell))

    async def tier(self, client: LoadClient, seen: Sequence[Observation]) -> Verdict | None:
        """See `Stage`; the store is asked from the load's pod, which can reach it."""
        wish = self._object["spec"].get("tier")
        if not wish:
            return None
        assert isinstance(client, PodClient), "it is ours"
        wanted = names.selector(names.BROKER, self.group).items()
        addresses = [
            pod.ip
            for pod in await asyncio.to_thread(self.pods)
            if pod.namespace == self.namespace and pod.ip and wanted <= pod.labels.items()
        ]
        asked = question(wish, self._object["metadata"]["uid"], addresses, seen)
        judge = ("python", "-m", "gantry_lab", "chaos", "tier", "--json")
        judging = ("exec", "-i", client.name, "--", *judge)
        said = await asyncio.to_thread(
            self._kubectl, *judging, stdin=msgspec.json.encode(asked).decode(), codes=(0, 1)
        )
        return msgspec.json.decode(said, type=Verdict)

    def _leader(self) -> str | None:
        """The controllers' leader: by the load's word, else as the operator last told."""
        if self._client is not None:
            quorum = self._client.state_now().quorum
            return None if quorum is None else quorum.leader_name
        found = self._get("controllergroup", self._controllers)
        leader = (found.get("status") or {}).get("leader") or {}
        return leader.get("pod")

    async def _start(self, name: str, topic: str) -> PodClient:
        spec = (await asyncio.to_thread(self._get, "controllergroup", self._controllers))["spec"]
        pod = client_pod(
            name,
            namespace=self.namespace,
            topic=topic,
            image=self._image,
            controllers=self._controllers,
            members=int(spec.get("replicas", 3)),
            group=self.group,
            tier=self._object["spec"].get("tier"),
        )
        await asyncio.to_thread(self._kubectl, "create", "-f", "-", stdin=json.dumps(pod))
        deadline = time.monotonic() + START_PATIENCE_S
        while True:
            found = await asyncio.to_thread(self._get, "pod", name)
            phase = found["status"].get("phase")
            if phase == "Running":
                netns = await asyncio.to_thread(pod_namespace, objects.pod(found))
                return PodClient(name, netns, self._shell)
            if phase in ("Failed", "Succeeded") or time.monotonic() >= deadline:
                raise ClusterError(
                    f"The load's pod {name} does not run, but is {phase}: see kubectl "
                    f"--namespace {self.namespace} describe pod {name}."
                )
            await asyncio.sleep(POLL_S)

    def _get(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._kubectl("get", *words, "-o", "json"))
        return found

    def _kubectl(self, *words: str, stdin: str | None = None, codes: Sequence[int] = (0,)) -> str:
        return run_kubectl(self.kubectl, self.namespace, *words, stdin=stdin, codes=codes)


class PodClient:
    """A soak in a pod as a `LoadClient`."""

    def __init__(self, name: str, netns: str, shell: Shell) -> None:
        self.name = name
        self._netns = netns
        self._shell = shell

    async def state(self) -> SoakState:
        """See `LoadClient`."""
        return await asyncio.to_thread(self.state_now)

    async def pause(self, patience_s: float) -> Count:
        """See `LoadClient`."""
        path = f"/v1/pause?patienceS={patience_s}"
        timeout_s = patience_s + ASK_TIMEOUT_S
        said = await asyncio.to_thread(self._ask, "POST", path, timeout_s)
        return msgspec.json.decode(said, type=Count)

    async def batch(self, after: int) -> Batch:
        """See `LoadClient`."""
        said = await asyncio.to_thread(self._ask, "GET", f"/v1/history?after={after}")
        return msgspec.json.decode(said, type=Batch)

    def state_now(self) -> SoakState:
        """`state`, for callers in a thread."""
        return msgspec.json.decode(self._ask("GET", "/v1/state"), type=SoakState)

    def _ask(self, method: str, path: str, timeout_s: float = ASK_TIMEOUT_S) -> str:
        url = f"http://127.0.0.1:{HTTP_PORT}{path}"
        return ask(self._shell, self._netns, method, url, timeout_s)


def ask(shell: Shell, netns: str, method: str, url: str, timeout_s: float = ASK_TIMEOUT_S) -> str:
    """The answer to one HTTP request from inside a network namespace.

    Raises:
        InjectionError: there was none.
    """
    module = (sys.executable, "-m", "gantry_chaos.inject.ask")
    return shell.run(Command((*module, method, url, str(timeout_s)), netns))


def run_kubectl(
    kubectl: Sequence[str],
    namespace: str,
    *words: str,
    stdin: str | None = None,
    codes: Sequence[int] = (0,),
) -> str:
    """The output of kubectl.

    Raises:
        ClusterError: it ended with another code than `codes`, or not in time.
    """
    argv = (*kubectl, "--namespace", namespace, *words)
    try:
        done = subprocess.run(  # noqa: S603 -- a list of our own words
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"kubectl {' '.join(words[:3])} did not run: {error}.") from error
    if done.returncode not in codes:
        said = " ".join((done.stderr or done.stdout).split())[:SAID_MAX]
        raise ClusterError(f"kubectl {' '.join(words[:3])} failed: {said}")
    return done.stdout


def open_kind(
    kubeconfig: str | None, namespace: str, group: str | None, image: str, folder: Path
) -> KindStage:
    """A cluster of kind and one of its groups.

    Raises:
        ConfigError: kubectl is missing, or which group is meant is not clear.
        ClusterError: the API server does not answer.
    """
    if shutil.which("kubectl") is None:
        raise ConfigError("kubectl is not in PATH; it is needed for --on kind.")
    kubectl = ("kubectl", *((f"--kubeconfig={kubeconfig}",) if kubeconfig else ()))
    groups = json.loads(run_kubectl(kubectl, namespace, "get", "brokergroups", "-o", "json"))
    return KindStage(kubectl, choose(groups["items"], group), image, folder)
