"""Words for a person while a cluster comes up: what is waited for, and for how long.

On a busy machine a step takes a minute. Then a line comes when what is seen changes, and another
every few seconds while nothing does, so that slow can be told from stuck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Progress = Callable[[str], None]

Object = dict[str, Any]
QUIET_S: Final = 3.0
"""Nothing is said of what takes less."""
AGAIN_S: Final = 5.0
"""Between two lines while nothing changes."""


class Waiting:
    """One wait.

    Args:
        progress: Is given lines.
        clock: Seconds; its zero does not matter.
    """

    def __init__(self, progress: Progress, clock: Callable[[], float]) -> None:
        self._progress = progress
        self._clock = clock
        self._began_s = clock()
        self._told = ""
        self._due_s = self._began_s + QUIET_S

    def tell(self, seen: str) -> None:
        """Note the present state; a line when it is worth one."""
        now_s = self._clock()
        changed = bool(self._told) and seen != self._told
        if now_s < self._due_s and not changed:
            return
        self._told, self._due_s = seen, now_s + AGAIN_S
        self._progress(f"  {now_s - self._began_s:.0f} s: {seen}")


def said_of(workload: Object, pods: list[Object]) -> str:
    """The wait of a Deployment or StatefulSet; "" when all its pods are Ready."""
    wanted = workload["spec"]["replicas"]
    ready = (workload.get("status") or {}).get("readyReplicas", 0)
    if ready >= wanted > 0:
        return ""
    unready = [f"{pod['metadata']['name']} {_state(pod)}" for pod in pods if not _is_ready(pod)]
    missing = wanted - len(pods)
    if missing > 0:
        unready.append(f"{missing} not made yet")
    return "; ".join([f"{ready} of {wanted} pods are Ready", *sorted(unready)])


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def _state(pod: Object) -> str:
    """Where a pod is on its way, in a few words."""
    if "deletionTimestamp" in pod["metadata"]:
        return "ends"
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        restarts = f" (restarts: {count})" if (count := container["restartCount"]) else ""
        waiting = container["state"].get("waiting")
        if waiting is not None:
            return f"waits: {waiting.get('message') or waiting['reason']}{restarts}"
        if "running" in container["state"]:
            return f"runs and does not say yet that it is ready{restarts}"
    return "is about to start"
