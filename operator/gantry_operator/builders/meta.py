"""Metadata of owned objects, and the hash by which a changed wish is noticed.

An owned object carries the hash of what was applied. Comparing it finds a field that was taken out
of the wish, which a comparison of the remaining fields with the live object cannot find.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from gantry_operator import names

if TYPE_CHECKING:
    from gantry_operator.models.base import Resource

Manifest = dict[str, Any]


def owner_reference(owner: Resource) -> Manifest:
    """Makes the object go when its owner goes."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": type(owner).__name__,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned(owner: Resource, component: str, api_version: str, kind: str, name: str) -> Manifest:
    """The head of an owned object, without its hash."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": owner.metadata.namespace,
            "labels": names.labels(component, owner.metadata.name),
            "ownerReferences": [owner_reference(owner)],
        },
    }


def digest(value: Any) -> str:
    """A short hash of a JSON value, equal on every run and machine."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sealed(manifest: Manifest) -> Manifest:
    """Adds the hash of the finished object to its annotations."""
    annotations = manifest["metadata"].get("annotations", {})
    sealed_annotations = annotations | {names.ANNOTATION_APPLIED: digest(manifest)}
    return manifest | {"metadata": manifest["metadata"] | {"annotations": sealed_annotations}}
