"""Resources that a user might write: what the API server refuses, and in which words.

The end-to-end run holds a real API server to it, `make integration` the local one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from gantry_operator import names

if TYPE_CHECKING:
    from harness.kube import Object

GROUP = "orders"
SIZE = "100Mi"
COLUMNS = ["NAME", "STATUS", "MASTER", "EPOCH", "INSYNC", "READY", "AVAILABLE", "ACCEPTED", "DRAIN"]
"""What `kubectl get bg` shows, but for the age."""


def resource(kind: str, name: str, **spec: Any) -> Object:
    """A resource of ours with small volumes."""
    return manifest(kind, name, storage={"size": SIZE} | spec.pop("storage", {}), **spec)


def manifest(kind: str, name: str, **spec: object) -> Object:
    """A resource of ours with this spec and no more."""
    meta = {"name": name}
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": meta, "spec": spec}


def broker_group(name: str = GROUP, **spec: Any) -> Object:
    return resource("BrokerGroup", name, **spec)


REFUSED = [
    pytest.param(
        broker_group(replicas=2, replication={"minInSyncReplicas": 3}),
        "replication.minInSyncReplicas must not be greater than replicas, or nothing could ever "
        "be acknowledged: lower it or raise replicas",
        id="more in sync than replicas",
    ),
    pytest.param(
        broker_group(replicas=0),
        "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal "
        "to 1",
        id="no replicas",
    ),
    pytest.param(
        broker_group(replicas=10),
        "spec.replicas: Invalid value: 10: spec.replicas in body should be less than or equal to 9",
        id="too many replicas",
    ),
    pytest.param(
        broker_group(replicas=3, storage={"type": "EmptyDir"}),
        "storage.type EmptyDir is allowed with one replica only, since a replaced pod loses its "
        "data: set replicas to 1 or storage.type to PersistentVolumeClaim",
        id="three replicas without volumes",
    ),
    pytest.param(
        broker_group("Orders"),
        'metadata.name: Invalid value: "Orders": a lowercase RFC 1123 subdomain must consist of '
        "lower case alphanumeric characters",
        id="capital in the name",
    ),
    pytest.param(
        broker_group("orders.v2"),
        "metadata.name must start with a letter, have only lower-case letters, digits and hyphens, "
        "and at most 45 characters, because Services and pods are named after it: choose another "
        "name",
        id="dot in the name",
    ),
    pytest.param(
        broker_group("o" * 46),
        "metadata.name must start with a letter, have only lower-case letters, digits and hyphens, "
        "and at most 45 characters, because Services and pods are named after it: choose another "
        "name",
        id="long name",
    ),
    pytest.param(
        broker_group(replica=3),
        'strict decoding error: unknown field "spec.replica"',
        id="unknown field",
    ),
    pytest.param(
        broker_group(config={"bind": "0.0.0.0"}),
        "config must not name a setting that the operator sets itself: remove admin_token_file, "
        "advertise, allow_unauthenticated, bind, cluster,",
        id="setting of the operator",
    ),
    pytest.param(
        broker_group(storage={"size": "10 gigs"}),
        'spec.storage.size: Invalid value: "10 gigs": spec.storage.size in body should match',
        id="not a quantity",
    ),
    pytest.param(
        broker_group(clients={"route": "Any"}),
        'spec.clients.route: Unsupported value: "Any": supported values: "Group", "Master", "Pod"',
        id="not in the list",
    ),
    pytest.param(
        resource("ControllerGroup", "gantry", replicas=2),
        'spec.replicas: Unsupported value: 2: supported values: "1", "3", "5"',
        id="even quorum",
    ),
]

FIXED_STORAGE = (
    "storage.type, storage.className and the size of an EmptyDir are fixed at creation, because "
    "the data would be lost: set them back, and create a new resource for other storage"
)
FIXED = [
    pytest.param(
        "brokergroup",
        {"controllerRef": {"name": "other"}},
        "controllerRef.name is fixed at creation, because epochs and broker ids belong to that "
        "controller: set it back, and create a new resource under the other controller",
        id="other controllers",
    ),
    pytest.param("brokergroup", {"storage": {"type": "EmptyDir"}}, FIXED_STORAGE, id="type"),
    pytest.param("brokergroup", {"storage": {"className": "new"}}, FIXED_STORAGE, id="class"),
    pytest.param(
        "controllergroup", {"storage": {"className": "new"}}, FIXED_STORAGE, id="Raft log"
    ),
]
