"""Unmodified Java clients in pods: builders of the pods, and what their logs say.

The image is that of e2e/cluster/java-image.sh. Logs come from the kubelet, which rotates them at
10 MiB, so one producer is good for about 90,000 messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.java_log import JavaLog
from harness.node import process_of, signal
from harness.waiting import wait_until

if TYPE_CHECKING:
    from harness.kube import Kube, Object

USER_ID = 10001
DEADLINE_S = 3600  # a pod that was left behind ends by itself
START_PATIENCE_S = 60.0
END_PATIENCE_S = 60.0
TAIL_LINES = 500
QUIET_MS = 1000.0  # writes flow again once acknowledgements have come all this time
RUNS = ("Running", "Succeeded")


class JavaError(Exception):
    """A Java client did not do what it was asked to; the text ends with what it said last."""


def producer_pod(
    name: str, image: str, nameserver: str, topic: str, pause_ms: int, node: str | None = None
) -> Object:
    """A producer with default settings: one message after another until SIGTERM.

    Args:
        name: of the pod.
        image: that of the Java clients.
        nameserver: `host:port`, as the client takes it.
        topic: made by the first message.
        pause_ms: between an answer and the next message.
        node: where it runs; None lets the scheduler choose.
    """
    return _pod(name, image, ["soak", nameserver, topic, str(pause_ms)], node)


def consumer_pod(
    name: str,
    image: str,
    nameserver: str,
    topic: str,
    count: int,
    *,
    mode: str = "lite-pull",
    node: str | None = None,
) -> Object:
    """A consumer with default settings that ends once it has received `count` messages.

    Args:
        name: of the pod.
        image: that of the Java clients.
        nameserver: `host:port`, as the client takes it.
        topic: from its beginning.
        count: how many messages are there at least.
        mode: `lite-pull`, which goes on until 3 s of silence, or `pull`, which reads each queue.
        node: where it runs; None lets the scheduler choose.
    """
    return _pod(name, image, [mode, nameserver, topic, str(count)], node)


class JavaClient:
    """A Java client in a pod that `start` has made."""

    def __init__(self, kube: Kube, name: str) -> None:
        self.kube = kube
        self.name = name

    def log(self, tail_lines: int | None = None) -> JavaLog:
        """What it has said so far, or only the last lines of it."""
        tail = () if tail_lines is None else (f"--tail={tail_lines}",)
        return JavaLog.parse(self.kube.ctl("logs", self.name, *tail))

    def flows(self, since_ms: float = 0.0) -> bool:
        """Whether a message was acknowledged after `since_ms`."""
        acks = self.log(TAIL_LINES).acks
        return bool(acks) and acks[-1].at_ms > since_ms

    def stop(self) -> JavaLog:
        """Ask it to stop, as its kubelet would, but keep the pod and so the log."""
        pod = self.kube.get("pod", self.name)
        if pod is None:
            raise JavaError(f"pod {self.name} is gone")
        signal(process_of(pod), "TERM")
        return self.ended()

    def ended(self, patience_s: float = END_PATIENCE_S) -> JavaLog:
        """Wait until it has ended with success; everything that it said."""
        wait_until(f"{self.name} ends", patience_s, lambda: self.phase() == "Succeeded")
        return self.log()

    def phase(self) -> str:
        """The pod's phase; empty when there is no pod.

        Raises:
            JavaError: it failed.
        """
        phase = ((self.kube.get("pod", self.name) or {}).get("status") or {}).get("phase", "")
        if phase == "Failed":
            said = self.kube.ctl("logs", self.name, "--tail=20")
            raise JavaError(f"{self.name} failed; it said last:\n{said}")
        return str(phase)


def start(kube: Kube, pod: Object) -> JavaClient:
    """Make a pod anew and wait until it runs; one that ends at once is fine too."""
    client = JavaClient(kube, pod["metadata"]["name"])
    kube.delete("pod", client.name, "--grace-period=0", "--force", wait=True)
    kube.apply(pod)
    wait_until(f"pod {client.name} runs", START_PATIENCE_S, lambda: client.phase() in RUNS)
    return client


def gap_ms(sent: JavaLog, struck_ms: float) -> int:
    """The longest gap from the failure until writes have flowed again for a while."""
    resumed_ms = next(ack.at_ms for ack in sent.acks if ack.at_ms > struck_ms + QUIET_MS)
    found = sent.longest_gap_ms(struck_ms, resumed_ms)
    assert found is not None
    return found


def _pod(name: str, image: str, args: list[str], node: str | None) -> Object:
    spec: Object = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": DEADLINE_S,
        "terminationGracePeriodSeconds": 12,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "java",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "args": args,
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                "resources": {
                    "requests": {"cpu": "50m", "memory": "192Mi"},
                    "limits": {"memory": "512Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}}],
    }
    if node is not None:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "java-client"}},
        "spec": spec,
    }
