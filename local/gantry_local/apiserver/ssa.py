"""Field ownership: server-side apply, and the bookkeeping of every other write.

Each writer (manager, operation, subresource) has one entry in ``metadata.managedFields``. Apply
merges, removes what its writer no longer lists and nobody else owns, and refuses to change what
another writer owns unless forced. Any other write takes over what it changed.
Source: KEP-555 and sigs.k8s.io/structured-merge-diff ``merge/update.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gantry_local.apiserver import fieldsets, typed
from gantry_local.apiserver.errors import StatusError

if TYPE_CHECKING:
    from gantry_local.apiserver.fieldsets import FieldSet
    from gantry_local.apiserver.schema import Schema

_META_UNOWNED = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
)


class Writer(msgspec.Struct, frozen=True):
    """The writer: the identity of one managedFields entry."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    def owns(self, entry: dict[str, Any]) -> bool:
        """Whether the entry is this writer's."""
        return (
            entry.get("manager") == self.manager
            and entry.get("operation") == self.operation
            and entry.get("subresource", "") == self.subresource
        )


def unmanaged(obj: dict[str, Any]) -> dict[str, Any]:
    """The object without its ownership records."""
    meta = {k: v for k, v in obj.get("metadata", {}).items() if k != "managedFields"}
    return {**obj, "metadata": meta}


def entries(obj: dict[str, Any]) -> list[dict[str, Any]]:
    """The ownership records, possibly none."""
    found: list[dict[str, Any]] = obj.get("metadata", {}).get("managedFields") or []
    return found


def with_entries(obj: dict[str, Any], records: list[dict[str, Any]]) -> dict[str, Any]:
    """The object with the given ownership records."""
    meta = {k: v for k, v in obj.get("metadata", {}).items() if k != "managedFields"}
    if records:
        meta["managedFields"] = records
    return {**obj, "metadata": meta}


def apply(
    live: dict[str, Any],
    config: dict[str, Any],
    schema: Schema,
    *,
    writer: Writer,
    force: bool,
    now: str,
) -> dict[str, Any]:
    """``live`` (may be empty) after ``writer`` applied ``config``.

    Returns ``live`` itself when nothing but the time of the entry would change.

    Raises:
        StatusError: 409 naming every conflicting field, or 500 when the configuration cannot be
            read as the schema's type.
    """
    try:
        typed.check(config, schema)
        applied = typed.field_set(config, schema)
        bare_live = unmanaged(live) if live else {}
        merged = typed.merge(bare_live, config, schema)
        changed, _ = typed.compare(bare_live, merged, schema)
    except typed.TypedError as error:
        raise StatusError(500, "", f"failed to create typed patch object: {error}") from error
    records = entries(live)
    others = [entry for entry in records if not writer.owns(entry)]
    others = _resolve(others, changed, force=force)
    last: FieldSet = next((e["fieldsV1"] for e in records if writer.owns(e)), {})
    owned = _ownable(applied)
    gone = fieldsets.difference(last, owned)
    if gone:
        keep = applied
        for entry in others:
            keep = fieldsets.union(keep, entry["fieldsV1"])
        merged = typed.remove(merged, schema, gone, keep)
    updated = others if not owned else [*others, _entry(writer, owned, now)]
    if live and merged == bare_live and _same_owners(updated, records):
        return live
    return with_entries(merged, _sorted(updated))


def track(
    old: dict[str, Any],
    new: dict[str, Any],
    schema: Schema,
    *,
    writer: Writer,
    now: str,
) -> dict[str, Any]:
    """``new`` with the ownership that follows from changing ``old`` into it.

    What was removed is nobody's; what was changed or added is the writer's alone.
    """
    records = _records_for_update(old, new)
    bare_old = unmanaged(old) if old else {}
    bare_new = unmanaged(new)
    if bare_old == bare_new:
        return with_entries(new, records)
    changed, removed = typed.compare(bare_old, bare_new, schema)
    changed, removed = _ownable(changed), _ownable(removed)
    lost = fieldsets.union(changed, removed)
    kept: list[dict[str, Any]] = []
    mine: FieldSet = {}
    for entry in records:
        if writer.owns(entry):
            mine = fieldsets.difference(entry["fieldsV1"], removed)
            continue
        rest = fieldsets.difference(entry["fieldsV1"], lost)
        if rest:
            kept.append({**entry, "fieldsV1": rest})
    mine = fieldsets.union(mine, changed)
    if mine:
        kept.append(_entry(writer, mine, now))
    return with_entries(bare_new, _sorted(kept))


