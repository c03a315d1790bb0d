"""CustomResourceDefinitions: what is accepted, and the resource type that follows.

Refused loudly instead of half-served: more than one version, conversion webhooks, selectable
fields, schemas that are not structural, formats that are not checked here, rules that cannot be
evaluated.
"""

from __future__ import annotations

from typing import Any

from gantry_local.apiserver import jsonpath, rules, structural
from gantry_local.apiserver.kinds import ResourceType, ScalePaths
from gantry_local.apiserver.patches import clone
from gantry_local.apiserver.regex import PatternError, compile_pattern
from gantry_local.apiserver.schema import Schema, custom
from gantry_local.apiserver.validation import (
    FORMATS,
    NUMBER_FORMATS,
    Cause,
    forbidden,
    invalid,
    required,
    validate,
)

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean"})
_REFUSED = ("$ref", "$schema", "id", "definitions", "dependencies", "patternProperties")


def prepare(obj: dict[str, Any], old: dict[str, Any] | None, now: str) -> None:
    """Derived names, the cleanup finalizer, and the status of an accepted definition."""
    spec = obj.get("spec") or {}
    names = spec.setdefault("names", {})
    kind = str(names.get("kind", ""))
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    if old is None:
        obj["metadata"].setdefault("finalizers", []).append(CLEANUP_FINALIZER)
        obj["status"] = {
            "acceptedNames": clone(names),
            "storedVersions": [v.get("name") for v in spec.get("versions") or []],
            "conditions": [
                _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
                _condition(
                    "Established",
                    "InitialNamesAccepted",
                    "the initial names have been accepted",
                    now,
                ),
            ],
        }


def _condition(kind: str, reason: str, message: str, now: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }


