"""Turns pydantic's JSON schema into the structural OpenAPI schema that a CRD needs.

Differences: `$ref`s are inlined, `anyOf … null` becomes `nullable`, titles, empty defaults and
`additionalProperties: true|false` go away, defaults of objects are written out in full. What a
structural schema could not express is refused with an error instead of being dropped silently.

See https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gantry_operator.models.base import Resource

_DROPPED = ("title", "$defs")
_REFUSED = ("oneOf", "allOf", "not", "patternProperties", "exclusiveMinimum", "exclusiveMaximum")

_FIRST = ("type", "description", "default", "nullable", "required", "properties")

JsonObject = dict[str, Any]
UNSEEN = -1
"""The observedGeneration of a resource that no operator has looked at: whoever waits for it by the
rules of kstatus, as Flux does, must not call it current because it has no conditions yet."""


class SchemaError(TypeError):
    """A model uses something that a structural schema cannot express."""


def structural(model: type[Resource]) -> JsonObject:
    """The `openAPIV3Schema` of a resource model; each caller has one of its own."""
    return copy.deepcopy(_structural(model))


@functools.cache
def _structural(model: type[Resource]) -> JsonObject:
    raw = model.model_json_schema(by_alias=True)
    schema = _convert(raw, raw.get("$defs", {}), model.__name__)
    _complete_default(schema)
    schema["description"] = (model.__doc__ or "").strip()
    properties: JsonObject = schema["properties"]
    schema["properties"] = {
        "apiVersion": {"type": "string", "description": "Version of this resource's schema."},
        "kind": {"type": "string", "description": "Kind of this resource."},
        "metadata": {"type": "object"},
        "spec": properties["spec"],
        "status": _without_demands(properties["status"]),
    }
    schema.pop("required", None)
    return schema


def _without_demands(status: JsonObject) -> JsonObject:
    """A status without required fields and defaults: it may be written in part, or be lost."""
    kept = {
        name: {key: value for key, value in child.items() if key != "default"}
        for name, child in status["properties"].items()
    }
    demanding = {key: value for key, value in status.items() if key != "required"}
    return demanding | {"properties": kept, "default": {"observedGeneration": UNSEEN}}


def paths(schema: JsonObject, path: str = "") -> set[str]:
    """The paths of all fields of a schema, with dots and without the indices of lists."""
    found: set[str] = set()
    for key, part in (schema.get("properties") or {}).items():
        here = f"{path}.{key}" if path else key
        found |= {here} | paths(part, here)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found |= paths(schema[key], path)
    return found


def model_paths(model: type[BaseModel], path: str = "") -> set[str]:
    """The paths of all fields of a model: those of its schema, without making one.

    A schema takes a hundred times as long, which a process that starts would feel.
    """
    found: set[str] = set()
    for name, field in model.model_fields.items():
        here = f"{path}.{field.alias or name}" if path else field.alias or name
        found |= {here}
        for part in _models_in(field.annotation):
            found |= model_paths(part, here)
    return found


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _convert(node: JsonObject, defs: JsonObject, where: str) -> JsonObject:
    node = _nullable(_inline(node, defs), defs, where)
    for key in _REFUSED:
        if key in node:
            raise SchemaError(f"{where}: a structural schema cannot have {key}")
    result: JsonObject = {}
    for key in sorted(node, key=_reading_order):
        value = node[key]
        if key in _DROPPED or (key == "default" and value in (None, [])):
            continue
        if key == "properties":
            result[key] = {
                name: _convert(child, defs, f"{where}.{name}") for name, child in value.items()
            }
        elif key == "items":
            result[key] = _convert(value, defs, f"{where}[]")
        elif key == "additionalProperties":
            if isinstance(value, dict):
                result[key] = _convert(value, defs, f"{where}.*")
        else:
            result[key] = value
    return result


def _complete_default(node: JsonObject) -> None:
    """Writes the defaults of an object's fields into the object's own default, in place.

    When a CRD is registered the API server checks every default against the schema and its CEL
    rules as it stands, without filling in what is below: `default: {}` fails a rule on a field
    that would have had a default.
    """
    children: JsonObject = node.get("properties", {})
    below = [node[key] for key in ("items", "additionalProperties") if key in node]
    for child in (*children.values(), *below):
        _complete_default(child)
    if isinstance(node.get("default"), dict):
        inner = {name: c["default"] for name, c in children.items() if "default" in c}
        node["default"] = copy.deepcopy(inner | node["default"])


def _reading_order(key: str) -> int:
    """What a reader wants first comes first; the rest stays in the order of the model."""
    return _FIRST.index(key) if key in _FIRST else len(_FIRST)


def _inline(node: JsonObject, defs: JsonObject) -> JsonObject:
    """Replaces a reference by what it names.

    The field's own keys win: an object's docstring describes the class, a field's description is
    for the people who set it.
    """
    while "$ref" in node:
        target: JsonObject = defs[node["$ref"].rpartition("/")[2]]
        node = target | {key: value for key, value in node.items() if key != "$ref"}
    return node


def _nullable(node: JsonObject, defs: JsonObject, where: str) -> JsonObject:
    """Turns `anyOf: [X, null]` into X with `nullable`; leaves int-or-string alone."""
    options = node.get("anyOf")
    if options is None or node.get("x-kubernetes-int-or-string"):
        return node
    some = [option for option in options if option != {"type": "null"}]
    if len(some) != 1 or len(some) == len(options):
        raise SchemaError(f"{where}: only `X | None` can be expressed, not {options}")
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    result = _inline(some[0], defs) | {"nullable": True} | rest
    if not result["nullable"]:
        del result["nullable"]
    return result
