"""Pruning, defaulting, validation, and the generated schemas of built-in kinds."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver import builtin_generate, structural
from gantry_local.apiserver.regex import PatternError, compile_pattern
from gantry_local.apiserver.schema import Compiler, Schema, builtin
from gantry_local.apiserver.validation import FORMATS, validate


def compiled(**raw: Any) -> Schema:
    return Compiler().compile({"type": "object", "properties": raw})


def test_the_generated_schemas_are_those_of_the_installed_client() -> None:
    stored = builtin_generate.SCHEMA_FILE.read_text(encoding="utf-8")
    assert stored == builtin_generate.render(), (
        "run python -m gantry_local.apiserver.builtin_generate"
    )


@pytest.mark.parametrize(
    ("value", "kept", "dropped"),
    [
        ({"a": 1, "z": 2}, {"a": 1}, ["z"]),
        ({"o": {"x": 1, "z": 2}}, {"o": {"x": 1}}, ["o.z"]),
        ({"l": [{"x": 1}, {"z": 2}]}, {"l": [{"x": 1}, {}]}, ["l[1].z"]),
        ({"m": {"any": "thing"}}, {"m": {"any": "thing"}}, []),
        ({"free": {"any": {"thing": 1}}}, {"free": {"any": {"thing": 1}}}, []),
        ({"a": None}, {}, []),
        ({"n": None}, {"n": None}, []),
    ],
    ids=["top", "nested", "in a list", "map", "preserved", "null", "nullable"],
)
def test_prune(value: dict[str, Any], kept: dict[str, Any], dropped: list[str]) -> None:
    inner = {"type": "object", "properties": {"x": {"type": "integer"}}}
    schema = compiled(
        a={"type": "integer"},
        n={"type": "integer", "nullable": True},
        o=inner,
        l={"type": "array", "items": inner},
        m={"type": "object", "additionalProperties": {"type": "string"}},
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    )
    assert structural.prune(value, schema) == dropped
    assert value == kept


def test_defaults_fill_outer_then_inner() -> None:
    schema = compiled(
        a={"type": "integer", "default": 1},
        o={
            "type": "object",
            "default": {},
            "properties": {"x": {"type": "integer", "default": 2}},
        },
        absent={"type": "object", "properties": {"x": {"type": "integer", "default": 3}}},
    )
    value: dict[str, Any] = {}
    structural.apply_defaults(value, schema)
    assert value == {"a": 1, "o": {"x": 2}}


def test_defaults_are_copies() -> None:
    schema = compiled(o={"type": "object", "default": {"list": []}})
    one: dict[str, Any] = {}
    two: dict[str, Any] = {}
    structural.apply_defaults(one, schema)
    structural.apply_defaults(two, schema)
    one["o"]["list"].append(1)
    assert two == {"o": {"list": []}}


def test_a_given_value_is_not_defaulted() -> None:
    value = {"a": 0}
    structural.apply_defaults(value, compiled(a={"type": "integer", "default": 1}))
    assert value == {"a": 0}


@pytest.mark.parametrize(
    ("raw", "good", "bad", "text"),
    [
        ({"type": "integer"}, 1, 1.5, 'must be of type integer: "number"'),
        ({"type": "integer"}, 1, True, 'must be of type integer: "boolean"'),
        ({"type": "number"}, 1, "1", 'must be of type number: "string"'),
        ({"type": "boolean"}, False, 0, 'must be of type boolean: "integer"'),
        ({"x-kubernetes-int-or-string": True}, "x", [], "must be of type int-or-string"),
        ({"type": "string", "minLength": 2}, "ab", "a", "at least 2 chars long"),
        ({"type": "string", "maxLength": 2}, "ab", "abc", "may not be more than 2 bytes"),
        ({"type": "string", "pattern": "^a+$"}, "aa", "ab", "should match '^a+$'"),
        ({"type": "string", "pattern": "^a+$"}, "aa", "aa\n", "should match '^a+$'"),
        ({"type": "string", "enum": ["a", "b"]}, "a", "c", 'supported values: "a", "b"'),
        ({"type": "integer", "minimum": 1}, 1, 0, "greater than or equal to 1"),
        ({"type": "integer", "maximum": 1}, 1, 2, "less than or equal to 1"),
        (
            {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            2,
            1,
            "should be greater than 1",
        ),
        ({"type": "integer", "multipleOf": 4}, 8, 6, "multiple of 4"),
        ({"type": "integer", "format": "int32"}, 1, 2**31, "must be of type int32"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, ["a"], [], "at least 1"),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 1},
            ["a"],
            ["a", "b"],
            "must have at most 1 items",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1},
            {"a": "b"},
            {"a": "b", "c": "d"},
            "must have at most 1 items",
        ),
        (
            {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}},
            {"x": ""},
            {},
            "Required value",
        ),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00Z", "2026-01-01", "date"),
        ({"type": "string", "format": "byte"}, "YQ==", "?", "byte"),
        ({"type": "string", "format": "duration"}, "5s", "5", "duration"),
        ({"type": "string", "format": "ipv4"}, "127.0.0.1", "localhost", "ipv4"),
        (
            {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}]},
            1,
            "x",
            "at least one schema",
        ),
        ({"type": "integer", "oneOf": [{"minimum": 1}, {"minimum": 5}]}, 2, 6, "one and only one"),
        ({"type": "integer", "allOf": [{"minimum": 1}]}, 1, 0, "greater than or equal"),
        ({"type": "integer", "not": {"enum": [3]}}, 1, 3, "must not validate"),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "set",
                "items": {"type": "string"},
            },
            ["a", "b"],
            ["a", "a"],
            'Duplicate value: "a"',
        ),
    ],
)
def test_validation(raw: dict[str, Any], good: Any, bad: Any, text: str) -> None:
    schema = compiled(f=raw)
    assert validate({"f": good}, schema) == []
    causes = validate({"f": bad}, schema)
    assert len(causes) == 1
    assert causes[0].field.startswith("f")
    assert text in causes[0].message


def test_a_nullable_value_may_be_null() -> None:
    schema = compiled(f={"type": "string", "nullable": True})
    assert validate({"f": None}, schema) == []


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_format_refuses_nonsense(name: str) -> None:
    assert not FORMATS[name]("not a valid value of any format!")


@pytest.mark.parametrize("pattern", ["(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "a++", "["])
def test_patterns_that_go_does_not_know_are_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", [r"^[a-z]+$", r"\d+\.\d", "(?:a|b)", "(?i)x", r"a\+b", "a*?"])
def test_common_patterns_are_accepted(pattern: str) -> None:
    compile_pattern(pattern)


def test_empty_lists_and_maps_of_built_in_kinds_are_omitted() -> None:
    service = {
        "metadata": {"name": "x", "labels": {}, "finalizers": []},
        "spec": {"ports": [], "selector": {"a": "b"}},
    }
    structural.drop_empty(service, builtin("V1Service"))
    assert service == {"metadata": {"name": "x"}, "spec": {"selector": {"a": "b"}}}
    endpoints = {"addressType": "IPv4", "endpoints": [], "ports": []}
    structural.drop_empty(endpoints, builtin("V1EndpointSlice"))
    assert endpoints == {"addressType": "IPv4", "endpoints": []}
    lease = {"spec": {"holderIdentity": "", "leaseTransitions": 0}}
    structural.drop_empty(lease, builtin("V1Lease"))
    assert lease == {"spec": {"holderIdentity": "", "leaseTransitions": 0}}


def test_a_misspelt_field_of_a_built_in_kind_is_noticed() -> None:
    value = {"spec": {"replica": 3}}
    assert structural.prune(value, builtin("V1StatefulSet")) == ["spec.replica"]
