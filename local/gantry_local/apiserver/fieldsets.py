"""Sets of field paths, held in the FieldsV1 form of ``metadata.managedFields``.

A set is a trie of nested dicts: ``f:name`` for a field, ``k:{...}`` for an associative-list item,
``v:...`` for a set item; ``"."`` or an empty node marks the node itself as a member. This is the
wire form of sigs.k8s.io/structured-merge-diff, so nothing is converted on read or write.
"""

from __future__ import annotations

from typing import Any

import msgspec

FieldSet = dict[str, Any]
SELF = "."


def is_member(node: FieldSet) -> bool:
    """Whether the node's own path belongs to the set."""
    return not node or SELF in node


def _without_self(node: FieldSet) -> FieldSet:
    return {key: child for key, child in node.items() if key != SELF}


def _assemble(children: FieldSet, *, member: bool) -> FieldSet | None:
    """A node from its parts; None when nothing of it is in the set."""
    if member:
        return {SELF: {}, **children} if children else {}
    return children or None


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Paths in either set (the arguments are roots: an empty root is an empty set)."""
    merged = dict(left)
    for key, node in right.items():
        merged[key] = _union_nodes(merged[key], node) if key in merged else node
    return merged


def _union_nodes(left: FieldSet, right: FieldSet) -> FieldSet:
    children = union(_without_self(left), _without_self(right))
    return _assemble(children, member=is_member(left) or is_member(right)) or {}


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Paths of ``left`` that are not in ``right``."""
    kept: FieldSet = {}
    for key, node in left.items():
        if key not in right:
            kept[key] = node
            continue
        other = right[key]
        children = difference(_without_self(node), _without_self(other))
        rest = _assemble(children, member=is_member(node) and not is_member(other))
        if rest is not None:
            kept[key] = rest
    return kept


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Paths in both sets."""
    shared: FieldSet = {}
    for key, node in left.items():
        if key not in right:
            continue
        other = right[key]
        children = intersection(_without_self(node), _without_self(other))
        both = _assemble(children, member=is_member(node) and is_member(other))
        if both is not None:
            shared[key] = both
    return shared


def covers(node: FieldSet | None) -> bool:
    """Whether the set has anything at or below this node (None: the path is not in the trie)."""
    return node is not None


def paths(fields: FieldSet, prefix: str = "") -> list[str]:
    """Every member as people write it: ``.spec.containers[name="a"].image``."""
    found: list[str] = []
    for key in sorted(fields):
        if key == SELF:
            continue
        node = fields[key]
        below = prefix + element_text(key)
        if is_member(node):
            found.append(below)
        found += paths(node, below)
    return found


def element_text(key: str) -> str:
    """One path element in the notation of conflict messages."""
    kind, text = key[0], key[2:]
    match kind:
        case "f":
            return f".{text}"
        case "v":
            return f"[={text}]"
        case "k":
            keys = msgspec.json.decode(text)
            shown = ",".join(
                f"{name}={msgspec.json.encode(value).decode()}" for name, value in keys.items()
            )
            return f"[{shown}]"
        case _:
            return f"[{text}]"


def field_key(name: str) -> str:
    """The element of an object's field."""
    return f"f:{name}"


def value_key(value: Any) -> str:
    """The element of a set's item."""
    return "v:" + msgspec.json.encode(value).decode()


def item_key(keys: dict[str, Any]) -> str:
    """The element of an associative list's item."""
    return "k:" + msgspec.json.encode(keys, order="sorted").decode()