def same_but_times(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether the objects differ in nothing but the times of their ownership records."""
    return left == right or (
        unmanaged(left) == unmanaged(right) and _same_owners(entries(left), entries(right))
    )


def _records_for_update(old: dict[str, Any], new: dict[str, Any]) -> list[dict[str, Any]]:
    """A written list of entries counts; absence keeps the old; ``[{}]`` resets ownership."""
    given = new.get("metadata", {}).get("managedFields")
    if given == [{}]:
        return []
    if given and all(isinstance(e, dict) and "fieldsV1" in e for e in given):
        return list(given)
    return entries(old)


def _resolve(
    others: list[dict[str, Any]], changed: FieldSet, *, force: bool
) -> list[dict[str, Any]]:
    """The other writers' entries after a forced take-over; raises on unforced conflicts."""
    clashes: list[tuple[dict[str, Any], FieldSet]] = []
    left: list[dict[str, Any]] = []
    for entry in others:
        clash = fieldsets.intersection(entry["fieldsV1"], changed)
        if not clash:
            left.append(entry)
            continue
        clashes.append((entry, clash))
        rest = fieldsets.difference(entry["fieldsV1"], clash)
        if rest:
            left.append({**entry, "fieldsV1": rest})
    if clashes and not force:
        raise _conflict(clashes)
    return left


def _conflict(clashes: list[tuple[dict[str, Any], FieldSet]]) -> StatusError:
    causes: list[dict[str, str]] = []
    lines: list[str] = []
    for entry, clash in clashes:
        who = _shown(entry)
        fields = fieldsets.paths(clash)
        lines.append(f"conflicts with {who}:" + "".join(f"\n- {field}" for field in fields))
        causes += [
            {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field}
            for field in fields
        ]
    count = len(causes)
    only = causes[0]
    text = f"{only['message']}: {only['field']}" if count == 1 else "\n".join(lines)
    message = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: {text}"
    return StatusError(409, "Conflict", message, details={"causes": causes})


def _shown(entry: dict[str, Any]) -> str:
    text = f'"{entry["manager"]}"'
    if entry.get("subresource"):
        text += f' with subresource "{entry["subresource"]}"'
    if entry.get("operation") == "Update":
        text += f" using {entry['apiVersion']}"
        if entry.get("time"):
            text += f" at {entry['time']}"
    return text


def _entry(writer: Writer, fields: FieldSet, now: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": writer.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if writer.subresource:
        entry["subresource"] = writer.subresource
    return entry


def _ownable(fields: FieldSet) -> FieldSet:
    """Without identity and what only the server writes."""
    kept = {key: node for key, node in fields.items() if key not in {"f:apiVersion", "f:kind"}}
    meta = kept.pop("f:metadata", None)
    if meta:
        hidden = {fieldsets.field_key(name) for name in _META_UNOWNED} | {fieldsets.SELF}
        visible = {key: node for key, node in meta.items() if key not in hidden}
        if visible:
            kept["f:metadata"] = visible
    return kept


def _same_owners(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> bool:
    def by_writer(records: list[dict[str, Any]]) -> dict[tuple[str, str, str], Any]:
        return {
            (e["manager"], e["operation"], e.get("subresource", "")): e["fieldsV1"] for e in records
        }

    return by_writer(left) == by_writer(right)


def _sorted(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        records,
        key=lambda e: (e["operation"], e.get("time", ""), e["manager"], e.get("subresource", "")),
    )
