"""A pod's status from the state of its containers: a pure function."""

from __future__ import annotations

from typing import Any

import msgspec

Object = dict[str, Any]


class ContainerState(msgspec.Struct):
    """The kubelet's knowledge of one container."""

    name: str
    image: str
    container_id: str = ""
    # At most one of the three is not None; none of them means "not created yet".
    running_since: str | None = None
    waiting: tuple[str, str] | None = None
    terminated: Object | None = None
    last_terminated: Object | None = None
    restarts: int = 0
    # The startup probe has passed (or there is none) in this run.
    started: bool = False
    ready: bool = False


def terminated(code: int, started_at: str, finished_at: str, message: str = "") -> Object:
    """The state of an ended run; ``code`` as in ``subprocess`` (negative for signals)."""
    state: Object = {
        "exitCode": 128 - code if code < 0 else code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": started_at,
        "finishedAt": finished_at,
    }
    if code < 0:
        state["signal"] = -code
    if message:
        state["message"] = message
    return state


def pod_status(
    pod: Object, states: list[ContainerState], *, ip: str | None, started_at: str | None, now: str
) -> Object:
    """The status to report.

    Conditions keep their transition times while their status does not change; conditions of others
    (readiness gates) are kept.
    """
    old = pod.get("status") or {}
    ready = bool(states) and all(state.ready for state in states)
    status: Object = {
        "phase": _phase(pod, states),
        "qosClass": old.get("qosClass", "BestEffort"),
        "hostIP": "127.0.0.1",
        "conditions": _conditions(old, ready=ready, sandbox=ip is not None, now=now),
        "containerStatuses": [_container_status(state) for state in states],
    }
    if ip is not None:
        status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
    if started_at is not None:
        status["startTime"] = started_at
    return status


def _phase(pod: Object, states: list[ContainerState]) -> str:
    policy = pod["spec"].get("restartPolicy", "Always")
    ended = [state.terminated for state in states if state.terminated is not None]
    if states and len(ended) == len(states) and policy != "Always":
        failed = [end for end in ended if end["exitCode"] != 0]
        if not failed:
            return "Succeeded"
        if policy == "Never":
            return "Failed"
    if any(state.running_since or state.last_terminated for state in states):
        return "Running"
    return "Pending"


def _conditions(old: Object, *, ready: bool, sandbox: bool, now: str) -> list[Object]:
    previous = {condition["type"]: condition for condition in old.get("conditions") or []}
    verdicts: dict[str, tuple[bool, str]] = {
        "PodScheduled": (True, ""),
        "PodReadyToStartContainers": (sandbox, ""),
        "Initialized": (True, ""),
        "ContainersReady": (ready, "ContainersNotReady"),
        "Ready": (ready, "ContainersNotReady"),
    }
    conditions: list[Object] = []
    for kind, (holds, reason) in verdicts.items():
        state = "True" if holds else "False"
        before = previous.pop(kind, None)
        same = before is not None and before["status"] == state
        since = before["lastTransitionTime"] if before is not None and same else now
        condition = {"type": kind, "status": state, "lastTransitionTime": since}
        if not holds and reason:
            condition["reason"] = reason
        conditions.append(condition)
    return [*conditions, *previous.values()]


def _container_status(state: ContainerState) -> Object:
    status: Object = {
        "name": state.name,
        "image": state.image,
        "imageID": "",
        "ready": state.ready,
        "started": state.started,
        "restartCount": state.restarts,
        "state": _state(state),
        "lastState": {"terminated": state.last_terminated} if state.last_terminated else {},
    }
    if state.container_id:
        status["containerID"] = state.container_id
    return status


def _state(state: ContainerState) -> Object:
    if state.running_since is not None:
        return {"running": {"startedAt": state.running_since}}
    if state.terminated is not None:
        return {"terminated": state.terminated}
    reason, message = state.waiting or ("ContainerCreating", "")
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}
