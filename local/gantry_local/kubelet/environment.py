"""Command line and environment of a container, from its spec: a pure function.

``$(VAR)`` expansion, the downward API, ConfigMap and Secret references as the kubelet does them.
The one difference of this cluster: paths below a volume mount are rewritten to the directory that
stands for the volume, in arguments and in environment values, since there is no mount namespace.
"""

from __future__ import annotations

import base64
import re
import sys
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Object = dict[str, Any]
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))")
_LABEL_PATH = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_INTERPRETERS = frozenset({"python", "python3"})


class ContainerConfigError(Exception):
    """The container cannot be started as written; the kubelet reports the text and tries again."""


class Launch(msgspec.Struct, frozen=True):
    """The command to execute."""

    argv: list[str]
    env: dict[str, str]


class Sources(msgspec.Struct, frozen=True):
    """The sources of references: functions by name, None for a missing object."""

    config_map: Any
    secret: Any


def plan_launch(
    pod: Object,
    container: Object,
    *,
    base: Mapping[str, str],
    mounts: Mapping[str, str],
    sources: Sources,
) -> Launch:
    """The command of the container.

    Args:
        pod: The pod, with its ``status.podIP``.
        container: One of its containers.
        base: Variables every process gets (``PATH`` and such).
        mounts: Mount path → directory that stands for it.
        sources: ConfigMaps and Secrets of the pod's namespace.

    Raises:
        ContainerConfigError: a reference points nowhere, or something is not supported here.
    """
    declared = _declared(pod, container, sources)
    rewrite = _rewriter(mounts)
    env = {**base, **{name: rewrite(value) for name, value in declared.items()}}
    words = [*(container.get("command") or ["gantry"]), *(container.get("args") or [])]
    argv = [rewrite(_expand(word, declared)) for word in words]
    return Launch(_resolve(argv), env)


def _resolve(argv: list[str]) -> list[str]:
    """The image's programs are this installation's."""
    if argv[0] == "gantry":
        # -P: the working directory must not shadow modules ("operator" is a standard one).
        return [sys.executable, "-P", "-m", "gantry_cli", *argv[1:]]
    if argv[0] in _INTERPRETERS:
        return [sys.executable, *argv[1:]]
    return argv


def _declared(pod: Object, container: Object, sources: Sources) -> dict[str, str]:
    env: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        env.update(_from_source(source, sources))
    for entry in container.get("env") or []:
        if "valueFrom" in entry:
            value = _value_from(pod, entry["valueFrom"], sources, entry["name"])
            if value is not None:
                env[entry["name"]] = value
        else:
            env[entry["name"]] = _expand(entry.get("value", ""), env)
    return env


def _expand(text: str, env: Mapping[str, str]) -> str:
    """``$(NAME)`` for known names, ``$$`` for a dollar; anything else stays as it is."""

    def replaced(match: re.Match[str]) -> str:
        if match.group(1) == "$":
            return "$"
        return env.get(match.group(2), match.group())

    return _REFERENCE.sub(replaced, text)


def _from_source(source: Object, sources: Sources) -> dict[str, str]:
    prefix = source.get("prefix", "")
    if "configMapRef" in source:
        data = _data(sources.config_map, source["configMapRef"], "configmap")
    else:
        data = _data(sources.secret, source["secretRef"], "secret")
    return {prefix + key: value for key, value in data.items()}


def _value_from(pod: Object, source: Object, sources: Sources, name: str) -> str | None:
    match source:
        case {"fieldRef": reference}:
            return field_value(pod, reference["fieldPath"])
        case {"configMapKeyRef": reference}:
            data = _data(sources.config_map, reference, "configmap")
        case {"secretKeyRef": reference}:
            data = _data(sources.secret, reference, "secret")
        case _:
            kind = ", ".join(source)
            raise ContainerConfigError(f"env {name}: {kind} is not supported by gantry local")
    if reference["key"] not in data:
        if reference.get("optional"):
            return None
        raise ContainerConfigError(
            f"couldn't find key {reference['key']} in {reference.get('name', '')}"
        )
    return data[reference["key"]]


def _data(lookup: Callable[[str], Object | None], reference: Object, kind: str) -> dict[str, str]:
    found = lookup(reference.get("name", ""))
    if found is None:
        if reference.get("optional"):
            return {}
        raise ContainerConfigError(f'{kind} "{reference.get("name", "")}" not found')
    data: dict[str, str] = found.get("data") or {}
    if kind == "configmap":
        return data
    return {key: base64.b64decode(text).decode(errors="replace") for key, text in data.items()}


def field_value(pod: Object, path: str) -> str:
    """A downward API field."""
    found = _LABEL_PATH.fullmatch(path)
    if found is not None:
        values = pod["metadata"].get(found.group(1)) or {}
        return str(values.get(found.group(2), ""))
    fields: dict[str, Any] = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.hostIP": (pod.get("status") or {}).get("hostIP", ""),
        "status.podIP": (pod.get("status") or {}).get("podIP", ""),
    }
    if path not in fields:
        raise ContainerConfigError(f"fieldRef {path} is not supported by gantry local")
    return str(fields[path])


def _rewriter(mounts: Mapping[str, str]) -> Callable[[str], str]:
    """Replaces mount paths by what stands for them, longest first, whole path parts only."""
    ordered = sorted((path.rstrip("/") for path in mounts), key=len, reverse=True)
    if not ordered:
        return lambda text: text
    pattern = re.compile(
        r"(?<![\w./-])(" + "|".join(re.escape(path) for path in ordered) + r")(?=$|[/:,;\s\"'])"
    )
    targets = {path.rstrip("/"): target for path, target in mounts.items()}
    return lambda text: pattern.sub(lambda match: targets[match.group(1)], text)
