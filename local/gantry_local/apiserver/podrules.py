"""Rules about pods and pod templates that a schema cannot say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.validation import Cause, forbidden, invalid, required, shown

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_MUTABLE = frozenset({"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"})
# Assigned once by the platform, so a change from "absent" is not a user's edit.
_ASSIGNED = frozenset({"nodeName"})


def check_template(
    template: dict[str, Any], path: str, *, extra_volumes: AbstractSet[str | None] = frozenset()
) -> list[Cause]:
    """Violations in the pod template of a workload that restarts for ever."""
    spec = template.get("spec") or {}
    causes = check_spec(spec, f"{path}.spec", extra_volumes=extra_volumes)
    if spec.get("restartPolicy", "Always") != "Always":
        field = f"{path}.spec.restartPolicy"
        text = f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always"'
        causes.append(Cause("FieldValueNotSupported", field, text))
    return causes


def check_spec(
    spec: dict[str, Any], path: str, *, extra_volumes: AbstractSet[str | None] = frozenset()
) -> list[Cause]:
    """Violations in a pod spec: containers, their names and what they mount."""
    containers = spec.get("containers") or []
    if not containers:
        return [required(f"{path}.containers")]
    volumes = {volume.get("name") for volume in spec.get("volumes") or []} | extra_volumes
    causes: list[Cause] = []
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or []):
            causes += _container(container, f"{path}.{field}[{index}]", volumes)
    return causes


def _container(
    container: dict[str, Any], path: str, volumes: AbstractSet[str | None]
) -> list[Cause]:
    causes: list[Cause] = []
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if mount["name"] not in volumes:
            field = f"{path}.volumeMounts[{index}].name"
            causes.append(Cause("FieldValueNotFound", field, f"Not found: {shown(mount['name'])}"))
    for index, port in enumerate(container.get("ports") or []):
        if not 1 <= port["containerPort"] <= 65535:
            why = "must be between 1 and 65535, inclusive"
            field = f"{path}.ports[{index}].containerPort"
            causes.append(invalid(field, port["containerPort"], why))
    return causes


def check_update(spec: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """Changes to a pod's spec that are not allowed once it exists."""

    def fixed(value: dict[str, Any]) -> dict[str, Any]:
        kept = {key: item for key, item in value.items() if key not in _MUTABLE}
        for key in _ASSIGNED - old.keys():
            kept.pop(key, None)
        kept["containers"] = [
            {key: item for key, item in container.items() if key != "image"}
            for container in value.get("containers") or []
        ]
        return kept

    if fixed(spec) == fixed(old):
        return []
    why = (
        "pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
        "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be "
        "set to 1 if it was previously negative)"
    )
    return [forbidden("spec", why)]
