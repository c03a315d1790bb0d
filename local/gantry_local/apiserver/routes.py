"""URLs of the Kubernetes API: one path, one target."""

from __future__ import annotations

import msgspec

from gantry_local.apiserver.errors import no_such_path

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class Target(msgspec.Struct, frozen=True):
    """The target of a resource URL.

    ``namespace`` None means all of them, or none for cluster-scoped types; ``name`` "" means
    the collection.
    """

    group: str
    version: str
    plural: str
    namespace: str | None = None
    name: str = ""
    subresource: str = ""


class Discovery(msgspec.Struct, frozen=True):
    """A discovery URL: of all groups, one group, or one group's version."""

    legacy: bool
    group: str = ""
    version: str = ""


def parse(path: str) -> Target | Discovery:
    """The target of a path below ``/api`` or ``/apis``; 404 for anything else."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api"]:
            return Discovery(legacy=True)
        case ["api", version]:
            return Discovery(legacy=True, version=version)
        case ["apis"]:
            return Discovery(legacy=False)
        case ["apis", group]:
            return Discovery(legacy=False, group=group)
        case ["apis", group, version]:
            return Discovery(legacy=False, group=group, version=version)
        case ["api", version, *rest]:
            return _target("", version, rest)
        case ["apis", group, version, *rest]:
            return _target(group, version, rest)
    raise no_such_path()


def _target(group: str, version: str, rest: list[str]) -> Target:
    if rest[0] == "namespaces" and len(rest) >= 3:
        if not group and len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES:
            return Target(group, version, "namespaces", None, rest[1], rest[2])
        namespace, rest = rest[1], rest[2:]
        return _named(group, version, namespace, rest)
    return _named(group, version, None, rest)


def _named(group: str, version: str, namespace: str | None, rest: list[str]) -> Target:
    match rest:
        case [plural]:
            return Target(group, version, plural, namespace)
        case [plural, name]:
            return Target(group, version, plural, namespace, name)
        case [plural, name, subresource]:
            return Target(group, version, plural, namespace, name, subresource)
    raise no_such_path()
