"""The cluster's API through kubectl: what a user has, so what the tests use.

Objects are plain dictionaries. What is missing is None; every other failure is a `CommandError`
with what kubectl said.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harness.shell import CommandError, run
from harness.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

Object = dict[str, Any]
LAST_EVENTS = 8


class Kube:
    """kubectl with one namespace as its default.

    Args:
        kubeconfig: which cluster.
        namespace: which namespace `get` and the others look into.
    """

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace

    def within(self, namespace: str) -> Kube:
        """The same cluster, another namespace."""
        return Kube(self.kubeconfig, namespace)

    def ctl(self, *args: str, stdin: str | None = None, timeout_s: float = 60.0) -> str:
        """Run kubectl and return what it printed."""
        base = ("kubectl", f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}")
        return run(*base, *args, stdin=stdin, timeout_s=timeout_s)

    def get(self, kind: str, name: str) -> Object | None:
        """One object, or None where there is none."""
        try:
            found: Object = json.loads(self.ctl("get", kind, name, "-o", "json"))
        except CommandError as error:
            if "(NotFound)" in str(error):
                return None
            raise
        return found

    def list(self, kind: str, selector: str = "") -> list[Object]:
        """All objects of a kind, or those with the labels of `selector`."""
        found = json.loads(self.ctl("get", kind, f"--selector={selector}", "-o", "json"))
        items: list[Object] = found["items"]
        return items

    def apply(self, *objects: Object) -> str:
        """Server-side apply."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return self.ctl("apply", "--server-side", "-f", "-", stdin=text)

    def apply_file(self, manifest: Path) -> str:
        """`kubectl apply -f`, as a user types it."""
        return self.ctl("apply", "-f", str(manifest))

    def delete(self, kind: str, name: str, *options: str, wait: bool = False) -> None:
        """Delete one object; one that is gone already is fine."""
        self.ctl(
            "delete", kind, name, "--ignore-not-found", f"--wait={str(wait).lower()}", *options
        )

    def patch(self, kind: str, name: str, change: Object) -> None:
        """Merge `change` into an object."""
        self.ctl("patch", kind, name, "--type=merge", "-p", json.dumps(change))

    def condition(self, kind: str, name: str, condition: str) -> Object | None:
        """One condition of an object's status, or None while it has none."""
        found = self.get(kind, name) or {}
        for entry in found.get("status", {}).get("conditions", ()):
            if entry["type"] == condition:
                return dict(entry)
        return None

    def wait_for(self, kind: str, name: str, condition: str, patience_s: float) -> None:
        """Wait until a condition is True.

        Raises:
            TimeoutError: it was not within `patience_s`; says what the namespace looked like.
        """

        def holds() -> bool:
            return (self.condition(kind, name, condition) or {}).get("status") == "True"

        try:
            wait_until(f"{kind} {name} is {condition}", patience_s, holds)
        except TimeoutError as late:
            raise TimeoutError("\n".join((str(late), *self.story(kind, name)))) from None

    def story(self, kind: str, name: str) -> tuple[str, ...]:
        """Why an object is not as it should be: its conditions, pods and the latest events."""
        status = (self.get(kind, name) or {}).get("status", {})
        return (
            *map(condition_line, status.get("conditions", ())),
            *map(pod_line, self.list("pods")),
            *self.ctl("events", "--no-headers").splitlines()[-LAST_EVENTS:],
        )

    def create_namespace(self) -> None:
        """Make this object's namespace, restricted by the Pod Security Standards."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": self.namespace, "labels": labels},
            }
        )


def condition_line(condition: Object) -> str:
    """A condition of a status in one line."""
    said = (condition.get(word, "") for word in ("type", "status", "reason", "message"))
    return "condition " + " ".join(map(str, said))


def pod_line(pod: Object) -> str:
    """A pod's name, node, phase and what its containers wait for, in one line."""
    status = pod.get("status", {})
    containers = (
        *status.get("initContainerStatuses", ()),
        *status.get("containerStatuses", ()),
    )
    states = [
        f"{one['name']} {'ready' if one['ready'] else 'not ready'} {json.dumps(one['state'])}"
        for one in containers
    ]
    where = pod["spec"].get("nodeName", "no node")
    return " ".join(
        ("pod", pod["metadata"]["name"], where, status.get("phase", "no phase"), *states)
    )
