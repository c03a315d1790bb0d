"""The content of a new local cluster: the operator as a Deployment, one ControllerGroup."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_local.manifests import Manifest

SYSTEM_NAMESPACE: Final = "gantry-system"
OPERATOR: Final = "gantry-operator"
IMAGE: Final = "gantry"
"""Pods run this installation whatever their image is called."""
_LABELS: Final = {"app.kubernetes.io/name": "gantry", "app.kubernetes.io/component": "operator"}


def system_namespace() -> Manifest:
    """The operator's namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}


def operator_deployment(kubeconfig: Path, replicas: int) -> Manifest:
    """The operator, reaching the API through the cluster's kubeconfig.

    In a real cluster a service account does that; everything else is as in the chart.
    """
    env: list[dict[str, Any]] = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "KUBECONFIG", "value": str(kubeconfig)},
        {"name": "GANTRY_KUBECONFIG", "value": str(kubeconfig)},
        {"name": "GANTRY_BIND", "value": "$(POD_IP)"},
        {"name": "GANTRY_IMAGE", "value": IMAGE},
        {"name": "GANTRY_NAME", "value": "$(POD_NAME)"},
        {"name": "GANTRY_LEASE_NAMESPACE", "value": "$(POD_NAMESPACE)"},
        # Pods are processes of one machine here: a directory is the same one to all of them.
        {"name": "GANTRY_DIRECTORY_TIERS", "value": "true"},
        # A lone operator need not wait for the lease of a predecessor that was killed.
        {"name": "GANTRY_LEADER_ELECTION", "value": str(replicas > 1).lower()},
    ]
    container = {
        "name": "operator",
        "image": IMAGE,
        "command": ["gantry", "operator"],
        "env": env,
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "http"},
            "periodSeconds": 1,
            "failureThreshold": 2,
        },
        "livenessProbe": {
            "httpGet": {"path": "/livez", "port": "http"},
            "periodSeconds": 5,
            "failureThreshold": 6,
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": OPERATOR, "namespace": SYSTEM_NAMESPACE, "labels": dict(_LABELS)},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "Recreate"},  # a lone one holds no Lease
            "selector": {"matchLabels": dict(_LABELS)},
            "template": {
                "metadata": {"labels": copy.copy(_LABELS)},
                "spec": {"terminationGracePeriodSeconds": 5, "containers": [container]},
            },
        },
    }


def controller_group(replicas: int) -> Manifest:
    """The ControllerGroup that brokers find by default."""
    return {
        "apiVersion": "mq.gantry.dev/v1alpha1",
        "kind": "ControllerGroup",
        "metadata": {"name": "gantry", "namespace": "default"},
        "spec": {"replicas": replicas, "storage": {"size": "1Gi"}},
    }
