"""Specs of a BrokerGroup that the API server refuses, and words of each refusal."""

from __future__ import annotations

from typing import Any


def placed(nodes: dict[str, Any] | None = None, topology: str = "rack") -> dict[str, Any]:
    """An affinity with one requirement on nodes, or one term about pods."""
    if nodes is not None:
        terms = {"nodeSelectorTerms": [{"matchExpressions": [nodes]}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    term = [{"topologyKey": topology, "labelSelector": {}}]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "minimum": (
        {"replicas": 3, "replication": {"minInSyncReplicas": 4}},
        "lower it or raise replicas",
    ),
    "emptydir": ({"replicas": 3, "storage": {"type": "EmptyDir"}}, "set replicas to 1"),
    "reserved": ({"config": {"data_dir": "/tmp"}}, "remove admin_token_file"),
    "range": ({"replicas": 12}, "spec.replicas"),
    "enum": ({"clients": {"route": "Any"}}, "spec.clients.route"),
    "cpu": ({"resources": {"limits": {"cpu": "lots"}}}, "resources.limits"),
    "label": ({"template": {"metadata": {"labels": {"team": "a b"}}}}, "metadata.labels"),
    "affinity": (
        {"template": {"spec": {"affinity": {"nodeAffinity": []}}}},
        "spec.template.spec.affinity.nodeAffinity",
    ),
    "toleration": (
        {"template": {"spec": {"tolerations": ["gpu"]}}},
        "spec.template.spec.tolerations[0]",
    ),
    "spread": (
        {"template": {"spec": {"topologySpreadConstraints": [{"topologyKey": "rack"}]}}},
        "spec.template.spec.topologySpreadConstraints[0]",
    ),
    "operator": (
        {"template": {"spec": {"affinity": placed(nodes={"key": "rack", "operator": "Near"})}}},
        "matchExpressions[0].operator",
    ),
    "label-key": ({"template": {"spec": {"affinity": placed(topology="bad key!")}}}, "topologyKey"),
    "effect": (
        {"template": {"spec": {"tolerations": [{"key": "gpu", "effect": "Never"}]}}},
        "spec.template.spec.tolerations[0].effect",
    ),
}
