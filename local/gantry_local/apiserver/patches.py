"""JSON merge patch (RFC 7386), JSON patch (RFC 6902), strategic merge patch; no side effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import jsonpatch
import msgspec

from gantry_local.apiserver.errors import StatusError, bad_request

if TYPE_CHECKING:
    from gantry_local.apiserver.schema import Schema

MAX_OPERATIONS: Final = 10_000
"""The API server's own limit on the operations of one JSON patch."""

_UNFIT: Final = (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException)


def clone(value: Any) -> Any:
    """A private copy of a JSON value (an order of magnitude faster than ``copy.deepcopy``)."""
    return msgspec.json.decode(msgspec.json.encode(value))


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null deletes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902.

    Raises:
        StatusError: 400 for a malformed patch, 422 for one that does not fit the object.
    """
    if not isinstance(operations, list):
        raise bad_request("json patch must be a list of operations")
    if len(operations) > MAX_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}"
        raise StatusError(413, "RequestEntityTooLarge", message)
    try:
        patch = jsonpatch.JsonPatch(operations)
    except (*_UNFIT, TypeError) as error:
        raise bad_request(f"malformed json patch: {error}") from error
    try:
        return patch.apply(target)
    except jsonpatch.InvalidJsonPatch as error:
        raise bad_request(f"malformed json patch: {error}") from error
    except _UNFIT as error:
        why = f"the server rejected our request due to an error: {error}"
        raise StatusError(422, "Invalid", why) from error


def strategic_patch(target: Any, patch: Any, schema: Schema) -> Any:
    """Merge patch that merges associative lists by key and unites sets, for built-in kinds.

    Merge keys are the first key of each associative list: the ``patchMergeKey`` of every list this
    server knows. ``$patch: replace|delete`` and ``$deleteFromPrimitiveList`` are honoured;
    ``$setElementOrder`` only orders and is accepted; other directives are refused.
    """
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive not in {None, "merge"}:
        raise bad_request(f"unsupported $patch directive {directive!r}")
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            _special(merged, key, value)
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _strategic_field(merged.get(key), value, schema.child(key))
    return merged


def _special(merged: dict[str, Any], key: str, value: Any) -> None:
    prefix, _, field = key.partition("/")
    if prefix == "$deleteFromPrimitiveList" and isinstance(value, list):
        merged[field] = [item for item in merged.get(field, []) if item not in value]
    elif prefix not in {"$patch", "$setElementOrder"}:
        raise bad_request(f"unsupported directive {key!r} in a strategic merge patch")


def _strategic_field(current: Any, value: Any, schema: Schema) -> Any:
    if isinstance(value, dict):
        return strategic_patch(current, value, schema)
    if not isinstance(value, list) or not isinstance(current, list):
        return value
    if schema.list_type == "set":
        return current + [item for item in value if item not in current]
    if schema.list_type == "map":
        return _strategic_list(current, value, schema)
    return value


def _strategic_list(current: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    name = schema.map_keys[0]
    if {"$patch": "replace"} in patch:
        return [item for item in patch if "$patch" not in item]
    merged = list(current)
    for item in patch:
        if not isinstance(item, dict) or name not in item:
            raise bad_request(f"map: {item!r} does not contain declared merge key: {name}")
        found = next((i for i, old in enumerate(merged) if old.get(name) == item[name]), None)
        if item.get("$patch") == "delete":
            if found is not None:
                del merged[found]
        elif found is None:
            merged.append(item)
        else:
            merged[found] = strategic_patch(merged[found], item, schema.element)
    return merged
