"""Typed operations on objects: field sets, comparison, merge and removal, guided by a schema.

The rules are those of sigs.k8s.io/structured-merge-diff: objects merge field by field unless they
are atomic, associative lists merge item by item under their keys, sets unite, everything else is
replaced as a whole. No input is ever changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_local.apiserver import fieldsets
from gantry_local.apiserver.fieldsets import SELF, FieldSet
from gantry_local.apiserver.schema import UNSET

if TYPE_CHECKING:
    from gantry_local.apiserver.schema import Schema


class TypedError(Exception):
    """The value cannot be read as the schema's type; the text names path and reason."""


def check(value: Any, schema: Schema, path: str = "") -> None:
    """Whether maps and lists are where the schema has them, all the way down.

    Raises:
        TypedError: in the real converter's words.
    """
    if value is None or schema.opaque:
        return
    if schema.type == "object" and not isinstance(value, dict):
        raise TypedError(f"{path}: expected map, got &{{{value}}}")
    if schema.type == "array" and not isinstance(value, list):
        raise TypedError(f"{path}: expected list, got &{{{value}}}")
    if isinstance(value, dict):
        for name, item in value.items():
            check(item, schema.child(name), f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check(item, schema.element, f"{path}[{index}]")


def field_set(value: Any, schema: Schema, path: str = "") -> FieldSet:
    """The paths of everything in ``value``: what its author takes responsibility for."""
    if _is_granular_map(value, schema):
        found: FieldSet = {}
        for name, item in value.items():
            child = schema.child(name)
            if item == [] and child.list_type != "atomic":
                continue  # an empty list of items owns nothing
            below = field_set(item, child, f"{path}.{name}")
            if not below and item and _is_granular_map(item, child) and name in schema.properties:
                continue  # nor does what holds nothing but such lists
            if below and name not in schema.properties:
                below = {SELF: {}, **below}  # a map's key is itself something that was set
            found[fieldsets.field_key(name)] = below
        return found
    if _is_keyed_list(value, schema):
        found = {}
        for key, item in keyed_items(value, schema, path).items():
            below = field_set(item, schema.element, path)
            found[key] = {SELF: {}, **below} if below else {}
        return found
    return {}


def added_set(value: Any, schema: Schema) -> FieldSet:
    """Like ``field_set``, with the containers themselves: how an update records what is new."""
    if _is_granular_map(value, schema) and value:
        below = {
            fieldsets.field_key(name): added_set(item, schema.child(name))
            for name, item in value.items()
        }
        return {SELF: {}, **below}
    if _is_keyed_list(value, schema) and value:
        items = keyed_items(value, schema, "", strict=False)
        return {SELF: {}} | {key: added_set(item, schema.element) for key, item in items.items()}
    return {}


def compare(old: Any, new: Any, schema: Schema) -> tuple[FieldSet, FieldSet]:
    """(changed or added, removed) paths between two objects."""
    changed: FieldSet = {}
    removed: FieldSet = {}
    before, after = _children(old, schema), _children(new, schema)
    for key, item in after.items():
        child = _child_schema(schema, key)
        if key not in before:
            changed[key] = added_set(item, child)
        elif before[key] is not item and before[key] != item:
            _compare_child(key, before[key], item, child, changed, removed)
    for key in before.keys() - after.keys():
        removed[key] = added_set(before[key], _child_schema(schema, key))
    return changed, removed


def _compare_child(
    key: str, old: Any, new: Any, schema: Schema, changed: FieldSet, removed: FieldSet
) -> None:
    if not (_is_container(old, schema) and _is_container(new, schema)):
        changed[key] = added_set(new, schema)
        if _is_container(old, schema):
            removed[key] = added_set(old, schema)
        return
    inner_changed, inner_removed = compare(old, new, schema)
    if inner_changed:
        changed[key] = inner_changed
    if inner_removed:
        removed[key] = inner_removed


def merge(live: Any, config: Any, schema: Schema) -> Any:
    """``live`` overlaid with ``config``; nothing is removed."""
    if _is_granular_map(live, schema) and _is_granular_map(config, schema):
        merged = dict(live)
        for name, item in config.items():
            merged[name] = merge(live[name], item, schema.child(name)) if name in live else item
        return merged
    if _is_keyed_list(live, schema) and _is_keyed_list(config, schema):
        return _merge_lists(live, config, schema)
    return config


def _merge_lists(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    """Items only in ``live`` keep their place; the others follow the order of ``config``."""
    left = keyed_items(live, schema, "", strict=False)
    right = keyed_items(config, schema, "")
    merged: list[Any] = []
    pending = list(right)
    for key, item in left.items():
        if key not in right:
            merged.append(item)
            continue
        # Everything of config up to the shared item comes first, so that config's order wins.
        while key in pending:
            nearest = pending.pop(0)
            other = left.get(nearest)
            chosen = right[nearest]
            merged.append(chosen if other is None else merge(other, chosen, schema.element))
    merged += [right[key] for key in pending]
    return merged


def remove(value: Any, schema: Schema, gone: FieldSet, keep: FieldSet) -> Any:
    """``value`` without the paths of ``gone`` that ``keep`` does not need.

    A declared field or list item goes as a whole when nobody keeps anything in it, together with
    what was never owned there, such as defaults; otherwise only the listed paths inside it go.
    """
    if isinstance(value, dict):
        return _remove_fields(value, schema, gone, keep)
    left: list[Any] = []
    for key, item in keyed_items(value, schema, "", strict=False).items():
        rest = _remove_child(key, item, schema, gone, keep)
        if rest is not UNSET:
            left.append(rest)
    return left


def _remove_fields(
    value: dict[str, Any], schema: Schema, gone: FieldSet, keep: FieldSet
) -> dict[str, Any]:
    left: dict[str, Any] = {}
    for name, item in value.items():
        rest = _remove_child(fieldsets.field_key(name), item, schema, gone, keep)
        if rest is not UNSET:
            left[name] = rest
    return left


def _remove_child(key: str, item: Any, schema: Schema, gone: FieldSet, keep: FieldSet) -> Any:
    if key not in gone:
        return item
    node, kept = gone[key], keep.get(key)
    if kept is None and (fieldsets.is_member(node) or _is_declared(schema, key)):
        return UNSET
    child = _child_schema(schema, key)
    if not _is_container(item, child):
        return item
    rest = remove(item, child, node, kept or {})
    # What is emptied and still somebody's is null: the real one returns no map for an empty one.
    return rest or (UNSET if kept is None else None)


def keyed_items(
    items: list[Any], schema: Schema, path: str, *, strict: bool = True
) -> dict[str, Any]:
    """Items of an associative list or set under their path elements, in order.

    Raises:
        TypedError: ``strict`` and an item lacks a key field or repeats one.
    """
    found: dict[str, Any] = {}
    for index, item in enumerate(items):
        key = _element_key(item, schema, f"{path}[{index}]")
        if strict and key in found:
            raise TypedError(f"{path}: duplicate entries for key {fieldsets.element_text(key)}")
        found[key] = item
    return found


def _element_key(item: Any, schema: Schema, path: str) -> str:
    if schema.list_type == "set":
        return fieldsets.value_key(item)
    if not isinstance(item, dict):
        raise TypedError(f"{path}: associative list item must be an object")
    keys: dict[str, Any] = {}
    for name in schema.map_keys:
        default = schema.element.child(name).default
        if name not in item and default is UNSET:
            raise TypedError(
                f'{path}: associative list with keys has an element that omits key field "{name}"'
            )
        keys[name] = item.get(name, default)
    return fieldsets.item_key(keys)


def _children(value: Any, schema: Schema) -> dict[str, Any]:
    """Path element → value of a container's children."""
    if isinstance(value, dict):
        return {fieldsets.field_key(name): item for name, item in value.items()}
    return keyed_items(value, schema, "", strict=False)


def _child_schema(schema: Schema, key: str) -> Schema:
    return schema.child(key[2:]) if key.startswith("f:") else schema.element


def _is_declared(schema: Schema, key: str) -> bool:
    return key.startswith("f:") and key[2:] in schema.properties


def _is_granular_map(value: Any, schema: Schema) -> bool:
    return isinstance(value, dict) and not schema.atomic


def _is_keyed_list(value: Any, schema: Schema) -> bool:
    return isinstance(value, list) and schema.list_type != "atomic"


def _is_container(value: Any, schema: Schema) -> bool:
    return _is_granular_map(value, schema) or _is_keyed_list(value, schema)
