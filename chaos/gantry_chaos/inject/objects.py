"""Pods as Kubernetes describes them, turned into what selectors and injections need. Pure.

Resources come from an API server of any version, so unknown fields are passed over; what is needed
and missing is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_chaos.errors import InjectionError
from gantry_chaos.manifests.selection import Container, Pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

COMPONENT = "app.kubernetes.io/component"
PORTS = {"broker": 10911, "controller": 9878}
"""Where each component of Gantry accepts connections of others, to prove a fault by."""


def pods(objects: Iterable[Mapping[str, Any]]) -> list[Pod]:
    """The pods of a `PodList`'s items.

    Raises:
        InjectionError: an object is no pod.
    """
    return [pod(item) for item in objects]


def pod(found: Mapping[str, Any]) -> Pod:
    """One pod; see `pods`."""
    try:
        meta, spec, status = found["metadata"], found.get("spec", {}), found.get("status", {})
        return Pod(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            ip=status.get("podIP", ""),
            node=spec.get("nodeName", ""),
            phase=status.get("phase", "Unknown"),
            host_network=bool(spec.get("hostNetwork", False)),
            labels=dict(meta.get("labels") or {}),
            annotations=dict(meta.get("annotations") or {}),
            containers=tuple(
                Container(item["name"], item["containerID"].partition("://")[2])
                for item in status.get("containerStatuses") or ()
                if "running" in item.get("state", {})
            ),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InjectionError(f"The API server described a pod without {error}.") from error


def port(one: Pod) -> int | None:
    """The port of a pod of Gantry; None for others."""
    return PORTS.get(one.labels.get(COMPONENT, ""))
