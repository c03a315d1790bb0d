"""Names of objects: validation and generation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gantry_local.apiserver.validation import Cause, invalid, required

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_local.apiserver.kinds import ResourceType

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The alphabet of generated names: no vowels, no look-alikes (apimachinery ``util/rand``)."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def generate(base: str, random_suffix: Callable[[int], str]) -> str:
    """A name from ``generateName``: at most 63 characters with its five random ones."""
    return base[:58] + random_suffix(5)


def check_metadata(resource: ResourceType, metadata: dict[str, Any]) -> list[Cause]:
    """Violations in name, labels and annotations."""
    causes = _check_name(resource, metadata.get("name", ""))
    for key, value in (metadata.get("labels") or {}).items():
        causes += _check_label(key, value)
    size = sum(len(k) + len(v) for k, v in (metadata.get("annotations") or {}).items())
    if size > 262_144:
        text = f"Too long: may not be more than 262144 bytes, got {size}"
        causes.append(Cause("FieldValueTooLong", "metadata.annotations", text))
    return causes


def _check_name(resource: ResourceType, name: str) -> list[Cause]:
    field = "metadata.name"
    if not name:
        return [required(field, "name or generateName is required")]
    if resource.key == ("", "services"):
        pattern, text, limit = _LABEL_1035, _LABEL_1035_TEXT, 63
    elif resource.key == ("", "namespaces"):
        pattern, text, limit = _LABEL, _LABEL_TEXT, 63
    else:
        pattern, text, limit = _SUBDOMAIN, _SUBDOMAIN_TEXT, 253
    causes: list[Cause] = []
    if not pattern.fullmatch(name):
        causes.append(invalid(field, name, text))
    if len(name) > limit:
        causes.append(invalid(field, name, f"must be no more than {limit} characters"))
    return causes


def _check_label(key: str, value: Any) -> list[Cause]:
    prefix, _, name = key.rpartition("/")
    causes: list[Cause] = []
    valid_name = len(name) <= 63 and _QUALIFIED.fullmatch(name)
    if not valid_name or (prefix and not _SUBDOMAIN.fullmatch(prefix)):
        text = "name part must consist of alphanumeric characters, '-', '_' or '.'"
        causes.append(invalid("metadata.labels", key, text))
    if isinstance(value, str) and value and (len(value) > 63 or not _QUALIFIED.fullmatch(value)):
        text = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' "
            "or '.', must start and end with an alphanumeric character, and be at most 63 long"
        )
        causes.append(invalid("metadata.labels", value, text))
    return causes
