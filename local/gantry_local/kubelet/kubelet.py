"""All pods of this machine: takes them over from the API, one task each."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from gantry_protocol.process import log

from gantry_local.kubelet.worker import FORCED_GRACE_S, NODE_NAME, PODS, Machine, PodWorker

if TYPE_CHECKING:
    from gantry_local.apiserver.store import Event

Object = dict[str, Any]
_HOUSEKEEPING_S: Final = 5.0
_RETRY_S: Final = 1.0
_PROJECTED: Final = frozenset({("", "configmaps"), ("", "secrets")})

_log = log.get("local.kubelet")


class Kubelet:
    """Starts a worker for every pod and stops it when the pod goes."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        # Pods whose projected files may be out of date, by uid; files are written by a task of
        # the kubelet's own, never in the path of whoever changed a ConfigMap.
        self._stale: dict[str, None] = {}
        self._stale_wake = asyncio.Event()

    def reset_statuses(self) -> None:
        """After a restart of the machine nothing runs: no pod is Ready, none has an address."""
        for pod in self._machine.direct.all(*PODS):
            status = dict(pod.get("status") or {})
            status.pop("podIP", None)
            status.pop("podIPs", None)
            for condition in (conditions := [dict(c) for c in status.get("conditions") or []]):
                if condition["type"] in {"Ready", "ContainersReady"}:
                    condition["status"] = "False"
            status["conditions"] = conditions
            status["containerStatuses"] = [
                {**c, "ready": False, "started": False}
                for c in status.get("containerStatuses") or []
            ]
            self._machine.direct.set_status(*PODS, pod, status)

    async def run(self) -> None:
        """Until cancelled; a cancellation kills every process."""
        store = self._machine.direct.store
        unsubscribe = store.subscribe(self._on_event, name="kubelet", resync=self._resync)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._resync()
                group.create_task(self._keep_volumes())
                while True:
                    self._machine.logs.trim()
                    self._machine.recorder.prune()
                    await asyncio.sleep(_HOUSEKEEPING_S)
        finally:
            self._group = None
            unsubscribe()

    async def drain(self, grace_s: float) -> None:
        """SIGTERM to every process, SIGKILL after the grace period; the pods' objects stay."""
        for worker in self._workers.values():
            worker.leave_object = True
            worker.terminate(grace_s)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _keep_volumes(self) -> None:
        """Bring projected files up to date; what cannot be is tried again."""
        while True:
            await self._stale_wake.wait()
            self._stale_wake.clear()
            stale, self._stale = self._stale, {}
            for uid in stale:
                worker = self._workers.get(uid)
                if worker is not None and not worker.refresh_volumes():
                    self._stale[uid] = None
                await asyncio.sleep(0)
            if self._stale:
                # A source that comes back wakes this at once; a full disk tells nobody.
                asyncio.get_running_loop().call_later(_RETRY_S, self._stale_wake.set)

    def _resync(self) -> None:
        """Look at every pod and at all that is mounted in them."""
        pods = {pod["metadata"]["uid"]: pod for pod in self._machine.direct.all(*PODS)}
        for uid, worker in tuple(self._workers.items()):
            if uid not in pods:
                worker.terminate(FORCED_GRACE_S)
        for pod in pods.values():
            self._on_pod(pod)
        self._stale.update(dict.fromkeys(self._workers))
        self._stale_wake.set()

    def _on_event(self, event: Event) -> None:
        record = event.record
        if record.resource in _PROJECTED:
            for uid, worker in self._workers.items():
                if worker.pod["metadata"]["namespace"] == record.key[0]:
                    self._stale[uid] = None
            self._stale_wake.set()
        elif record.resource == PODS:
            if event.type == "DELETED":
                worker_gone = self._workers.get(record.uid)
                if worker_gone is not None:
                    worker_gone.terminate(FORCED_GRACE_S)
            else:
                self._on_pod(record.obj)

    def _on_pod(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if worker is not None:
            worker.update(pod)
            return
        if self._group is None or (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
            return
        if pod["spec"].get("nodeName", NODE_NAME) != NODE_NAME:
            return
        worker = PodWorker(pod, self._machine)
        self._workers[uid] = worker
        worker.update(pod)
        self._tasks[uid] = self._group.create_task(self._live(worker))

    async def _live(self, worker: PodWorker) -> None:
        meta = worker.pod["metadata"]
        _log.info("pod begins", namespace=meta["namespace"], pod=meta["name"], uid=worker.uid)
        try:
            await worker.run()
        except Exception as error:  # noqa: BLE001  # one pod must not end the others
            _log.exception("pod failed", error, namespace=meta["namespace"], pod=meta["name"])
        finally:
            self._workers.pop(worker.uid, None)
            self._tasks.pop(worker.uid, None)
            _log.info("pod ended", namespace=meta["namespace"], pod=meta["name"], uid=worker.uid)
