"""Ways to hurt a group. Each returns when it struck, on the monotonic clock.

What must be looked up is looked up before, so that a fault needs no API server when it strikes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness import operators
from harness.node import process_of, signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.trial import Trial


def kill_master_process(trial: Trial) -> float:
    """SIGKILL the master's process from its node."""
    process = process_of(trial.master())
    struck_s = time.monotonic()
    signal(process, "KILL")
    return struck_s


def delete_master_pod(trial: Trial) -> float:
    """Delete the master's pod, so that it is asked to stop and hands over."""
    return _delete_master(trial)


def force_delete_master_pod(trial: Trial) -> float:
    """Delete the master's pod without waiting for its node."""
    return _delete_master(trial, "--grace-period=0", "--force")


def kill_controller_leader(trial: Trial) -> float:
    """SIGKILL the process of the controllers' leader."""
    process = process_of(trial.leader())
    struck_s = time.monotonic()
    signal(process, "KILL")
    return struck_s


def delete_all_controllers(trial: Trial) -> float:
    """Delete every controller at once, by force."""
    pods = [pod["metadata"]["name"] for pod in trial.quorum()]
    struck_s = time.monotonic()
    trial.kube.ctl("delete", "pod", *pods, "--grace-period=0", "--force", "--wait=false")
    return struck_s


def with_operator_killed(fault: Callable[[Trial], float]) -> Callable[[Trial], float]:
    """`fault`, and right before it a SIGKILL of the operator replica that leads."""

    def both(trial: Trial) -> float:
        process = process_of(operators.leader(trial.kube))
        signal(process, "KILL")
        return fault(trial)

    return both


def with_operator_restarted(fault: Callable[[Trial], float]) -> Callable[[Trial], float]:
    """`fault`, while all operator replicas are deleted to be replaced."""

    def both(trial: Trial) -> float:
        operators.delete_all(trial.kube)
        return fault(trial)

    return both


def _delete_master(trial: Trial, *options: str) -> float:
    name = trial.master()["metadata"]["name"]
    struck_s = time.monotonic()
    trial.kube.delete("pod", name, *options)
    return struck_s
