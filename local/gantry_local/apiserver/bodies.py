"""Request bodies and the options that come beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gantry_local.apiserver.admission import Options
from gantry_local.apiserver.errors import bad_request, invalid_options, unsupported_media
from gantry_local.apiserver.validation import forbidden, required

if TYPE_CHECKING:
    from collections.abc import Mapping

APPLY: Final = "application/apply-patch+yaml"
_JSON_TYPES: Final = (
    "application/json",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_YAML_TYPES: Final = (APPLY, "application/yaml")


def decode_body(body: bytes, content_type: str) -> Any:
    """The body as plain values; None when it is empty.

    Raises:
        StatusError: 400 for malformed text, 415 for a type that is not JSON or YAML.
    """
    if not body:
        return None
    if content_type in _YAML_TYPES:
        return _decode_yaml(body)
    if content_type not in {*_JSON_TYPES, "application/octet-stream"}:
        raise unsupported_media(content_type, (*_JSON_TYPES, *_YAML_TYPES))
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"couldn't decode the body as JSON: {error}") from error


def _decode_yaml(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)  # every client at hand sends JSON, which is YAML too
    except msgspec.DecodeError:
        pass
    import yaml

    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from error


def write_options(
    query: Mapping[str, str], headers: Mapping[str, str], content_type: str
) -> Options:
    """Options of a write from its query; 422 where the real server refuses the combination."""
    manager = query.get("fieldManager", "")
    force = query.get("force", "").lower() in {"true", "1"}
    if content_type == APPLY:
        if not manager:
            why = "is required for apply patch"
            raise invalid_options([required("fieldManager", why)])
    elif "force" in query:
        raise invalid_options([forbidden("force", "may not be specified for non-apply patch")])
    if len(manager) > 128:
        raise bad_request("fieldManager: Too long: may not be more than 128 bytes")
    agent = headers.get("User-Agent", "unknown").split("/")[0] or "unknown"
    return Options(
        manager=manager or agent[:128],
        force=force,
        dry_run=query.get("dryRun") == "All",
        field_validation=query.get("fieldValidation", "Warn"),
    )
