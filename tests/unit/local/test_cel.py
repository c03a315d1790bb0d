"""CEL: values, errors, and what registration refuses."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver.cel import check, evaluate, parser, rules
from gantry_local.apiserver.cel.lexer import CelError
from gantry_local.apiserver.schema import Compiler

SELF = {
    "n": 3,
    "d": 1.5,
    "s": "héllo",
    "t": True,
    "l": [1, 2, 3],
    "names": ["a", "b"],
    "m": {"k": "v", "x-y": "z"},
    "parts": [{"name": "p", "size": 1}, {"name": "q"}],
    "size": "10Gi",
    "namespace": "ns",
}


def value_of(text: str) -> Any:
    return evaluate.evaluate(parser.parse(text), {"self": SELF, "oldSelf": {"n": 2}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("7.0 / 2.0", 3.5),
        ("0x10", 16),
        ("1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3", True),
        ("1 == 1.0", True),
        ("1 < 1.5", True),
        ("true == 1", False),
        ("'1' == 1", False),
        ("null == null", True),
        ("!true || !false", True),
        ("self.n > oldSelf.n ? 'more' : 'less'", "more"),
        ("'a' + 'b'", "ab"),
        ("[1] + [2]", [1, 2]),
        ("self.l[1]", 2),
        ("self.m['x-y']", "z"),
        ("self.m.x__dash__y", "z"),
        ("self.__namespace__", "ns"),
        ("2 in self.l", True),
        ("'k' in self.m", True),
        ("!('nope' in self.m)", True),
        ("has(self.n) && !has(self.nope)", True),
        ("size(self.s)", 5),
        ("self.l.size()", 3),
        ("self.l.all(x, x > 0)", True),
        ("self.l.exists(x, x == 2)", True),
        ("self.l.exists_one(x, x > 2)", True),
        ("self.l.filter(x, x > 1)", [2, 3]),
        ("self.l.map(x, x * 2)", [2, 4, 6]),
        ("self.l.map(x, x > 1, x * 2)", [4, 6]),
        ("self.m.all(k, k.size() > 0)", True),
        ("self.parts.all(p, !has(p.size) || p.size == 1)", True),
        ("self.parts.exists(p, self.parts.exists(q, p.name != q.name))", True),
        ("self.s.startsWith('hé') && self.s.endsWith('lo') && self.s.contains('éll')", True),
        ("self.s.matches('^h.*o$')", True),
        ("'a-b'.split('-')", ["a", "b"]),
        ("['a', 'b'].join(',')", "a,b"),
        ("'abc'.substring(1)", "bc"),
        ("'abc'.substring(1, 2)", "b"),
        ("'abc'.charAt(3)", ""),
        ("'abc'.indexOf('c')", 2),
        ("'AbC'.lowerAscii()", "abc"),
        ("' a '.trim()", "a"),
        ("'aXb'.replace('X', '-')", "a-b"),
        ("'v1-v22'.findAll('[0-9]+')", ["1", "22"]),
        ("self.l.sum() == 6 && self.l.min() == 1 && self.l.max() == 3", True),
        ("self.l.isSorted()", True),
        ("int('42') + int(1.9)", 43),
        ("string(42)", "42"),
        ("double('1.5')", 1.5),
        ("quantity(self.size).compareTo(quantity('10240Mi'))", 0),
        ("quantity('1Gi').isGreaterThan(quantity('1G'))", True),
        ("quantity('500m').add(quantity('500m')).asInteger()", 1),
        ("isQuantity('10Gi') && !isQuantity('ten')", True),
        ("{'a': 1}['a']", 1),
        ("r'a\\d'", "a\\d"),
        ("// comment\n true", True),
    ],
)
def test_value(text: str, expected: Any) -> None:
    found = value_of(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "self.nope",
        "self.l[9]",
        "self.l[-1]",
        "self.m['nope']",
        "1 / 0",
        "1 % 0",
        "1 + 'a'",
        "1 + 1.0",
        "'a' < 1",
        "true + true",
        "!1",
        "1 && true",
        "1 ? 2 : 3",
        "self.s.matches('[')",
        "9223372036854775807 + 1",
        "self.n.startsWith('a')",
        "self.n.all(x, true)",
        "self.l.all(x, x)",
        "quantity('ten')",
        "int('ten')",
        "[].min()",
        "quantity('500m').asInteger()",
    ],
)
def test_what_has_no_value_is_an_error(text: str) -> None:
    with pytest.raises(CelError):
        value_of(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("false && self.nope", False),
        ("self.nope && false", False),
        ("true || self.nope", True),
        ("self.nope || true", True),
        ("self.l.exists(x, x == 1 || x / 0 == 1)", True),
        ("self.l.all(x, x > 1 && x / 0 == 1)", False),
    ],
)
def test_a_decisive_side_outweighs_an_error(text: str, *, expected: bool) -> None:
    assert value_of(text) is expected


@pytest.mark.parametrize("text", ["self.nope && true", "false || self.nope"])
def test_an_error_counts_when_nothing_decides(text: str) -> None:
    with pytest.raises(CelError):
        value_of(text)


@pytest.mark.parametrize(
    "text", ["", "1 +", "(1", "a..b", "self.", "@", "has(self)", "[1, 2", "'open", "1 2", "self.?a"]
)
def test_syntax_errors(text: str) -> None:
    with pytest.raises(CelError):
        parser.parse(text)


def test_nesting_is_bounded() -> None:
    with pytest.raises(CelError, match="nested deeper"):
        parser.parse("(" * 500 + "1" + ")" * 500)


TYPE = Compiler().compile(
    {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "s": {"type": "string"},
            "when": {"type": "string", "format": "date-time"},
            "port": {"x-kubernetes-int-or-string": True},
            "l": {"type": "array", "items": {"type": "string"}},
            "m": {"type": "object", "additionalProperties": {"type": "integer"}},
            "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
        },
    }
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("self.typo == 1", "undefined field 'typo'"),
        ("self.o.typo == 1", "undefined field 'typo'"),
        ("has(self.typo)", "undefined field 'typo'"),
        ("other == 1", "undeclared reference to 'other'"),
        ("frobnicate(self.n)", "function 'frobnicate'"),
        ("self.s.frobnicate()", "method 'frobnicate'"),
        ("self.s.startsWith()", "does not take 0"),
        ("self.n == 'x'", "no matching overload"),
        ("self.n && true", "wants booleans"),
        ("self.n", "must evaluate to a bool"),
        ("self.s.matches('(?=x)')", "RE2"),
        ("self.when == self.when", "not supported"),
        ("self.s.x == 1", "does not support field selection"),
        ("self.l['a'] == 'x'", "indexed by int"),
        ("self.o['x'] == 1", "does not support indexing"),
        ("self.n.all(x, true)", "does not support 'all'"),
        ("self.l.all(x, x == 1)", "no matching overload"),
    ],
)
def test_registration_refuses(text: str, why: str) -> None:
    with pytest.raises(CelError, match=why.replace("(", r"\(").replace(")", r"\)")):
        check.check_bool(parser.parse(text), {"self": TYPE, "oldSelf": TYPE})


@pytest.mark.parametrize(
    "text",
    [
        "self.n > 1",
        "self.m.all(k, self.m[k] > 1)",
        "self.l.all(x, x.size() < 3)",
        "self.port == 80 || self.port == 'http'",
        "has(self.o.x) ? self.o.x == 1 : true",
        "self.n == oldSelf.n",
    ],
)
def test_registration_accepts(text: str) -> None:
    check.check_bool(parser.parse(text), {"self": TYPE, "oldSelf": TYPE})


def schema_with(where: dict[str, Any], *found: dict[str, Any]) -> Any:
    where["x-kubernetes-validations"] = list(found)
    return where


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


def test_reason_field_path_and_message_expression() -> None:
    root = ruled(
        rule="self.a < 5",
        messageExpression="'a is ' + string(self.a)",
        reason="FieldValueForbidden",
        fieldPath=".a",
    )
    assert rules.attach(root) == []
    (cause,) = rules.run({"spec": {"a": 9}}, None, root)
    assert (cause.reason, cause.field, cause.message) == (
        "FieldValueForbidden",
        "spec.a",
        "Forbidden: a is 9",
    )


def test_a_rule_without_message_quotes_itself() -> None:
    root = ruled(rule="self.a < 5")
    rules.attach(root)
    (cause,) = rules.run({"spec": {"a": 9}}, None, root)
    assert cause.message == 'Invalid value: "object": failed rule: self.a < 5'


def test_a_failing_evaluation_is_a_violation() -> None:
    root = ruled(rule="self.a < 5")
    rules.attach(root)
    (cause,) = rules.run({"spec": {}}, None, root)
    assert "no such key: a evaluating rule: self.a < 5" in cause.message


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
        ({"rule": "true", "reason": "Whatever"}, "unknown reason"),
        ({"rule": "true", "fieldPath": ".nowhere"}, "does not name a declared field"),
        ({"rule": "true", "messageExpression": "self.("}, "unexpected"),
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
