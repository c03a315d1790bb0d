"""Selectors, patches and names by tables."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver import names, patches, selectors
from gantry_local.apiserver.errors import StatusError
from gantry_local.apiserver.kinds import ResourceType, builtin_types
from gantry_local.apiserver.schema import builtin

TYPES = {resource.plural: resource for resource in builtin_types()}


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a=b", {"a": "c"}, False),
        ("a==b", {"a": "b"}, True),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a in (b,c)", {"a": "c"}, True),
        ("a in (b,c)", {}, False),
        ("a notin (b,c)", {}, True),
        ("a notin (b, c)", {"a": "c"}, False),
        ("x.y/a=b,c", {"x.y/a": "b", "c": ""}, True),
        ("x.y/a=b,c", {"x.y/a": "b"}, False),
        ("a in (b,c),d=e", {"a": "b", "d": "e"}, True),
        ("a=", {"a": ""}, True),
    ],
)
def test_label_selectors(text: str, labels: dict[str, str], *, matches: bool) -> None:
    selector = selectors.Selector(selectors.parse_labels(text))
    assert selector.matches({"metadata": {"labels": labels}}) is matches


@pytest.mark.parametrize("text", ["a in b", "=b", "a=b c", "a in (b", "a<b"])
def test_malformed_label_selectors(text: str) -> None:
    with pytest.raises(StatusError) as refused:
        selectors.parse_labels(text)
    assert refused.value.code == 400


POD = {
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {"nodeName": "local"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("metadata.name=p", True),
        ("metadata.name!=p", False),
        ("metadata.namespace=n,status.phase=Running", True),
        ("spec.nodeName==local", True),
        ("spec.nodeName=", False),
        ("status.podIP=", True),
    ],
)
def test_field_selectors(text: str, *, matches: bool) -> None:
    selector = selectors.parse_selector(TYPES["pods"], "", text)
    assert selector.matches(POD) is matches


def test_unknown_field_selectors_are_refused() -> None:
    with pytest.raises(StatusError, match=r"field label not supported: spec\.nodeName"):
        selectors.parse_selector(TYPES["services"], "", "spec.nodeName=x")


def test_label_selector_objects() -> None:
    selector = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["x", "y"]},
            {"key": "d", "operator": "DoesNotExist"},
        ],
    }
    terms = selectors.from_label_selector(selector)
    assert terms is not None
    assert all(term.matches({"a": "b", "c": "y"}) for term in terms)
    assert not all(term.matches({"a": "b", "c": "y", "d": ""}) for term in terms)
    assert selectors.to_text(selector) == "a=b,c in (x,y),!d"
    assert selectors.from_label_selector(None) is None


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "foo"}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_examples_of_rfc_7386(target: Any, patch: Any, expected: Any) -> None:
    assert patches.merge_patch(target, patch) == expected


@pytest.mark.parametrize(
    ("target", "operations", "expected"),
    [
        ({}, [{"op": "add", "path": "/a", "value": 1}], {"a": 1}),
        ({"l": [1, 3]}, [{"op": "add", "path": "/l/1", "value": 2}], {"l": [1, 2, 3]}),
        ({"l": [1]}, [{"op": "add", "path": "/l/-", "value": 2}], {"l": [1, 2]}),
        ({"l": [1, 2]}, [{"op": "remove", "path": "/l/0"}], {"l": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
        ({"a/b": 1}, [{"op": "remove", "path": "/a~1b"}], {}),
        ({"a~b": 1}, [{"op": "remove", "path": "/a~0b"}], {}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    ],
)
def test_json_patch(target: Any, operations: Any, expected: Any) -> None:
    assert patches.json_patch(target, operations) == expected


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ({"op": "add"}, 400),
        (["x"], 400),
        ([{"op": "frob", "path": "/a"}], 400),
        ([{"op": "add", "path": "a", "value": 1}], 400),
        ([{"op": "add", "path": "/a"}], 400),
        ([{"op": "remove", "path": "/nope"}], 422),
        ([{"op": "replace", "path": "/nope", "value": 1}], 422),
        ([{"op": "add", "path": "/nope/x", "value": 1}], 422),
        ([{"op": "add", "path": "/l/9", "value": 1}], 422),
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "remove", "path": ""}], 422),
        ([{"op": "add", "path": "/a/x", "value": 1}], 422),
        ([{"op": "test", "path": "/a", "value": 1}] * 10_001, 413),
    ],
)
def test_json_patch_refusals(operations: Any, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        patches.json_patch({"a": 1, "l": []}, operations)
    assert refused.value.code == code


def test_json_patch_leaves_its_target_alone() -> None:
    target = {"a": {"b": 1}}
    patches.json_patch(target, [{"op": "remove", "path": "/a/b"}])
    assert target == {"a": {"b": 1}}


CONTAINERS: list[dict[str, Any]] = [
    {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]},
    {"name": "b"},
]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ([{"name": "a", "image": "2"}], [{**CONTAINERS[0], "image": "2"}, CONTAINERS[1]]),
        ([{"name": "c"}], [*CONTAINERS, {"name": "c"}]),
        ([{"name": "b", "$patch": "delete"}], [CONTAINERS[0]]),
        ([{"$patch": "replace"}, {"name": "z"}], [{"name": "z"}]),
        (
            [{"name": "a", "env": [{"name": "X", "value": "2"}]}],
            [{**CONTAINERS[0], "env": [{"name": "X", "value": "2"}]}, CONTAINERS[1]],
        ),
    ],
    ids=["change", "add", "delete", "replace", "nested"],
)
def test_strategic_merge_of_keyed_lists(patch: Any, expected: Any) -> None:
    target = {"spec": {"containers": CONTAINERS}}
    merged = patches.strategic_patch(target, {"spec": {"containers": patch}}, builtin("V1Pod"))
    assert merged["spec"]["containers"] == expected


def test_strategic_merge_of_sets_and_directives() -> None:
    pod = {"metadata": {"finalizers": ["a"]}, "spec": {"nodeName": "x"}}
    merged = patches.strategic_patch(
        pod, {"metadata": {"finalizers": ["b"]}, "spec": {"$patch": "replace"}}, builtin("V1Pod")
    )
    assert merged == {"metadata": {"finalizers": ["a", "b"]}, "spec": {}}
    with pytest.raises(StatusError, match="retainKeys"):
        patches.strategic_patch(pod, {"$retainKeys": []}, builtin("V1Pod"))


def check(plural: str, **metadata: Any) -> list[str]:
    resource: ResourceType = TYPES[plural]
    return [cause.field for cause in names.check_metadata(resource, metadata)]


@pytest.mark.parametrize(
    ("plural", "name", "valid"),
    [
        ("configmaps", "a.b-c.1", True),
        ("configmaps", "A", False),
        ("configmaps", "-a", False),
        ("configmaps", "a" * 254, False),
        ("services", "a-1", True),
        ("services", "1a", False),
        ("services", "a.b", False),
        ("services", "a" * 64, False),
        ("namespaces", "1a", True),
        ("namespaces", "a.b", False),
        ("configmaps", "", False),
    ],
)
def test_object_names(plural: str, name: str, *, valid: bool) -> None:
    assert (check(plural, name=name) == []) is valid


@pytest.mark.parametrize(
    ("labels", "valid"),
    [
        ({"a": "b"}, True),
        ({"a.b/c": ""}, True),
        ({"A/b": "c"}, False),
        ({"a": "b c"}, False),
        ({"a": "-b"}, False),
        ({"a": "b" * 64}, False),
        ({"a" * 64: "b"}, False),
    ],
)
def test_labels(labels: dict[str, str], *, valid: bool) -> None:
    assert (check("configmaps", name="x", labels=labels) == []) is valid


def test_annotations_are_bounded() -> None:
    assert check("configmaps", name="x", annotations={"a": "b" * 262_144}) == [
        "metadata.annotations"
    ]
