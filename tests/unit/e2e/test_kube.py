"""What a wait for a condition says when it ends in vain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness.kube import LAST_EVENTS, Kube

QUORUM = {
    "status": {
        "conditions": [
            {"type": "Available", "status": "False", "reason": "NoQuorum", "message": "0 of 3"}
        ]
    }
}
WAITING = {
    "metadata": {"name": "gantry-controller-0"},
    "spec": {"nodeName": "worker"},
    "status": {
        "phase": "Pending",
        "containerStatuses": [
            {"name": "controller", "ready": False, "state": {"waiting": {"reason": "PullError"}}}
        ],
    },
}
PENDING: dict[str, Any] = {"metadata": {"name": "gantry-controller-1"}, "spec": {}, "status": {}}


class Unready(Kube):
    """A namespace in which nothing becomes ready."""

    def ctl(self, *args: str, stdin: str | None = None, timeout_s: float = 60.0) -> str:
        match args[:2]:
            case ("get", "pods"):
                return json.dumps({"items": [WAITING, PENDING]})
            case ("get", _):
                return json.dumps(QUORUM)
            case _:
                return "".join(f"event {number}\n" for number in range(20))


def test_a_wait_that_ends_says_conditions_pods_and_the_latest_events() -> None:
    with pytest.raises(TimeoutError) as late:
        Unready(Path("config"), "here").wait_for("controllergroup", "gantry", "Available", 0)
    first, condition, waiting, pending, *events = str(late.value).splitlines()
    assert "controllergroup gantry is Available: not within 0 s" in first
    assert condition == "condition Available False NoQuorum 0 of 3"
    assert waiting == (
        "pod gantry-controller-0 worker Pending "
        'controller not ready {"waiting": {"reason": "PullError"}}'
    )
    assert pending == "pod gantry-controller-1 no node no phase"
    assert events == [f"event {number}" for number in range(20 - LAST_EVENTS, 20)]
