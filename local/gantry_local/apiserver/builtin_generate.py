"""Writes ``builtin_schema.json``: the built-in kinds as OpenAPI, from the official client's models.

Generated so that a misspelt field in an owned object is refused here as it is on a real API server,
without loading the client (half a second) into the daemon. A test compares the file with what this
module makes of the installed client; it is never edited by hand.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from gantry_local.apiserver import builtin_facts as facts

SCHEMA_FILE = Path(__file__).with_name("builtin_schema.json")
_SCALARS: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "object": {"x-kubernetes-preserve-unknown-fields": True},
}
_INT_OR_STRING: dict[str, Any] = {"x-kubernetes-int-or-string": True}
_GENERIC = re.compile(r"(List|Dict)\[(?:str, )?(.+)\]")


def build() -> dict[str, Any]:
    """Definitions of every model reachable from the roots, by model name."""
    client = import_module("kubernetes.aio.client")
    definitions: dict[str, Any] = {}
    pending = list(facts.ROOTS)
    while pending:
        name = pending.pop()
        if name in definitions or name in facts.OPAQUE:
            continue
        definitions[name] = _definition(name, getattr(client, name), pending)
    return {name: definitions[name] for name in sorted(definitions)}


def render() -> str:
    """The file's text: one definition a line, so that a change reads as a diff."""
    lines = [
        f"  {json.dumps(name)}: {json.dumps(body, separators=(',', ':'), sort_keys=True)}"
        for name, body in build().items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _definition(name: str, model: Any, pending: list[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    fields = {field.serialization_alias or key: field for key, field in model.model_fields.items()}
    for attribute, type_text in model.openapi_types.items():
        wire_name = model.attribute_map[attribute]
        field = fields[wire_name]
        annotation = str(field.annotation)
        int_or_string = type_text == "object" and "[int," in annotation and "[str," in annotation
        schema = dict(_INT_OR_STRING) if int_or_string else _schema(type_text, pending)
        properties[wire_name] = _with_facts(f"{name}.{wire_name}", schema)
        if field.is_required():
            required.append(wire_name)
    body: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        body["required"] = sorted(required)
    if name in facts.ATOMIC_MODELS:
        body["x-kubernetes-map-type"] = "atomic"
    return body


def _schema(type_text: str, pending: list[str]) -> dict[str, Any]:
    if type_text in _SCALARS:
        return dict(_SCALARS[type_text])
    generic = _GENERIC.fullmatch(type_text)
    if generic is None:
        if type_text in facts.OPAQUE:
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        pending.append(type_text)
        return {"$ref": type_text}
    inner = _schema(generic.group(2), pending)
    if generic.group(1) == "List":
        return {"type": "array", "items": inner}
    return {"type": "object", "additionalProperties": inner}


def _with_facts(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    if path in facts.LIST_MAP_KEYS:
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = facts.LIST_MAP_KEYS[path]
    elif path in facts.LIST_SETS:
        schema["x-kubernetes-list-type"] = "set"
    if path in facts.ATOMIC_FIELDS:
        schema["x-kubernetes-map-type"] = "atomic"
    if path in facts.QUANTITY_FIELDS:
        schema["additionalProperties"] = dict(_INT_OR_STRING)
    if path in facts.DEFAULTS:
        schema["default"] = facts.DEFAULTS[path]
    if path in facts.ENUMS:
        schema["enum"] = facts.ENUMS[path]
    return schema


def main() -> None:
    """Rewrite the file from the installed client."""
    SCHEMA_FILE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
