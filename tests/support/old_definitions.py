"""Definitions of other versions, as they may be: without a share of the fields, or with more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

Object = dict[str, Any]
KEPT = frozenset({"conditions", "observedGeneration", "replicas", "selector"})
"""Fields of a status that a definition refers to, or that people have to read."""
LATER = "ofALaterVersion"


def older(rng: Random, share: float, definition: Object, named: Collection[str]) -> Object:
    """The definition, without a share of its fields; those of a spec that are named are kept."""
    lacking: set[str] = set()
    for version in definition["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            keep = KEPT if part == "status" else frozenset(named)
            _strip(rng, share, schema["properties"].get(part, {}), keep, lacking)
        _forget_rules(schema, lacking)
        _forget_defaults(schema)
    return definition


def newer(definition: Object) -> Object:
    """The definition, with a field more in each object of spec and status; those of specs have a
    default, so every resource has them at once."""
    for version in definition["spec"]["versions"]:
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        _add(properties["spec"], {"type": "string", "default": "later"})
        _add(properties["status"], {"type": "string"})
    return definition


def _add(schema: Object, field: Object) -> None:
    for below in _below(schema):
        _add(below, field)
    if "properties" in schema:
        schema["properties"][LATER] = dict(field)


def _strip(
    rng: Random, share: float, schema: Object, keep: frozenset[str], lacking: set[str]
) -> None:
    properties = schema.get("properties", {})
    for name in [*properties]:
        if name in keep or name in schema.get("required", ()) or rng.random() >= share:
            _strip(rng, share, properties[name], keep, lacking)
        else:
            del properties[name]
            lacking.add(name)
    _strip_items(rng, share, schema, keep, lacking)


def _strip_items(
    rng: Random, share: float, schema: Object, keep: frozenset[str], lacking: set[str]
) -> None:
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            keys = frozenset(schema.get("x-kubernetes-list-map-keys", ()))
            _strip(rng, share, schema[part], keep | keys, lacking)


def _forget_rules(schema: Object, lacking: set[str]) -> None:
    """Rules that speak of what is not there cannot be in such a definition."""
    rules = schema.get("x-kubernetes-validations", [])
    rules[:] = [
        rule
        for rule in rules
        if not lacking & set(re.findall(r"\w+", rule["rule"] + rule.get("messageExpression", "")))
    ]
    for below in _below(schema):
        _forget_rules(below, lacking)


def _forget_defaults(schema: Object) -> None:
    if "default" in schema:
        _prune(schema, schema["default"])
    for below in _below(schema):
        _forget_defaults(below)


def _prune(schema: Object, value: Any) -> None:
    """Take out of a value what the schema does not know."""
    properties = schema.get("properties")
    if isinstance(value, dict) and properties is not None:
        for key in [*value]:
            if key in properties:
                _prune(properties[key], value[key])
            else:
                del value[key]


def _below(schema: Object) -> list[Object]:
    """The schemas of a schema's parts."""
    parts = (
        *schema.get("properties", {}).values(),
        schema.get("items"),
        schema.get("additionalProperties"),
    )
    return [part for part in parts if isinstance(part, dict)]
