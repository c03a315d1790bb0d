"""What `gantry local up` says while it waits."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.waiting import Waiting, said_of


def pod(name: str, *, ready: bool = False, restarts: int = 0, **state: Any) -> dict[str, Any]:
    statuses = [{"restartCount": restarts, "state": state}] if state else []
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": {"name": name},
        "status": {"conditions": conditions, "containerStatuses": statuses},
    }


def workload(wanted: int, ready: int) -> dict[str, Any]:
    return {"spec": {"replicas": wanted}, "status": {"readyReplicas": ready}}


def test_a_line_comes_when_it_takes_long_and_when_something_changes() -> None:
    now, lines = [100.0], list[str]()
    waiting = Waiting(lines.append, lambda: now[0])
    said = {0.5: "none", 2.9: "none", 3.0: "none", 4.0: "none", 5.0: "one", 9.9: "one", 10.0: "one"}
    for at, text in said.items():
        now[0] = 100.0 + at
        waiting.tell(text)
    assert lines == ["  3 s: none", "  5 s: one", "  10 s: one"]


@pytest.mark.parametrize(
    ("pods", "ready", "text"),
    [
        ([pod("a", ready=True, running={}), pod("b", ready=True, running={})], 2, ""),
        ([], 0, "0 of 2 pods are Ready; 2 not made yet"),
        (
            [pod("b"), pod("a", ready=True, running={})],
            1,
            "1 of 2 pods are Ready; b is about to start",
        ),
        (
            [pod("a", running={}), pod("b", restarts=2, waiting={"reason": "CrashLoopBackOff"})],
            0,
            (
                "0 of 2 pods are Ready; a runs and does not say yet that it is ready; "
                "b waits: CrashLoopBackOff (restarts: 2)"
            ),
        ),
        (
            [
                pod("a", waiting={"reason": "CreateContainerConfigError", "message": "no s"}),
                pod("b"),
            ],
            0,
            "0 of 2 pods are Ready; a waits: no s; b is about to start",
        ),
    ],
    ids=["ready", "nothing", "starting", "crashing", "message"],
)
def test_what_is_waited_for(pods: list[dict[str, Any]], ready: int, text: str) -> None:
    assert said_of(workload(2, ready), pods) == text


def test_a_pod_that_ends_is_said_to_end() -> None:
    gone = pod("a", running={})
    gone["metadata"]["deletionTimestamp"] = "now"
    assert said_of(workload(1, 0), [gone]) == "0 of 1 pods are Ready; a ends"
