"""A group of its own whose pods lie two on one worker and one on the other.

Freezing the node with the single broker and the single controller takes the master away and leaves
a majority of both, which needs the two singles to be on the same node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names

if TYPE_CHECKING:
    from harness.kube import Kube, Object

HOSTNAME = "kubernetes.io/hostname"
SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}}  # the preferred node has room for two


def two_and_one(controllers: str, group: str, *, two: str, storage: str = "1Gi") -> list[Object]:
    """ControllerGroup and BrokerGroup, three pods each; two of them go to the node `two`."""
    return [
        _resource("ControllerGroup", controllers, names.CONTROLLER, two, storage, {}),
        _resource(
            "BrokerGroup",
            group,
            names.BROKER,
            two,
            storage,
            {"controllerRef": {"name": controllers}},
        ),
    ]


def check(kube: Kube, controllers: str, group: str, *, two: str) -> None:
    """Whether it came so; a scheduler may prefer something else.

    Raises:
        AssertionError: the nodes of the pods are others.
    """
    for component, name in ((names.CONTROLLER, controllers), (names.BROKER, group)):
        labels = names.selector(component, name)
        pods = kube.list("pods", ",".join(f"{key}={text}" for key, text in labels.items()))
        nodes = [pod["spec"]["nodeName"] for pod in pods]
        assert (len(nodes), nodes.count(two)) == (3, 2), f"pods of {name} are on {nodes}"


def switch_over(kube: Kube, group: str, *, to: int, request: str) -> None:
    """Ask the operator to move the mastership to the replica with ordinal `to`."""
    kube.patch("brokergroup", group, {"spec": {"switchover": {"id": request, "to": to}}})


def _resource(kind: str, name: str, component: str, two: str, storage: str, more: Object) -> Object:
    prefers = {"key": HOSTNAME, "operator": "In", "values": [two]}
    template = {
        "spec": {
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 100, "preference": {"matchExpressions": [prefers]}}
                    ]
                }
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": HOSTNAME,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "nodeTaintsPolicy": "Honor",  # the control plane takes no pods
                    "labelSelector": {"matchLabels": names.selector(component, name)},
                }
            ],
        }
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": 3,
            "storage": {"size": storage},
            "template": template,
            "resources": SMALL,
        }
        | more,
    }
