"""One pod's life on this machine: volumes, address, containers, status, termination."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from gantry_local.controllers.direct import is_terminating
from gantry_local.kubelet import environment, probing
from gantry_local.kubelet.container import Container
from gantry_local.kubelet.environment import ContainerConfigError, Sources
from gantry_local.kubelet.logs import last_words
from gantry_local.kubelet.process import Process
from gantry_local.kubelet.status import ContainerState, pod_status

if TYPE_CHECKING:
    from gantry_local.controllers.direct import Pods
    from gantry_local.kubelet.addresses import PodAddresses
    from gantry_local.kubelet.logs import Logs
    from gantry_local.kubelet.recorder import Posts
    from gantry_local.kubelet.volumes import Volumes

Object = dict[str, Any]
PODS = ("", "pods")
NODE_NAME = "local"
RETRY_S = 0.2
FORCED_GRACE_S = 2.0
"""What a pod still gets whose object was removed under it (the kubelet's own minimum)."""


class Machine(msgspec.Struct, frozen=True):
    """The parts that all pods of a kubelet share."""

    direct: Pods
    volumes: Volumes
    addresses: PodAddresses
    logs: Logs
    recorder: Posts
    base_env: dict[str, str]


class PodWorker:
    """Runs one pod incarnation; ``run`` is its whole life as one task."""

    def __init__(self, pod: Object, machine: Machine) -> None:
        self.pod = pod
        self._machine = machine
        self._ip: str | None = None
        self._directories: dict[str, str] = {}
        self._started_at: str | None = None
        self._containers: list[Container] = []
        self._grace_s = 0.0
        self._terminate = asyncio.Event()
        self._complaint = ""  # why its projected files could not be brought up to date
        # Terminate the processes but keep the pod: the machine goes down, the pod does not.
        self.leave_object = False

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(self.pod["metadata"]["uid"])

    def update(self, pod: Object) -> None:
        """The pod's object changed; a deletion starts termination, a shorter grace shortens it."""
        self.pod = pod
        if "deletionTimestamp" in pod["metadata"]:
            self.terminate(pod["metadata"].get("deletionGracePeriodSeconds", 30))

    def terminate(self, grace_s: float) -> None:
        """Stop within so many seconds."""
        if not self._terminate.is_set() or grace_s < self._grace_s:
            self._grace_s = grace_s
            self._terminate.set()

    def refresh_volumes(self) -> bool:
        """Bring projected files up to date; False while that is not possible.

        A running pod keeps the files it has: what it mounts may be deleted and come back.
        """
        if not self._containers or self._terminate.is_set():
            return True
        try:
            self._machine.volumes.refresh(self.pod, self._sources())
        except (ContainerConfigError, OSError, ValueError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                self.event("Warning", "FailedMount", f"MountVolume.SetUp failed: {error}")
            return False
        self._complaint = ""
        return True

    async def run(self) -> None:
        """Until the pod is terminated or the task is cancelled.

        A cancellation kills the containers and leaves the pod's object as it is.
        """
        try:
            if await self._bind() and await self._prepare():
                await self._run_containers()
            if not self.leave_object:
                self._finish()
        finally:
            await asyncio.gather(*(container.kill() for container in self._containers))
            if self._ip is not None:
                self._machine.addresses.release(self._ip)

    async def _bind(self) -> bool:
        """What the scheduler does: there is one node. False when the pod is to go before.

        No await between the look at the claims and the binding: from then on the pod counts as a
        user of them, and a deletion waits for it.
        """
        said = ""
        while "nodeName" not in self.pod["spec"] and not self._terminate.is_set():
            why = self._unschedulable()
            if not why:
                self.pod = self._machine.direct.bind(self.pod, NODE_NAME) or self.pod
                break
            if why != said:
                said = why
                self.event("Warning", "FailedScheduling", f"0/1 nodes are available: {why}.")
            await self._wait_for_end(RETRY_S)
        return not self._terminate.is_set()

    def _unschedulable(self) -> str:
        """Why the pod cannot be given a node yet: a claim is missing, or on its way out."""
        namespace = self.pod["metadata"]["namespace"]
        for volume in self.pod["spec"].get("volumes") or []:
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if name is None:
                continue
            claim = self._machine.direct.get("", "persistentvolumeclaims", namespace, name)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if is_terminating(claim):
                return f'persistentvolumeclaim "{name}" is being deleted'
        return ""

    async def _prepare(self) -> bool:
        """Volumes and address; False when the pod is to go before it has begun."""
        said = ""
        while not self._terminate.is_set():
            try:
                self._make_sandbox()
            except (ContainerConfigError, OSError, ValueError) as error:
                if str(error) != said:
                    said = str(error)
                    self._machine.recorder.post(self.pod, "Warning", "FailedMount", said)
            else:
                return True
            await self._wait_for_end(RETRY_S)
        return False

    def _make_sandbox(self) -> None:
        machine = self._machine
        if self.pod["spec"].get("initContainers"):
            raise ContainerConfigError("initContainers are not supported by gantry local")
        directories = machine.volumes.prepare(self.pod, self._sources(), self._claims())
        if self._ip is None:
            self._ip = machine.addresses.take()
        if self._ip is None:
            raise ContainerConfigError("no pod address is free (127.77.G.1 to 254 are in use)")
        self._directories = {name: str(path) for name, path in directories.items()}
        self._started_at = machine.direct.ambient.now_text()
        self.pod = {**self.pod, "status": {**self.pod["status"], "podIP": self._ip}}

    def _claims(self) -> dict[str, str]:
        """Bound volume names of the pod's claims."""
        namespace = self.pod["metadata"]["namespace"]
        bound: dict[str, str] = {}
        for volume in self.pod["spec"].get("volumes") or []:
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if name is None:
                continue
            claim = self._machine.direct.get("", "persistentvolumeclaims", namespace, name)
            if claim is not None and "volumeName" in claim["spec"]:
                bound[name] = claim["spec"]["volumeName"]
        return bound

    def _sources(self) -> Sources:
        direct, namespace = self._machine.direct, self.pod["metadata"]["namespace"]
        return Sources(
            lambda name: direct.get("", "configmaps", namespace, name),
            lambda name: direct.get("", "secrets", namespace, name),
        )

    async def _run_containers(self) -> None:
        self._containers = [self._container(item) for item in self.pod["spec"]["containers"]]
        self.changed()
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(container.run()) for container in self._containers]
            await self._terminate.wait()
            await self._stop_containers()
            for run in runs:
                run.cancel()

    async def _stop_containers(self) -> None:
        """SIGTERM to all, SIGKILL at the end of the grace period, which may shrink meanwhile."""
        self._machine.recorder.post(self.pod, "Normal", "Killing", "Stopping containers")
        loop = asyncio.get_running_loop()
        began = loop.time()
        pending = {asyncio.create_task(container.stop()) for container in self._containers}
        while pending:
            left = self._grace_s - (loop.time() - began)
            if left <= 0:
                await asyncio.gather(*(container.kill() for container in self._containers))
            # Short steps, so that a shortened grace period is noticed.
            _, pending = await asyncio.wait(pending, timeout=min(max(left, 0), RETRY_S))

    def _finish(self) -> None:
        """The pod has ended: its object and its own directories go."""
        self._machine.volumes.remove_pod(self.pod)
        self._machine.direct.end(self.pod)

    async def _wait_for_end(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._terminate.wait()
        except TimeoutError:
            pass

    def _container(self, spec: Object) -> Container:
        state = self._initial_state(spec)
        policy = self.pod["spec"].get("restartPolicy", "Always")
        grace_s = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        return Container(spec, state, self, policy=policy, grace_s=grace_s)

    def _initial_state(self, spec: Object) -> ContainerState:
        """A fresh state, or one run later than what the status remembers from before a restart."""
        state = ContainerState(spec["name"], spec["image"])
        for old in (self.pod.get("status") or {}).get("containerStatuses") or []:
            if old["name"] == spec["name"] and old.get("containerID"):
                state.restarts = old["restartCount"] + 1
                state.last_terminated = old["lastState"].get("terminated")
        return state

    # What containers ask of their pod (container.Host).

    def spawn(self, container: Object) -> Process:
        """Start a run of a container."""
        machine, meta = self._machine, self.pod["metadata"]
        for kind in ("startup", "readiness", "liveness"):
            self.probe(container, kind)  # refuse unsupported probes before anything runs
        mounts = {
            mount["mountPath"]: self._mount(mount) for mount in container.get("volumeMounts") or []
        }
        launch = environment.plan_launch(
            self.pod, container, base=machine.base_env, mounts=mounts, sources=self._sources()
        )
        directory = machine.volumes.pod_dir(self.pod)
        directory.mkdir(parents=True, exist_ok=True)
        log_file = machine.logs.begin(meta["namespace"], meta["name"], container["name"])
        process = Process(launch, directory=directory, log_file=log_file)
        text = f"Started container {container['name']}"
        machine.recorder.post(self.pod, "Normal", "Started", text)
        return process

    def _mount(self, mount: Object) -> str:
        directory = self._directories[mount["name"]]
        return f"{directory}/{mount['subPath']}" if mount.get("subPath") else directory

    def probe(self, container: Object, kind: str) -> probing.Probe | None:
        """A probe of a container."""
        assert self._ip is not None
        return probing.parse(container.get(f"{kind}Probe"), container, self._ip)

    def last_words(self, container: Object) -> str:
        """The end of a container's log, as long as a termination message may be."""
        meta = self.pod["metadata"]
        path = self._machine.logs.current(meta["namespace"], meta["name"], container["name"])
        return last_words(path)

    def changed(self) -> None:
        """Write the status."""
        direct, meta = self._machine.direct, self.pod["metadata"]
        current = direct.get(*PODS, meta["namespace"], meta["name"])
        if current is None or current["metadata"]["uid"] != meta["uid"]:
            return
        status = pod_status(
            current,
            [container.state for container in self._containers],
            ip=self._ip,
            started_at=self._started_at,
            now=direct.ambient.now_text(),
        )
        written = direct.set_status(*PODS, current, status)
        if written is not None:
            self.pod = written

    def event(self, kind: str, reason: str, message: str) -> None:
        """Post an event about the pod."""
        self._machine.recorder.post(self.pod, kind, reason, message)

    def now_text(self) -> str:
        """The time."""
        return self._machine.direct.ambient.now_text()
