"""Server-side apply by tables: who owns what after which write."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver import ssa, typed
from gantry_local.apiserver.errors import StatusError
from gantry_local.apiserver.schema import Compiler, builtin

NOW = "2026-01-01T00:00:00Z"
SCHEMA = Compiler().compile(
    {
        "type": "object",
        "properties": {
            "metadata": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "managedFields": {"x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "spec": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "integer"},
                    "inner": {
                        "type": "object",
                        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                    },
                    "atomic": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                    },
                    "plain": {"type": "array", "items": {"type": "string"}},
                    "map": {
                        "type": "object",
                        "additionalProperties": {
                            "type": "object",
                            "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                        },
                    },
                    "tags": {
                        "type": "array",
                        "x-kubernetes-list-type": "set",
                        "items": {"type": "string"},
                    },
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name", "kind"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": {"type": "string"},
                                "kind": {"type": "string", "default": "K"},
                                "size": {"type": "integer"},
                                "color": {"type": "string"},
                            },
                        },
                    },
                },
            },
        },
    }
)
WRITER = {
    name: ssa.Writer(name, operation, "v1")
    for name, operation in (("one", "Apply"), ("two", "Apply"), ("editor", "Update"))
}


def obj(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": spec}


def apply(
    live: dict[str, Any], config: dict[str, Any], who: str = "one", *, force: bool = False
) -> dict[str, Any]:
    return ssa.apply(live, config, SCHEMA, writer=WRITER[who], force=force, now=NOW)


def edit(live: dict[str, Any], **spec: Any) -> dict[str, Any]:
    new = {**live, "spec": {**live["spec"], **spec}}
    new["spec"] = {key: value for key, value in new["spec"].items() if value is not None}
    return ssa.track(live, new, SCHEMA, writer=WRITER["editor"], now=NOW)


def owners(found: dict[str, Any]) -> dict[str, list[str]]:
    return {entry["manager"]: typed_paths(entry["fieldsV1"]) for entry in ssa.entries(found)}


def typed_paths(fields: dict[str, Any]) -> list[str]:
    from gantry_local.apiserver.fieldsets import paths

    return paths(fields)


@pytest.mark.parametrize(
    ("first", "second", "spec"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, {"a": 1}),
        ({"inner": {"x": 1, "y": 2}}, {"inner": {"x": 1}}, {"inner": {"x": 1}}),
        ({"a": 1, "inner": {"x": 1}}, {"a": 1}, {"a": 1}),
        ({"atomic": {"x": 1, "y": 2}}, {"atomic": {"x": 1}}, {"atomic": {"x": 1}}),
        ({"tags": ["a", "b"]}, {"tags": ["b"]}, {"tags": ["b"]}),
        ({"a": 1, "tags": ["a"]}, {"a": 1}, {"a": 1}),
        (
            {"parts": [{"name": "p", "size": 1}, {"name": "q", "size": 2}]},
            {"parts": [{"name": "q", "size": 2}]},
            {"parts": [{"name": "q", "size": 2}]},
        ),
        (
            {"parts": [{"name": "p", "size": 1, "color": "red"}]},
            {"parts": [{"name": "p", "size": 1}]},
            {"parts": [{"name": "p", "size": 1}]},
        ),
        ({"plain": ["a", "b"]}, {"plain": ["b"]}, {"plain": ["b"]}),
        (
            {"map": {"k": {"x": 1}, "l": {"x": 1}}},
            {"map": {"l": {"x": 1}}},
            {"map": {"l": {"x": 1}}},
        ),
        ({"map": {"k": {"x": 1, "y": 2}}}, {"map": {"k": {"x": 1}}}, {"map": {"k": {"x": 1}}}),
    ],
    ids=[
        "field",
        "nested",
        "struct",
        "atomic",
        "set",
        "whole set",
        "item",
        "item field",
        "list",
        "map key",
        "field in a map",
    ],
)
def test_what_is_no_longer_applied_goes(
    first: dict[str, Any], second: dict[str, Any], spec: dict[str, Any]
) -> None:
    assert apply(apply({}, obj(**first)), obj(**second))["spec"] == spec


def test_a_field_of_another_writer_stays_when_one_drops_it() -> None:
    live = apply(apply({}, obj(a=1, b=2)), obj(b=2), "two")
    live = apply(live, obj(a=1))
    assert live["spec"] == {"a": 1, "b": 2}
    assert owners(live) == {"one": [".spec.a"], "two": [".spec.b"]}


def test_an_item_with_another_writers_field_stays_without_ours() -> None:
    live = apply({}, obj(parts=[{"name": "p", "size": 1}]))
    live = apply(live, obj(parts=[{"name": "p", "color": "red"}]), "two")
    live = apply(live, obj())
    assert live["spec"]["parts"] == [{"name": "p", "color": "red"}]


def test_unowned_values_go_with_the_struct_that_held_them_only() -> None:
    live = apply({}, obj(a=1, inner={"x": 1}))
    live = {**live, "spec": {**live["spec"], "inner": {"x": 1, "y": 9}}}  # y: a default
    assert apply(live, obj(a=1))["spec"] == {"a": 1}
    live2 = apply(live, obj(a=1, inner={"x": 2}))
    assert live2["spec"]["inner"] == {"x": 2, "y": 9}


def test_key_defaults_make_items_the_same() -> None:
    live = apply({}, obj(parts=[{"name": "p", "kind": "K", "size": 1}]))
    live = apply(live, obj(parts=[{"name": "p", "color": "red"}]), "two")
    assert live["spec"]["parts"] == [{"name": "p", "kind": "K", "size": 1, "color": "red"}]


@pytest.mark.parametrize(
    ("mine", "theirs", "field"),
    [
        ({"a": 1}, {"a": 2}, ".spec.a"),
        ({"plain": ["x"]}, {"plain": ["y"]}, ".spec.plain"),
        ({"atomic": {"x": 1}}, {"atomic": {"y": 1}}, ".spec.atomic"),
        (
            {"parts": [{"name": "p", "size": 1}]},
            {"parts": [{"name": "p", "size": 2}]},
            '.spec.parts[kind="K",name="p"].size',
        ),
    ],
    ids=["scalar", "list", "atomic map", "item field"],
)
def test_a_change_of_anothers_field_conflicts(
    mine: dict[str, Any], theirs: dict[str, Any], field: str
) -> None:
    live = apply({}, obj(**mine))
    with pytest.raises(StatusError) as refused:
        apply(live, obj(**theirs), "two")
    assert refused.value.code == 409
    assert [cause["field"] for cause in refused.value.details["causes"]] == [field]
    forced = apply(live, obj(**theirs), "two", force=True)
    assert field not in owners(forced).get("one", [])
    assert field in owners(forced)["two"]


def test_several_conflicts_are_listed_by_manager() -> None:
    live = edit(apply({}, obj(a=1)), b=1)
    with pytest.raises(StatusError) as refused:
        apply(live, obj(a=2, b=2), "two")
    assert refused.value.message == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .spec.a\n'
        f'conflicts with "editor" using v1 at {NOW}:\n- .spec.b'
    )


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"a": 1}, {"a": 1}),
        ({"a": 1}, {"b": 2}),
        ({"tags": ["x"]}, {"tags": ["y"]}),
        ({"inner": {"x": 1}}, {"inner": {"y": 1}}),
        ({"parts": [{"name": "p"}]}, {"parts": [{"name": "q"}]}),
    ],
    ids=["same value", "other field", "set", "nested", "other item"],
)
def test_no_conflict(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    apply(apply({}, obj(**mine)), obj(**theirs), "two")


def test_applying_the_same_returns_the_live_object() -> None:
    live = apply({}, obj(a=1, tags=["x"], parts=[{"name": "p"}]))
    assert apply(live, obj(a=1, tags=["x"], parts=[{"name": "p"}])) is live


def test_an_update_owns_what_it_changed_and_frees_what_it_removed() -> None:
    live = edit(apply({}, obj(a=1, b=2)), a=5)
    assert owners(live) == {"one": [".spec.b"], "editor": [".spec.a"]}
    live = edit(live, b=None)
    assert owners(live) == {"editor": [".spec.a"]}
    assert owners(edit(live, a=None)) == {}


def test_an_emptied_container_of_a_former_update_goes_with_its_last_field() -> None:
    live = edit(obj(), map={"k": {"x": 1}})
    live = ssa.with_entries(
        live, [{**ssa.entries(live)[0], "manager": "one", "operation": "Apply"}]
    )
    live["metadata"]["managedFields"][0]["fieldsV1"] = {"f:spec": {"f:map": {"f:k": {"f:x": {}}}}}
    assert apply(live, obj(a=1, map={}))["spec"] == {"a": 1, "map": None}  # nobody takes it out
    assert apply(live, obj(a=1))["spec"] == {"a": 1}


def test_an_update_back_to_the_same_changes_no_ownership() -> None:
    live = apply({}, obj(a=1))
    assert owners(edit(live, a=1)) == {"one": [".spec.a"]}


def test_clearing_managed_fields_resets_ownership() -> None:
    live = apply({}, obj(a=1))
    cleared = ssa.with_entries(live, [{}])
    tracked = ssa.track(live, cleared, SCHEMA, writer=WRITER["editor"], now=NOW)
    assert ssa.entries(tracked) == []


def test_identity_is_owned_by_nobody() -> None:
    config = {**obj(a=1), "apiVersion": "v1", "kind": "X"}
    config["metadata"] = {"name": "x", "labels": {"l": "1"}}
    assert owners(apply({}, config)) == {"one": [".metadata.labels.l", ".spec.a"]}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"parts": [{"size": 1}]}, 'omits key field "name"'),
        ({"parts": [{"name": "p"}, {"name": "p"}]}, "duplicate entries for key"),
        ({"tags": ["x", "x"]}, "duplicate entries for key"),
    ],
    ids=["no key", "same key", "same value"],
)
def test_a_list_that_cannot_be_keyed_is_refused(spec: dict[str, Any], text: str) -> None:
    with pytest.raises(StatusError, match="failed to create typed patch object") as refused:
        apply({}, obj(**spec))
    assert text in refused.value.message


@pytest.mark.parametrize(
    ("live", "config", "merged"),
    [
        (["a", "b"], ["c"], ["a", "b", "c"]),
        (["a", "b", "c"], ["c", "a"], ["b", "c", "a"]),
        (["a", "b"], ["b", "a"], ["b", "a"]),
        ([], ["x"], ["x"]),
    ],
    ids=["append", "reorder", "swap", "first"],
)
def test_order_of_merged_lists(live: list[str], config: list[str], merged: list[str]) -> None:
    schema = SCHEMA.child("spec").child("tags")
    assert sorted(typed.merge(live, config, schema)) == sorted(merged)
    kept = [item for item in typed.merge(live, config, schema) if item in config]
    assert kept == config


def test_inputs_are_never_changed() -> None:
    import copy

    live = apply({}, obj(a=1, inner={"x": 1}, parts=[{"name": "p", "size": 1}]))
    before = copy.deepcopy(live)
    apply(live, obj(parts=[{"name": "q"}]), "one")
    edit(live, a=2)
    assert live == before


def test_container_ports_are_keyed_by_port_and_protocol() -> None:
    schema = builtin("V1Container").child("ports")
    keys = typed.keyed_items([{"containerPort": 80}], schema, "")
    assert list(keys) == ['k:{"containerPort":80,"protocol":"TCP"}']


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"inner": [1]}, ".spec.inner: expected map, got &{[1]}", id="map"),
        pytest.param({"atomic": []}, ".spec.atomic: expected map", id="atomic"),
        pytest.param({"plain": {"a": 1}}, ".spec.plain: expected list", id="list"),
        pytest.param({"map": {"k": []}}, ".spec.map.k: expected map", id="inside"),
    ],
)
def test_what_the_typed_converter_cannot_read_is_an_internal_error(
    spec: dict[str, Any], words: str
) -> None:
    """As the real server has it, not the 422 of its validation, which comes later."""
    with pytest.raises(StatusError) as refused:
        apply({}, {"spec": spec})
    assert refused.value.code == 500
    assert words in str(refused.value)
