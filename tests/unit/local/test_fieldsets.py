"""The algebra of field sets, on the wire form itself."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver import fieldsets
from gantry_local.apiserver.fieldsets import difference, intersection, paths, union
from hypothesis import given
from hypothesis import strategies as st

A: fieldsets.FieldSet = {"f:a": {}}
B: fieldsets.FieldSet = {"f:b": {}}
NESTED: fieldsets.FieldSet = {"f:a": {".": {}, "f:x": {}}}


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({}, {}, {}),
        (A, {}, A),
        ({}, A, A),
        (A, B, {"f:a": {}, "f:b": {}}),
        (A, {"f:a": {"f:x": {}}}, NESTED),
        ({"f:a": {"f:x": {}}}, {"f:a": {"f:y": {}}}, {"f:a": {"f:x": {}, "f:y": {}}}),
    ],
    ids=["empty", "left", "right", "disjoint", "leaf and child", "siblings"],
)
def test_union(left: dict[str, Any], right: dict[str, Any], expected: dict[str, Any]) -> None:
    assert union(left, right) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (A, A, {}),
        (A, B, A),
        (NESTED, A, {"f:a": {"f:x": {}}}),
        (NESTED, {"f:a": {"f:x": {}}}, {"f:a": {}}),
        (A, {"f:a": {"f:x": {}}}, A),
    ],
    ids=["all", "nothing", "the container", "the content", "below a leaf"],
)
def test_difference(left: dict[str, Any], right: dict[str, Any], expected: dict[str, Any]) -> None:
    assert difference(left, right) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (A, A, A),
        (A, B, {}),
        (NESTED, A, {"f:a": {}}),
        (NESTED, {"f:a": {"f:x": {}}}, {"f:a": {"f:x": {}}}),
        (A, {"f:a": {"f:x": {}}}, {}),
    ],
)
def test_intersection(
    left: dict[str, Any], right: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert intersection(left, right) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"f:spec": {"f:replicas": {}}}, [".spec.replicas"]),
        (NESTED, [".a", ".a.x"]),
        ({"f:l": {'k:{"name":"x"}': {"f:image": {}}}}, ['.l[name="x"].image']),
        ({"f:s": {'v:"x"': {}}}, ['.s[="x"]']),
        (
            {"f:p": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}},
            ['.p[port=80,protocol="TCP"]', '.p[port=80,protocol="TCP"].port'],
        ),
    ],
)
def test_paths_as_people_read_them(fields: dict[str, Any], expected: list[str]) -> None:
    assert paths(fields) == expected


def test_item_keys_are_sorted() -> None:
    assert fieldsets.item_key({"protocol": "TCP", "port": 80}) == 'k:{"port":80,"protocol":"TCP"}'


def _to_set(fields: dict[str, Any]) -> frozenset[str]:
    return frozenset(paths(fields))


_NAMES = st.sampled_from(["f:a", "f:b", "f:c"])
_TRIES: st.SearchStrategy[fieldsets.FieldSet] = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(st.one_of(_NAMES, st.just(".")), inner, max_size=3).map(
        lambda node: {k: ({} if k == "." else v) for k, v in node.items()}
    ),
    max_leaves=6,
)
ROOTS = st.dictionaries(_NAMES, _TRIES.filter(lambda node: set(node) != {"."}), max_size=3)


@given(ROOTS, ROOTS)
def test_operations_agree_with_sets_of_paths(left: dict[str, Any], right: dict[str, Any]) -> None:
    one, two = _to_set(left), _to_set(right)
    assert _to_set(union(left, right)) == one | two
    assert _to_set(difference(left, right)) == one - two
    assert _to_set(intersection(left, right)) == one & two
