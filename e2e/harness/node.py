"""The nodes of the test cluster, which are containers, and the processes of pods on them.

Signals are sent from the node, behind the kubelet's back: a pod that is deleted by force still gets
its SIGTERM first, so that would be no crash.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.shell import CommandError, run
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.kube import Object

CTR = ("ctr", "--namespace", "k8s.io")
UNABLE_TO_FREEZE = "unable to freeze"
FREEZE_PATIENCE_S = 8.0
FREEZE_PAUSE_S = 0.5
RUNNING_PATIENCE_S = 10.0  # a killed container starts again after a second


class Process(NamedTuple):
    """The main process of a pod's container, by its id on the node."""

    node: str
    pid: int


def on_node(node: str, *argv: str, timeout_s: float = 30.0) -> str:
    """Run a program on a node.

    In the namespaces of the node, where this process may enter them: `docker exec` starts a
    container runtime each time. A load that is looked at ten times a second took a whole processor
    that way, and the figures with it.
    """
    init = _init_of(node)
    namespaces = Path(f"/proc/{init}/ns/net")
    if os.geteuid() == 0 and shutil.which("nsenter") and namespaces.exists():
        return run("nsenter", "--target", str(init), "--all", "--", *argv, timeout_s=timeout_s)
    return run("docker", "exec", node, *argv, timeout_s=timeout_s)


@cache
def _init_of(node: str) -> int:
    """The id of a node's first process on this machine; it lasts as long as the cluster."""
    return int(run("docker", "inspect", "--format={{.State.Pid}}", node))


def process_of(pod: Object, container: str = "") -> Process:
    """The process of a pod's container, by default of its first.

    The node is asked, not the pod's status: that lags behind a container that was just killed.

    Raises:
        TimeoutError: the container does not run.
    """
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "")
    container = container or pod["spec"]["containers"][0]["name"]
    return wait_until(
        f"container {container} of pod {name} runs on {node or 'a node'}",
        RUNNING_PATIENCE_S,
        lambda: _running(node, pod["metadata"]["uid"], container),
    )


def _running(node: str, pod_uid: str, container: str) -> Process | None:
    labels = {"io.kubernetes.pod.uid": pod_uid, "io.kubernetes.container.name": container}
    wanted = ",".join(f'labels."{label}"=={text}' for label, text in labels.items())
    ids = on_node(node, *CTR, "containers", "ls", "--quiet", wanted).split()
    tasks = on_node(node, *CTR, "tasks", "ls")
    for container_id in ids:
        found = re.search(rf"^{container_id}\s+(\d+)\s+RUNNING", tasks, re.MULTILINE)
        if found:
            return Process(node, int(found[1]))
    return None


def signal(process: Process, name: str) -> None:
    """Send a signal, for example `KILL`."""
    on_node(process.node, "kill", f"-{name}", str(process.pid))


def rss_bytes(process: Process) -> int:
    """Resident memory, as the kernel counts it."""
    status = on_node(process.node, "cat", f"/proc/{process.pid}/status")
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    if not found:
        raise CommandError(f"process {process.pid} on {process.node} has no memory: it ended")
    return int(found[1]) * 1024


@contextmanager
def paused(node: str) -> Iterator[None]:
    """Freeze a whole node; it goes on when the context is left, whatever happened."""
    freeze(node)
    try:
        yield
    finally:
        thaw(node)


def freeze(node: str) -> float:
    """Freeze a node until `thaw`; when it stopped, in seconds of `time.monotonic`.

    Raises:
        CommandError: it was refused.
        TimeoutError: the freezer gave up each time.
    """
    frozen = f"{node} is frozen"
    return wait_until(frozen, FREEZE_PATIENCE_S, lambda: _frozen_s(node), poll_s=FREEZE_PAUSE_S)


def _frozen_s(node: str) -> float | None:
    """When it stopped; None if it did not.

    The version 1 freezer gives up, and lets all run again, when processes keep starting while it
    works through them; that says nothing about what is tested, so it may be asked again.
    """
    struck_s = time.monotonic()
    try:
        run("docker", "pause", node)
    except CommandError as error:
        if UNABLE_TO_FREEZE not in str(error):
            raise
        return None
    return struck_s


def thaw(node: str) -> None:
    """Let a frozen node go on; one that is not frozen stays as it is."""
    if is_paused(node):
        run("docker", "unpause", node)


def is_paused(node: str) -> bool:
    """Whether the node is frozen."""
    found = json.loads(run("docker", "inspect", "--format={{json .State.Paused}}", node))
    return bool(found)