def check(obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """Everything wrong with a definition."""
    spec = obj.get("spec") or {}
    causes = _check_names(obj, spec, old)
    versions = spec.get("versions") or []
    if len(versions) != 1:
        why = f"gantry local serves exactly one version per definition, got {len(versions)}"
        causes.append(forbidden("spec.versions", why))
        return causes
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        causes.append(forbidden("spec.conversion", "gantry local converts nothing"))
    causes += _check_version(versions[0], "spec.versions[0]")
    return causes


def _check_names(
    obj: dict[str, Any], spec: dict[str, Any], old: dict[str, Any] | None
) -> list[Cause]:
    causes: list[Cause] = []
    names = spec.get("names") or {}
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    name = obj["metadata"].get("name")
    if name != wanted:
        why = 'must be spec.names.plural+"."+spec.group'
        causes.append(invalid("metadata.name", name, why))
    if spec.get("scope") not in {"Namespaced", "Cluster"}:
        text = 'Unsupported value: supported values: "Cluster", "Namespaced"'
        causes.append(Cause("FieldValueNotSupported", "spec.scope", text))
    if old is not None:
        causes += [
            invalid(f"spec.{field}", spec.get(field), "field is immutable")
            for field in ("group", "scope")
            if spec.get(field) != old["spec"].get(field)
        ]
    return causes


def _check_version(version: dict[str, Any], path: str) -> list[Cause]:
    if not (version.get("served") and version.get("storage")):
        return [forbidden(path, "the only version must be served and stored")]
    if version.get("selectableFields"):
        return [forbidden(f"{path}.selectableFields", "not supported by gantry local")]
    raw = (version.get("schema") or {}).get("openAPIV3Schema")
    field = f"{path}.schema.openAPIV3Schema"
    if not isinstance(raw, dict):
        return [required(field, "schemas are required")]
    causes = _check_structure(raw, field, root=True)
    if causes:
        return causes
    schema = custom(clone(raw))
    causes = [Cause(c.reason, field + c.field, c.message) for c in rules.attach(schema)]
    causes += _check_defaults(schema, field)
    causes += _check_columns(version, path)
    return causes + _check_subresources(version, schema, path)


def _check_columns(version: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, column in enumerate(version.get("additionalPrinterColumns") or []):
        try:
            jsonpath.parse(column["jsonPath"])
        except jsonpath.JsonPathError as error:
            field = f"{path}.additionalPrinterColumns[{index}].jsonPath"
            causes.append(invalid(field, column["jsonPath"], str(error)))
    return causes


def _check_subresources(version: dict[str, Any], schema: Schema, path: str) -> list[Cause]:
    scale = (version.get("subresources") or {}).get("scale")
    causes: list[Cause] = []
    for name, prefix in (
        ("specReplicasPath", ".spec."),
        ("statusReplicasPath", ".status."),
        ("labelSelectorPath", ".status."),
    ):
        value = (scale or {}).get(name)
        if value is None:
            continue
        field = f"{path}.subresources.scale.{name}"
        if not value.startswith(prefix):
            causes.append(invalid(field, value, f"should be a json path under {prefix[:-1]}"))
            continue
        node = schema
        for step in value[1:].split("."):
            if not node.knows(step):
                causes.append(invalid(field, value, "does not name a declared field"))
                break
            node = node.child(step)
    return causes


def _check_structure(raw: dict[str, Any], path: str, *, root: bool = False) -> list[Cause]:
    causes: list[Cause] = []
    declared = raw.get("type")
    free = raw.get("x-kubernetes-int-or-string") or raw.get("x-kubernetes-preserve-unknown-fields")
    if declared is None and not free:
        causes.append(required(f"{path}.type", "must not be empty for specified object fields"))
    elif declared is not None and declared not in _TYPES:
        causes.append(invalid(f"{path}.type", declared, "is not a JSON schema type"))
    if root and declared != "object":
        causes.append(invalid(f"{path}.type", declared, "must be object at the root"))
    causes += [
        forbidden(f"{path}.{word}", f"{word} is not supported") for word in _REFUSED if word in raw
    ]
    causes += _check_containers(raw, path)
    causes += _check_texts(raw, path)
    for name, child in (raw.get("properties") or {}).items():
        if not (root and name in {"apiVersion", "kind", "metadata"}):
            causes += _check_structure(child, f"{path}.properties[{name}]")
    for word in ("items", "additionalProperties"):
        if isinstance(raw.get(word), dict):
            causes += _check_structure(raw[word], f"{path}.{word}")
    return causes


def _check_containers(raw: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    if raw.get("properties") and raw.get("additionalProperties"):
        why = "additionalProperties and properties are mutually exclusive"
        causes.append(forbidden(f"{path}.additionalProperties", why))
    if raw.get("additionalProperties") is False:
        causes.append(forbidden(f"{path}.additionalProperties", "must not be false"))
    if raw.get("uniqueItems"):
        causes.append(forbidden(f"{path}.uniqueItems", "uniqueItems cannot be set to true"))
    if raw.get("type") == "array" and not isinstance(raw.get("items"), dict):
        causes.append(required(f"{path}.items", "must be specified"))
    if raw.get("x-kubernetes-list-type") == "map":
        known = (raw.get("items") or {}).get("properties") or {}
        keys = raw.get("x-kubernetes-list-map-keys") or []
        if not keys:
            why = "must not be empty if x-kubernetes-list-type is map"
            causes.append(required(f"{path}.x-kubernetes-list-map-keys", why))
        needed = (raw.get("items") or {}).get("required") or []
        for key in keys:
            if key not in known:
                why = "entries must all be names of item properties"
                causes.append(invalid(f"{path}.x-kubernetes-list-map-keys", key, why))
            elif key not in needed and "default" not in known[key]:
                why = "a list map key must have a default or be a required property"
                causes.append(required(f"{path}.items.properties[{key}].default", why))
    return causes


def _check_texts(raw: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    named = raw.get("format")
    if named is not None and named not in FORMATS and named not in NUMBER_FORMATS:
        why = f"gantry local does not check this format; use one of {sorted(FORMATS)}"
        causes.append(invalid(f"{path}.format", named, why))
    if "pattern" in raw:
        try:
            compile_pattern(raw["pattern"])
        except PatternError as error:
            causes.append(invalid(f"{path}.pattern", raw["pattern"], str(error)))
    return causes


def _check_default(schema: Schema, path: str) -> list[Cause]:
    """A default must be valid as it is written, rules included: nothing inside is filled in."""
    value = clone(schema.raw["default"])
    if structural.prune(value, schema):
        return [invalid(path, schema.raw["default"], "must not have unknown fields")]
    shape = validate(value, schema, path)
    return shape or rules.run(value, value, schema, path)


def _check_defaults(schema: Schema, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for name, child in schema.properties.items():
        below = f"{path}.properties[{name}]"
        if "default" in child.raw:
            causes += _check_default(child, f"{below}.default")
        causes += _check_defaults(child, below)
    for word, inner in (("items", schema.items), ("additionalProperties", schema.additional)):
        if inner is not None:
            causes += _check_defaults(inner, f"{path}.{word}")
    return causes


def resource_type(crd: dict[str, Any]) -> ResourceType:
    """The type an accepted definition serves."""
    spec = crd["spec"]
    version, names = spec["versions"][0], spec["names"]
    schema = custom(clone(version["schema"]["openAPIV3Schema"]))
    rules.attach(schema)
    subresources = version.get("subresources") or {}
    return ResourceType(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        schema,
        namespaced=spec["scope"] == "Namespaced",
        status="status" in subresources,
        generation=True,
        scale=_scale_paths(subresources.get("scale")),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        custom=True,
        unconditional_update=False,
    )


def _scale_paths(scale: dict[str, Any] | None) -> ScalePaths | None:
    if scale is None:
        return None

    def steps(field: str) -> tuple[str, ...]:
        return tuple(part for part in str(scale.get(field, "")).split(".") if part)

    return ScalePaths(
        steps("specReplicasPath"), steps("statusReplicasPath"), steps("labelSelectorPath")
    )
