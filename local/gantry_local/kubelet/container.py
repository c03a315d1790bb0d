"""One container's life: runs, probes, restarts.

The process is watched, not polled; an exit changes the state before anything else can happen. The
loop ends only by cancellation or when the restart policy says so.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Protocol

from gantry_local.kubelet import identity, probing
from gantry_local.kubelet.backoff import RestartBackoff
from gantry_local.kubelet.environment import ContainerConfigError
from gantry_local.kubelet.status import ContainerState, terminated

if TYPE_CHECKING:
    from gantry_local.kubelet.process import Process

Object = dict[str, Any]
CONFIG_RETRY_S = 0.5
EAGER_S = 0.2
"""Between attempts while the next good one would make a difference: a cluster of processes should
come up as fast as they do. How long failures are tolerated is still periods times threshold."""


class Host(Protocol):
    """The part of a pod that a container needs."""

    def spawn(self, container: Object) -> Process:
        """Start a run; raises ContainerConfigError or OSError."""

    def probe(self, container: Object, kind: str) -> probing.Probe | None:
        """The ``startup``, ``readiness`` or ``liveness`` probe."""

    def changed(self) -> None:
        """The state of a container is different now."""

    def event(self, kind: str, reason: str, message: str) -> None:
        """Something people should see."""

    def last_words(self, container: Object) -> str:
        """The end of what the last run wrote."""

    def now_text(self) -> str:
        """The time."""


class Container:
    """Runs one container of one pod.

    Attributes:
        state: What the pod's status reports.
    """

    def __init__(
        self, spec: Object, state: ContainerState, host: Host, *, policy: str, grace_s: float
    ) -> None:
        self.spec = spec
        self.state = state
        self._host = host
        self._policy = policy
        self._grace_s = grace_s
        self._backoff = RestartBackoff()
        self._process: Process | None = None
        self.stopping = False

    async def run(self) -> None:
        """Run and restart; returns when the restart policy lets the container rest."""
        loop = asyncio.get_running_loop()
        while not self.stopping:
            started = loop.time()
            code = await self._one_run()
            if self.stopping or not self._restarts(code):
                return
            delay = self._backoff.after_exit(loop.time() - started)
            name = self.spec["name"]
            message = f"back-off {delay:g}s restarting failed container={name}"
            self.state.waiting = ("CrashLoopBackOff", message)
            self.state.last_terminated, self.state.terminated = self.state.terminated, None
            self._host.changed()
            if delay > 1:
                text = f"Back-off restarting failed container {name}"
                self._host.event("Warning", "BackOff", text)
            await asyncio.sleep(delay)
            self.state.restarts += 1

    def _restarts(self, code: int) -> bool:
        return self._policy == "Always" or (self._policy == "OnFailure" and code != 0)

    async def _one_run(self) -> int:
        process = await self._start()
        self._process = process
        state = self.state
        began = self._host.now_text()
        who = identity.identify(process.pid)
        state.container_id = who.text() if who is not None else ""
        state.running_since, state.waiting, state.terminated = began, None, None
        self._host.changed()
        async with asyncio.TaskGroup() as group:
            probes = group.create_task(self._probe_all(process))
            code = await process.ended()
            probes.cancel()
        self._process = None
        state.running_since, state.started, state.ready = None, False, False
        words = ""
        if code != 0 and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            words = self._host.last_words(self.spec)
        state.terminated = terminated(code, began, self._host.now_text(), words)
        self._host.changed()
        return code

    async def _start(self) -> Process:
        while True:
            try:
                return self._host.spawn(self.spec)
            except (ContainerConfigError, probing.UnsupportedProbeError) as error:
                reason = "CreateContainerConfigError"
                message = str(error)
            except OSError as error:
                reason, message = "RunContainerError", error.strerror or str(error)
            if self.state.waiting != (reason, message):
                self.state.waiting = (reason, message)
                self._host.changed()
                self._host.event("Warning", "Failed", f"Error: {message}")
            await asyncio.sleep(CONFIG_RETRY_S)

    async def _probe_all(self, process: Process) -> None:
        startup = self._host.probe(self.spec, "startup")
        if startup is not None and not await self._until_started(startup, process):
            return
        self.state.started = True
        readiness = self._host.probe(self.spec, "readiness")
        self.state.ready = readiness is None
        self._host.changed()
        async with asyncio.TaskGroup() as group:
            liveness = self._host.probe(self.spec, "liveness")
            if liveness is not None:
                group.create_task(self._watch_liveness(liveness, process))
            if readiness is not None:
                group.create_task(self._watch_readiness(readiness))

    async def _until_started(self, probe: probing.Probe, process: Process) -> bool:
        verdict = probing.ProbeCount(probe, passing=False)
        await asyncio.sleep(probe.initial_delay_s)
        clock = asyncio.get_running_loop().time
        deadline = clock() + probe.period_s * probe.failure_threshold
        while True:
            success, why = await probing.attempt(probe)
            if verdict.note(success=success):
                return True
            if clock() >= deadline:
                await self._restart("Startup", why, process)
                return False
            await asyncio.sleep(min(EAGER_S, probe.period_s))

    async def _watch_readiness(self, probe: probing.Probe) -> None:
        verdict = probing.ProbeCount(probe, passing=False)
        await asyncio.sleep(probe.initial_delay_s)
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + probe.period_s
            success, why = await probing.attempt(probe)
            ready = verdict.note(success=success)
            if ready is not self.state.ready:
                self.state.ready = ready
                self._host.changed()
                if not ready:
                    self._host.event("Warning", "Unhealthy", f"Readiness probe failed: {why}")
            await _sleep_until(due if verdict.passing else min(due, clock() + EAGER_S))

    async def _watch_liveness(self, probe: probing.Probe, process: Process) -> None:
        verdict = probing.ProbeCount(probe, passing=True)
        await asyncio.sleep(probe.initial_delay_s)
        while not self.stopping:
            due = asyncio.get_running_loop().time() + probe.period_s
            success, why = await probing.attempt(probe)
            if not verdict.note(success=success) and not self.stopping:
                await self._restart("Liveness", why, process)
                return
            await _sleep_until(due)

    async def _restart(self, what: str, why: str, process: Process) -> None:
        """End the run; whoever waits for its exit does the rest."""
        self._host.event("Warning", "Unhealthy", f"{what} probe failed: {why}")
        name = self.spec["name"]
        text = f"Container {name} failed {what.lower()} probe, will be restarted"
        self._host.event("Normal", "Killing", text)
        await process.stop(self._grace_s)

    async def stop(self) -> None:
        """SIGTERM for good; returns when the run has ended, however long that takes."""
        self.stopping = True
        if self._process is not None:
            self._process.signal(signal.SIGTERM)
            await self._process.ended()

    async def kill(self) -> None:
        """SIGKILL for good."""
        self.stopping = True
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
            await self._process.ended()


async def _sleep_until(due: float) -> None:
    await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
