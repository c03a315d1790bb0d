"""Discovery documents: which groups, versions and resources exist."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.errors import no_such_path
from gantry_local.apiserver.kinds import ALL_VERBS

if TYPE_CHECKING:
    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.registry import Registry
    from gantry_local.apiserver.routes import Discovery

GIT_VERSION = "v1.34.0+gantry-local"
"""Says which release's semantics are followed, and that this is not that release."""


def version() -> dict[str, str]:
    """``/version``."""
    major, minor, _ = GIT_VERSION.removeprefix("v").split(".", 2)
    return {
        "major": major,
        "minor": minor,
        "gitVersion": GIT_VERSION,
        "platform": f"linux/{platform.machine()}",
    }


def document(registry: Registry, asked: Discovery) -> dict[str, Any]:
    """The document of a discovery URL; 404 for unknown groups and versions."""
    if asked.legacy:
        if not asked.version:
            return {"kind": "APIVersions", "versions": ["v1"]}
        return _resources(registry, "", asked.version)
    if asked.group and asked.version:
        return _resources(registry, asked.group, asked.version)
    groups = {resource.group: resource.version for resource in registry.catalogue if resource.group}
    if asked.group:
        if asked.group not in groups:
            raise no_such_path()
        return {
            "kind": "APIGroup",
            "apiVersion": "v1",
            **_group(asked.group, groups[asked.group]),
        }
    listed = [_group(name, served) for name, served in groups.items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def _group(name: str, served: str) -> dict[str, Any]:
    entry = {"groupVersion": f"{name}/{served}", "version": served}
    return {"name": name, "versions": [entry], "preferredVersion": entry}


def _resources(registry: Registry, group: str, served: str) -> dict[str, Any]:
    found = [r for r in registry.catalogue if r.group == group and r.version == served]
    if not found:
        raise no_such_path()
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].api_version,
        "resources": [entry for resource in found for entry in _entries(resource)],
    }


def _entries(resource: ResourceType) -> list[dict[str, Any]]:
    main: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(ALL_VERBS),
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    if resource.categories:
        main["categories"] = list(resource.categories)
    return [main, *(_subresource(resource, name) for name in resource.subresources)]


def _subresource(resource: ResourceType, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["get"] if name == "log" else ["get", "patch", "update"],
    }
    if name == "scale":
        entry |= {"kind": "Scale", "group": "autoscaling", "version": "v1"}
    return entry
