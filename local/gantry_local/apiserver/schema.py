"""Compiled structural schemas: one node type for CRDs and built-in kinds alike.

A schema is compiled once; pruning, defaulting, validation and server-side apply all walk the same
nodes. References are resolved lazily and shared, so recursive definitions cost nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal

import msgspec

from gantry_local.apiserver.builtin_generate import SCHEMA_FILE
from gantry_local.apiserver.regex import compile_pattern

ListType = Literal["atomic", "map", "set"]
SchemaType = Literal[
    "object", "array", "string", "integer", "number", "boolean", "int-or-string", "any"
]
UNSET: Final = object()


class Schema:
    """One node. ``properties`` of a leaf is empty; ``type`` "any" accepts every JSON value."""

    __slots__ = (
        "additional",
        "all_of",
        "any_of",
        "atomic",
        "default",
        "embedded",
        "enum",
        "items",
        "list_type",
        "map_keys",
        "negated",
        "nullable",
        "one_of",
        "opaque",
        "pattern",
        "preserve",
        "properties",
        "raw",
        "required",
        "ruled",
        "rules",
        "type",
    )

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.type: SchemaType = _type_of(raw)
        self.properties: dict[str, Schema] = {}
        self.additional: Schema | None = None
        self.items: Schema | None = None
        self.all_of: tuple[Schema, ...] = ()
        self.any_of: tuple[Schema, ...] = ()
        self.one_of: tuple[Schema, ...] = ()
        self.negated: Schema | None = None
        # Nothing is said about the value, so no walk need enter it (think of fieldsV1).
        self.opaque: bool = raw.keys() <= {"x-kubernetes-preserve-unknown-fields"}
        # Filled by cel.rules: rules of this node, and whether any node below has some.
        self.rules: tuple[Any, ...] = ()
        self.ruled: bool = False
        self.required: tuple[str, ...] = tuple(raw.get("required", ()))
        self.nullable: bool = bool(raw.get("nullable"))
        self.default: Any = raw.get("default", UNSET)
        self.enum: list[Any] | None = raw.get("enum")
        self.pattern = compile_pattern(raw["pattern"]) if "pattern" in raw else None
        self.preserve: bool = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded: bool = bool(raw.get("x-kubernetes-embedded-resource"))
        self.list_type: ListType = raw.get("x-kubernetes-list-type", "atomic")
        self.map_keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys", ()))
        self.atomic: bool = raw.get("x-kubernetes-map-type") == "atomic"

    def child(self, key: str) -> Schema:
        """The schema of an object's field; unknown fields have a deduced one."""
        found = self.properties.get(key)
        return found if found is not None else self.additional or ANY

    @property
    def element(self) -> Schema:
        """The schema of an array's items."""
        return self.items or ANY

    def knows(self, key: str) -> bool:
        """Whether an object of this schema may hold the field at all."""
        return key in self.properties or self.additional is not None or self.preserve


def _type_of(raw: dict[str, Any]) -> SchemaType:
    if raw.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    declared: SchemaType | None = raw.get("type")
    return declared if declared is not None else "any"


ANY: Final = Schema({"x-kubernetes-preserve-unknown-fields": True})


class Compiler:
    """Compiles raw schemas; definitions referenced by name are compiled once."""

    def __init__(self, definitions: dict[str, Any] | None = None) -> None:
        self._definitions = definitions or {}
        self._compiled: dict[str, Schema] = {}

    def named(self, name: str) -> Schema:
        """The compiled definition ``name``; recursion ends at the memo."""
        known = self._compiled.get(name)
        if known is None:
            known = Schema(self._definitions[name])
            self._compiled[name] = known
            self._fill(known)
        return known

    def compile(self, raw: dict[str, Any]) -> Schema:
        """Compile an inline schema, or a reference together with its own default."""
        if "$ref" in raw:
            return self._reference(raw)
        node = Schema(raw)
        self._fill(node)
        return node

    def _reference(self, raw: dict[str, Any]) -> Schema:
        target = self.named(raw["$ref"])
        if len(raw) == 1:
            return target
        merged = {**self._definitions[raw["$ref"]], **raw}
        del merged["$ref"]
        node = Schema(merged)
        self._fill(node)
        return node

    def _fill(self, node: Schema) -> None:
        raw = node.raw
        for key, value in raw.get("properties", {}).items():
            node.properties[key] = self.compile(value)
        additional = raw.get("additionalProperties")
        if isinstance(additional, dict):
            node.additional = self.compile(additional)
        elif additional is True:
            node.additional = ANY
        if isinstance(raw.get("items"), dict):
            node.items = self.compile(raw["items"])
        node.all_of = tuple(map(self.compile, raw.get("allOf", ())))
        node.any_of = tuple(map(self.compile, raw.get("anyOf", ())))
        node.one_of = tuple(map(self.compile, raw.get("oneOf", ())))
        if "not" in raw:
            node.negated = self.compile(raw["not"])


@cache
def builtin_definitions() -> dict[str, Any]:
    """The generated built-in definitions by name, as they are in the file."""
    definitions: dict[str, Any] = msgspec.json.decode(SCHEMA_FILE.read_bytes())
    return definitions


@cache
def builtin_compiler() -> Compiler:
    """The compiler over the generated built-in definitions."""
    return Compiler(builtin_definitions())


def builtin(name: str) -> Schema:
    """The compiled schema of a client model such as ``V1Pod``."""
    return builtin_compiler().named(name)


def custom(raw: dict[str, Any]) -> Schema:
    """A CRD version's ``openAPIV3Schema`` with the type and object metadata every kind has."""
    node = Compiler().compile(raw)
    text = Schema({"type": "string"})
    node.properties = {
        **node.properties,
        "apiVersion": text,
        "kind": text,
        "metadata": builtin("V1ObjectMeta"),
    }
    return node
