"""Commands of a local cluster: up, down, status, kill, operator on and off.

Every verb may be repeated: what is already so stays so and is said to be. The daemon is found by
its pid and start time, never by name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path  # noqa: TC003 - msgspec evaluates the annotations
from typing import TYPE_CHECKING, Any, Final

import msgspec
from gantry_protocol.errors import ConfigError, GantryError
from gantry_protocol.process.config import flag_name

from gantry_local import manifests
from gantry_local.client import ApiError, Client
from gantry_local.defaults import (
    OPERATOR,
    SYSTEM_NAMESPACE,
    controller_group,
    operator_deployment,
    system_namespace,
)
from gantry_local.kubelet import identity
from gantry_local.real.binaries import find
from gantry_local.state import StateDir
from gantry_local.waiting import Waiting, said_of

if TYPE_CHECKING:
    from gantry_local.client import Resource
    from gantry_local.manifests import Manifest
    from gantry_local.settings import LocalSettings
    from gantry_local.waiting import Progress

# A busy machine is slow, and progress is told: these only end what will never be.
START_TIMEOUT_S: Final = 240.0
READY_TIMEOUT_S: Final = 300.0
STOP_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.1
_OF_THE_DAEMON: Final = frozenset(
    {"api", "api_binaries", "api_emulated", "api_port", "log_segment_bytes"}
)
SIGNALS: Final = ("KILL", "TERM", "STOP", "CONT", "INT", "HUP")


class UpResult(msgspec.Struct, frozen=True):
    """The cluster that ``up`` found or made."""

    already_up: bool
    url: str
    kubeconfig: Path
    state_dir: Path


class PodLine(msgspec.Struct, frozen=True):
    """One pod in ``status``."""

    namespace: str
    name: str
    ready: bool
    phase: str
    restarts: int
    ip: str
    pid: int | None
    labels: dict[str, str]


class ClusterStatus(msgspec.Struct, frozen=True):
    """The status of a cluster without asking brokers or controllers."""

    running: bool
    state_dir: str
    url: str = ""
    pid: int | None = None
    operators_wanted: int = 0
    operators_ready: int = 0
    pods: list[PodLine] = []


def silent(_step: str) -> None:
    """Progress nobody wants to see."""


def client(settings: LocalSettings) -> Client:
    """A client of the cluster; use it in ``async with``."""
    return Client.from_kubeconfig(StateDir(settings.local_dir).kubeconfig)


async def up(
    settings: LocalSettings,
    *,
    progress: Progress = silent,
    wait: bool = True,
    given: frozenset[str] = frozenset(),
) -> UpResult:
    """Bring a cluster up: daemon, CRDs, operator, the default ControllerGroup.

    Args:
        settings: Which cluster and how.
        progress: Called with one line per step, and again and again while a step waits.
        wait: Until the operator and the controllers are Ready.
        given: Fields of the settings that a person gave now; those that have no effect on what
            exists already are told.

    Raises:
        GantryError: one sentence about what did not happen and where to look.
    """
    state = StateDir(settings.local_dir)
    daemon = state.daemon()
    already = daemon is not None
    if daemon is None:
        progress(f"Starting the cluster in {state.path}")
        await _start_daemon(settings, state, progress)
    else:
        for field in sorted(given & _OF_THE_DAEMON):
            progress(
                f"{flag_name(field)} has no effect, because the cluster runs already: give it "
                "after gantry local down"
            )
    async with client(settings) as api:
        progress("Applying the custom resource definitions")
        definitions = manifests.crds()
        for crd in definitions:
            await api.apply(crd)
        await _until_served(api, definitions, progress)
        progress("Starting the operator")
        await api.apply(system_namespace())
        operators = await _ensure_operator(api, settings, state)
        if "operators" in given and operators != settings.operators:
            progress(
                f"{flag_name('operators')} has no effect, because the Deployment exists already "
                f"with {operators}: use gantry local operator start --count"
            )
        progress("Creating the ControllerGroup gantry")
        controllers = await _ensure_controller_group(api, settings)
        if "controller_replicas" in given and controllers != settings.controller_replicas:
            progress(
                f"{flag_name('controller_replicas')} has no effect, because the ControllerGroup "
                f"exists already with {controllers}, which is fixed at its creation"
            )
        if wait:
            await _wait_ready(api, settings, progress)
    return UpResult(already, api.url.partition("/k/")[0], state.kubeconfig, state.path)


async def _start_daemon(settings: LocalSettings, state: StateDir, progress: Progress) -> None:
    # Refuse a foreign directory, and miss programs, here, where the sentence can be seen.
    if state.api(settings.api) == "real":
        find(settings.api_binaries)
    state.open(settings.api)
    env = {k: v for k, v in os.environ.items() if not k.startswith("GANTRY_")}
    for field, value in settings.model_dump().items():
        if value is not None:
            env[f"GANTRY_{field.upper()}"] = str(value)
    env["GANTRY_LOCAL_DIR"] = str(state.path)
    daemon = _spawn(state, env)
    waiting = Waiting(progress, asyncio.get_running_loop().time)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            # The API's address is written a moment after the daemon's identity.
            while state.daemon() is None or not state.kubeconfig.exists():
                if daemon.poll() is not None:
                    raise GantryError(_last_words(state.daemon_log))
                waiting.tell(f"the API server is not there yet (process {daemon.pid} starts)")
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        daemon.kill()
        raise GantryError(
            f"The daemon did not come up in {START_TIMEOUT_S:g} s; see {state.daemon_log}."
        ) from None
    # Not our child to wait for: it outlives this process on purpose.
    daemon.returncode = 0


def _spawn(state: StateDir, env: dict[str, str]) -> subprocess.Popen[bytes]:
    with state.daemon_log.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "gantry_local.daemon"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=env,
            start_new_session=True,
        )


def _last_words(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    said = lines[-1] if lines else "it said nothing"
    return said if said.endswith(".") else f"The daemon ended at once ({said}); see {path}."


async def _until_served(api: Client, definitions: list[Manifest], progress: Progress) -> None:
    """Wait until the kinds of the definitions can be used, which takes a real server a while."""
    kinds = [
        (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"])
        for crd in definitions
        for version in crd["spec"]["versions"]
        if version["served"]
    ]
    waiting = Waiting(progress, asyncio.get_running_loop().time)
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            for api_version, kind in kinds:
                while not await _is_served(api, api_version, kind):
                    waiting.tell(f"the API server does not serve kind {kind} yet")
                    await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise GantryError(
            f"The API server does not serve kind {kind} after {READY_TIMEOUT_S:g} s; look at "
            "gantry local get crds -o yaml."
        ) from None


async def _is_served(api: Client, api_version: str, kind: str) -> bool:
    try:
        await api.kind(api_version, kind)
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True


async def _ensure_operator(api: Client, settings: LocalSettings, state: StateDir) -> int:
    """The Deployment, except that a replica count set by hand (operator stop) stays; the count."""
    replicas = settings.operators
    deployments = await api.kind("apps/v1", "Deployment")
    with contextlib.suppress(ApiError):
        current = await api.get(deployments, OPERATOR, SYSTEM_NAMESPACE)
        replicas = current["spec"]["replicas"]
    await api.apply(operator_deployment(state.kubeconfig, replicas))
    return int(replicas)


async def _ensure_controller_group(api: Client, settings: LocalSettings) -> int:
    """The ControllerGroup, made if there is none; how many controllers it has."""
    wanted = controller_group(settings.controller_replicas)
    groups = await api.kind(wanted["apiVersion"], wanted["kind"])
    try:
        found = await api.get(groups, wanted["metadata"]["name"], "default")
    except ApiError as error:
        if error.code != 404:
            raise
        found, _ = await api.apply(wanted)
    return int(found["spec"]["replicas"])


async def _wait_ready(api: Client, settings: LocalSettings, progress: Progress) -> None:
    deployments = await api.kind("apps/v1", "Deployment")
    sets = await api.kind("apps/v1", "StatefulSet")
    operator = await api.get(deployments, OPERATOR, SYSTEM_NAMESPACE)
    if operator["spec"]["replicas"] == 0:
        progress("The operator is stopped (gantry local operator start), so nothing is awaited")
        return
    progress("Waiting for the operator")
    await _until_ready(api, deployments, OPERATOR, SYSTEM_NAMESPACE, progress)
    progress("Waiting for the controllers")
    await _until_ready(api, sets, "gantry-controller", "default", progress)


async def _until_ready(
    api: Client, resource: Resource, name: str, namespace: str, progress: Progress
) -> None:
    seen = f"{resource.kind} {name} is not made yet"
    pods = await api.kind("v1", "Pod")
    waiting = Waiting(progress, asyncio.get_running_loop().time)
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            while True:
                with contextlib.suppress(ApiError):
                    obj = await api.get(resource, name, namespace)
                    labels = obj["spec"]["selector"]["matchLabels"]
                    selector = ",".join(f"{key}={value}" for key, value in labels.items())
                    seen = said_of(obj, await api.list(pods, namespace, labels=selector))
                    if not seen:
                        return
                waiting.tell(seen)
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise GantryError(
            f"{resource.kind} {name} is not Ready after {READY_TIMEOUT_S:g} s ({seen}); look at "
            f"gantry local get pods -n {namespace} and gantry local logs."
        ) from None


async def down(
    settings: LocalSettings, *, purge: bool = False, progress: Progress = silent
) -> bool:
    """Stop the cluster; returns whether it was running.

    Args:
        settings: Which cluster.
        purge: Also delete its state directory with all data.
        progress: Called with one line per step.

    Raises:
        GantryError: the daemon does not end, or the directory is not a cluster's.
    """
    state = StateDir(settings.local_dir)
    daemon = state.daemon()
    if daemon is not None:
        progress(f"Stopping the cluster in {state.path}")
        daemon.identity.send(signal.SIGTERM)
        await _until_gone(daemon.identity)
    if purge and state.path.exists():
        state.open()  # refuse to delete anything that is not a cluster
        progress(f"Deleting {state.path}")
        shutil.rmtree(state.path)
    return daemon is not None


async def _until_gone(process: identity.ProcessIdentity) -> None:
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.gone()
    except TimeoutError:
        # Its processes are tied to its life, so a killed daemon leaves nothing behind.
        process.send(signal.SIGKILL)
        await process.gone()


async def status(settings: LocalSettings) -> ClusterStatus:
    """The processes that run."""
    state = StateDir(settings.local_dir)
    daemon = state.daemon()
    if daemon is None:
        return ClusterStatus(running=False, state_dir=str(state.path))
    async with client(settings) as api:
        pods = await api.list(await api.kind("v1", "Pod"), None)
        wanted, ready = await _operator_counts(api)
    return ClusterStatus(
        running=True,
        state_dir=str(state.path),
        url=daemon.url,
        pid=daemon.pid,
        operators_wanted=wanted,
        operators_ready=ready,
        pods=[_pod_line(pod) for pod in pods],
    )


async def _operator_counts(api: Client) -> tuple[int, int]:
    try:
        found = await api.get(await api.kind("apps/v1", "Deployment"), OPERATOR, SYSTEM_NAMESPACE)
    except ApiError:
        return 0, 0
    return found["spec"]["replicas"], (found.get("status") or {}).get("readyReplicas", 0)


def _pod_line(pod: dict[str, Any]) -> PodLine:
    state = pod.get("status") or {}
    containers = state.get("containerStatuses") or []
    process = _process_of(pod, "")
    phase = "Terminating" if "deletionTimestamp" in pod["metadata"] else state.get("phase", "")
    return PodLine(
        namespace=pod["metadata"]["namespace"],
        name=pod["metadata"]["name"],
        ready=bool(containers) and all(container["ready"] for container in containers),
        phase=phase,
        restarts=sum(container["restartCount"] for container in containers),
        ip=state.get("podIP", ""),
        pid=None if process is None else process.pid,
        labels=pod["metadata"].get("labels") or {},
    )


def _process_of(pod: dict[str, Any], container: str) -> identity.ProcessIdentity | None:
    container = container or pod["spec"]["containers"][0]["name"]
    for found in (pod.get("status") or {}).get("containerStatuses") or []:
        if container == found["name"] and "running" in found["state"]:
            return identity.parse(found.get("containerID", ""))
    return None


async def set_operators(settings: LocalSettings, count: int) -> None:
    """Run so many operators: 0 stops the operator until further notice."""
    state = StateDir(settings.local_dir)
    async with client(settings) as api:
        await api.apply(operator_deployment(state.kubeconfig, count))


async def kill(
    settings: LocalSettings,
    pod: str,
    *,
    signal_name: str = "KILL",
    namespace: str = "default",
    container: str = "",
) -> int:
    """Signal the process of a pod's container, by default its first; returns its pid.

    Raises:
        GantryError: no such pod, nothing runs in it, or the signal is unknown.
    """
    name = signal_name.upper().removeprefix("SIG")
    if name not in SIGNALS:
        raise ConfigError(f"The signal {signal_name!r} is not one of {', '.join(SIGNALS)}.")
    process = await find_process(settings, pod, namespace=namespace, container=container)
    if not process.send(signal.Signals[f"SIG{name}"]):
        raise _not_running(pod, namespace)
    return process.pid


async def find_process(
    settings: LocalSettings, pod: str, *, namespace: str = "default", container: str = ""
) -> identity.ProcessIdentity:
    """The process of a pod's container, by default of its first.

    Raises:
        GantryError: no such pod, or nothing runs in it.
    """
    async with client(settings) as api:
        found = await api.get(await api.kind("v1", "Pod"), pod, namespace)
    process = _process_of(found, container)
    if process is None:
        raise _not_running(pod, namespace)
    return process


def _not_running(pod: str, namespace: str) -> GantryError:
    return GantryError(f"No process of pod {pod} in namespace {namespace} runs right now.")
