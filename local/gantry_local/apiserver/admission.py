"""From a decoded body to an object that may be stored: prune, default, derive, validate.

The order is the API server's: decode and prune, default, strategy, schema, rules of the kind, CEL
rules last and only on objects of the right shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gantry_local.apiserver import crds, names, rules, scale, strategies, structural
from gantry_local.apiserver.errors import bad_request, invalid
from gantry_local.apiserver.errors import forbidden as not_allowed
from gantry_local.apiserver.validation import forbidden, validate
from gantry_local.apiserver.validation import invalid as invalid_cause

if TYPE_CHECKING:
    from gantry_local.apiserver.kinds import ResourceType
    from gantry_local.apiserver.validation import Cause

CRD_KEY = ("apiextensions.k8s.io", "customresourcedefinitions")
_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Query parameters of a write."""

    manager: str = "unknown"
    force: bool = False
    dry_run: bool = False
    field_validation: str = "Warn"


def check_identity(resource: ResourceType, namespace: str, name: str, obj: dict[str, Any]) -> None:
    """The body must be of the URL's kind, namespace and (if given) name."""
    if obj.get("apiVersion", resource.api_version) != resource.api_version:
        raise bad_request(
            f"the API version in the data ({obj['apiVersion']}) does not match the expected API "
            f"version ({resource.api_version})"
        )
    if obj.get("kind", resource.kind) != resource.kind:
        raise bad_request(
            f"{resource.kind} in version {resource.version!r} cannot be handled as a "
            f"{resource.kind}: the kind in the data is {obj['kind']!r}"
        )
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    given = metadata.get("namespace") or namespace
    if given != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if resource.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    if name and metadata.setdefault("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )


def prune(resource: ResourceType, obj: dict[str, Any], options: Options) -> list[str]:
    """Drop unknown fields in place; returns warnings, or refuses under ``Strict``."""
    dropped = structural.prune(obj, resource.schema)
    if not dropped:
        return []
    texts = [f'unknown field "{path}"' for path in dropped]
    if options.field_validation == "Strict":
        kind, version = resource.kind, resource.version
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: '
            + ", ".join(texts)
        )
    return texts if options.field_validation == "Warn" else []


def complete(
    resource: ResourceType, obj: dict[str, Any], old: dict[str, Any] | None, now: str
) -> None:
    """Defaults and derived fields, in place on a private copy."""
    if resource.key == ("", "services") and not obj.get("spec"):
        obj["spec"] = {}
    structural.drop_empty(obj["metadata"], resource.schema.child("metadata"))
    if not resource.custom:
        structural.drop_empty(obj, resource.schema)
    try:
        structural.apply_defaults(obj, resource.schema)
        if resource.key == CRD_KEY:
            crds.prepare(obj, old, now)
        else:
            strategies.prepare(resource, obj, old)
    except (AttributeError, KeyError, TypeError):
        # Derivation met a shape the schema check below is about to name; only that text helps.
        return


def admit_status(resource: ResourceType, obj: dict[str, Any]) -> None:
    """Complete and validate the status alone, all that a status write of a built-in kind changes.

    Controllers write little else, and their pods and sets are large.
    """
    schema, status = resource.schema.child("status"), obj.get("status")
    structural.drop_empty(status, schema)
    structural.apply_defaults(status, schema)
    causes = validate(status, schema, "status") if status is not None else []
    if causes:
        raise invalid(resource, obj["metadata"]["name"], causes)


def validate_object(
    resource: ResourceType, obj: dict[str, Any], old: dict[str, Any] | None
) -> None:
    """Raise 422 with every violation."""
    causes = names.check_metadata(resource, obj["metadata"])
    causes += _check_finalizers(obj, old)
    shape = validate(obj, resource.schema)
    causes += shape
    if resource.custom:
        causes += scale.check(resource, obj)
        causes += _run_rules(resource, obj, old, shape)
    elif not shape:
        causes += (
            crds.check(obj, old)
            if resource.key == CRD_KEY
            else strategies.check(resource, obj, old)
        )
    if causes:
        raise invalid(resource, obj["metadata"].get("name", ""), causes)
    why = "" if resource.custom else strategies.denied(resource, obj, old)
    if why:
        raise not_allowed(resource, obj["metadata"]["name"], why)


def _run_rules(
    resource: ResourceType, obj: dict[str, Any], old: dict[str, Any] | None, shape: list[Cause]
) -> list[Cause]:
    """CEL rules, unless the object's shape is so wrong that they could not be trusted to run."""
    if not resource.schema.ruled:
        return []
    if any(cause.reason in _BLOCKING for cause in shape):
        why = (
            "some validation rules were not checked because the object was invalid; correct the "
            "existing errors to complete validation"
        )
        return [invalid_cause("<nil>", None, why)]
    return rules.run(obj, old, resource.schema)


def _check_finalizers(obj: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    if old is None or not old["metadata"].get("deletionTimestamp"):
        return []
    before = old["metadata"].get("finalizers") or []
    added = [f for f in obj["metadata"].get("finalizers") or [] if f not in before]
    if not added:
        return []
    why = (
        "no new finalizers can be added if the object is being deleted, found new finalizers "
        f"{added}"
    )
    return [forbidden("metadata.finalizers", why)]


def _wanted(obj: dict[str, Any]) -> dict[str, Any]:
    """A built-in object's spec without what binding a pod to its node writes."""
    return {key: value for key, value in (obj.get("spec") or {}).items() if key != "nodeName"}


def spec_changed(resource: ResourceType, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether ``metadata.generation`` must move: never for metadata or an isolated status."""
    if not resource.custom:
        return bool(_wanted(old) != _wanted(new))
    hidden = {"metadata", "status"} if resource.status else {"metadata"}

    def wish(obj: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in obj.items() if key not in hidden}

    return wish(old) != wish(new)
