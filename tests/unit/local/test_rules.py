"""Rules of CRDs: what registration refuses, where they run, and what they report."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver import rules
from gantry_local.apiserver.schema import Compiler

PROPERTIES: dict[str, Any] = {
    "n": {"type": "integer"},
    "s": {"type": "string"},
    "port": {"x-kubernetes-int-or-string": True},
    "l": {"type": "array", "items": {"type": "string"}},
    "m": {"type": "object", "additionalProperties": {"type": "integer"}},
    "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
}


def schema_with(where: dict[str, Any], *found: dict[str, Any]) -> Any:
    where["x-kubernetes-validations"] = list(found)
    return where


def attached(text: str) -> list[str]:
    """What registration says about this rule of an object with `PROPERTIES`."""
    root = schema_with({"type": "object", "properties": PROPERTIES}, {"rule": text})
    return [cause.message for cause in rules.attach(Compiler().compile(root))]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("self.typo == 1", "undefined field 'typo'"),
        ("self.o.typo == 1", "undefined field 'typo'"),
        ("has(self.typo)", "undefined field 'typo'"),
        ("oldSelf.typo == 1", "undefined field 'typo'"),
        ("self.typo.matches('self.s')", "undefined field 'typo'"),
        ("self.s.x == 1", "undefined field 'x'"),
        ("other == 1", "undeclared reference to 'other'"),
        ("frobnicate(self.n)", "undeclared reference to 'frobnicate'"),
        ("self.s.frobnicate()", "undeclared reference to 'frobnicate'"),
        ("self.s.startsWith()", "undeclared reference"),
        ("1 == 'x'", "no matching overload"),
        ("'yes'", "must evaluate to a bool, not STRING"),
        ("self.(", "Syntax error"),
    ],
)
def test_registration_refuses(text: str, why: str) -> None:
    (problem,) = attached(text)
    assert why in problem


@pytest.mark.parametrize(
    "text",
    [
        "self.n > 1",
        "self.m.all(k, self.m[k] > 1)",
        "self.m.k > 1",
        "self.l.all(x, x.size() < 3)",
        "self.port == 80 || self.port == 'http'",
        "has(self.o.x) ? self.o.x == 1 : true",
        "self.n == oldSelf.n",
        "self.s.startsWith('self.typo')",
    ],
)
def test_registration_accepts(text: str) -> None:
    assert attached(text) == []


def test_rules_run_where_they_stand_and_report_their_field() -> None:
    inner = {"type": "integer"}
    schema_with(inner, {"rule": "self > 1", "message": "too small"})
    item = {"type": "object", "properties": {"size": inner}}
    root = Compiler().compile(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "list": {"type": "array", "items": item},
                        "map": {"type": "object", "additionalProperties": item},
                    },
                }
            },
        }
    )
    assert rules.attach(root) == []
    value = {"spec": {"list": [{"size": 2}, {"size": 0}], "map": {"k": {"size": 1}}}}
    causes = rules.run(value, None, root)
    assert [cause.field for cause in causes] == ["spec.list[1].size", "spec.map[k].size"]
    assert causes[0].message == 'Invalid value: "integer": too small'


def ruled(**rule: Any) -> Any:
    spec = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    return Compiler().compile({"type": "object", "properties": {"spec": schema_with(spec, rule)}})


def test_a_rule_without_message_quotes_itself() -> None:
    root = ruled(rule="self.a < 5")
    rules.attach(root)
    (cause,) = rules.run({"spec": {"a": 9}}, None, root)
    assert cause.message == 'Invalid value: "object": failed rule: self.a < 5'


def test_a_failing_evaluation_is_a_violation() -> None:
    root = ruled(rule="self.a < 5")
    rules.attach(root)
    (cause,) = rules.run({"spec": {}}, None, root)
    assert 'Key not found in map : "a" evaluating rule: self.a < 5' in cause.message


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("self.b.startsWith('x') || self.a < 5", {"a": 1}),
        ("self.a < 5 || self.b.startsWith('x')", {"a": 1}),
        ("has(self.a) && self.a == 1 || self.b == 'x'", {"b": "x"}),
    ],
)
def test_a_decisive_side_outweighs_a_missing_field(rule: str, value: dict[str, Any]) -> None:
    root = ruled(rule=rule)
    assert rules.attach(root) == []
    assert rules.run({"spec": value}, None, root) == []


def test_transition_rules_need_an_old_value() -> None:
    root = ruled(rule="self.a >= oldSelf.a", message="must not shrink")
    assert rules.attach(root) == []
    assert rules.run({"spec": {"a": 1}}, None, root) == []
    assert rules.run({"spec": {"a": 2}}, {"spec": {"a": 1}}, root) == []
    assert len(rules.run({"spec": {"a": 1}}, {"spec": {"a": 2}}, root)) == 1
    assert rules.run({"spec": {"a": 1}}, {}, root) == []


def test_items_of_keyed_lists_are_compared_by_key() -> None:
    size = schema_with({"type": "integer"}, {"rule": "self == oldSelf", "message": "fixed"})
    name = {"type": "string"}
    items = {"type": "object", "properties": {"name": name, "size": size}}
    keyed = {
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    root = Compiler().compile({"type": "object", "properties": {"l": keyed}})
    assert rules.attach(root) == []
    old = {"l": [{"name": "a", "size": 1}, {"name": "b", "size": 2}]}
    swapped = {"l": [{"name": "b", "size": 2}, {"name": "a", "size": 1}]}
    assert rules.run(swapped, old, root) == []
    changed = {"l": [{"name": "b", "size": 3}]}
    assert [cause.field for cause in rules.run(changed, old, root)] == ["l[0].size"]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"rule": "self.typo == 1"}, "undefined field"),
        ({"rule": ""}, "needs the field 'rule'"),
        ({"rule": "true", "optionalOldSelf": True}, "not supported"),
        ({"rule": "true", "fieldPath": ".a"}, "not supported"),
    ],
)
def test_a_rule_that_cannot_be_honoured_is_reported(rule: dict[str, Any], why: str) -> None:
    (problem,) = rules.attach(ruled(**rule))
    assert problem.field == ".properties[spec].x-kubernetes-validations[0].rule"
    assert why in problem.message


def test_transition_rules_below_plain_lists_are_reported() -> None:
    item = schema_with({"type": "integer"}, {"rule": "self == oldSelf"})
    listed = {"type": "array", "items": item}
    (problem,) = rules.attach(Compiler().compile({"type": "object", "properties": {"l": listed}}))
    assert "uncorrelatable" in problem.message


def test_of_the_metadata_rules_see_the_name_only() -> None:
    from gantry_local.apiserver.schema import custom

    raw = {"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name != 'x'"}]}
    root = custom(raw)
    assert rules.attach(root) == []
    assert len(rules.run({"metadata": {"name": "x"}}, None, root)) == 1
    hidden = custom(
        {"type": "object", "x-kubernetes-validations": [{"rule": "has(self.metadata.labels)"}]}
    )
    assert "undefined field 'labels'" in rules.attach(hidden)[0].message
