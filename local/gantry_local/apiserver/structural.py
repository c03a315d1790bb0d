"""Pruning and defaulting of objects against a structural schema.

Both work in place on a private copy, as the API server does between decoding and validation:
unknown fields go, nulls of fields that are not nullable go, defaults fill what is absent.
"""

from __future__ import annotations

import copy
from typing import Any

from gantry_local.apiserver.schema import UNSET, Schema

_EMBEDDED_KEYS = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, schema: Schema, path: str = "") -> list[str]:
    """Drop what the schema does not know; returns the dotted paths of the dropped fields.

    Nulls of known fields that are not nullable are dropped silently: they mean "absent".
    """
    dropped: list[str] = []
    if schema.opaque:
        return dropped
    if isinstance(value, dict):
        _prune_object(value, schema, path, dropped)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            dropped += prune(item, schema.element, f"{path}[{index}]")
    return dropped


def _prune_object(value: dict[str, Any], schema: Schema, path: str, dropped: list[str]) -> None:
    typed = schema.type == "object"
    for key in list(value):
        below = f"{path}.{key}" if path else key
        if not (schema.knows(key) or (schema.embedded and key in _EMBEDDED_KEYS)):
            if typed:
                del value[key]
                dropped.append(below)
            continue
        child = schema.child(key)
        if value[key] is None and not child.nullable and _declared(schema, key):
            del value[key]
        else:
            dropped += prune(value[key], child, below)


def _declared(schema: Schema, key: str) -> bool:
    return key in schema.properties or schema.additional is not None


def drop_empty(value: Any, schema: Schema) -> None:
    """Drop empty lists and maps in place, as Go's ``omitempty`` does for built-in types.

    What is required or has a default (``EndpointSlice.endpoints``) is written out even when empty.
    Empty texts, zeros and false stay: only Go knows which of them are pointers.
    """
    if isinstance(value, list):
        for item in value:
            drop_empty(item, schema.element)
        return
    if not isinstance(value, dict) or schema.opaque:
        return
    for key in list(value):
        item, child = value[key], schema.child(key)
        is_map = child.additional is not None
        empty = item == [] or (item == {} and is_map)
        if empty and child.default is UNSET and key not in schema.required:
            del value[key]
        else:
            drop_empty(item, child)


def apply_defaults(value: Any, schema: Schema) -> None:
    """Fill absent fields with the schema's defaults, outer before inner, in place."""
    if schema.opaque:
        return
    if isinstance(value, dict):
        for key, child in schema.properties.items():
            if child.default is not UNSET and key not in value:
                value[key] = copy.deepcopy(child.default)
        for key, item in value.items():
            if isinstance(item, dict | list):
                apply_defaults(item, schema.child(key))
    elif isinstance(value, list):
        for item in value:
            apply_defaults(item, schema.element)
