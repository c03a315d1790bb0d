"""Validation of a value against a schema, with the causes and the wording of a real API server.

The wording follows kube-openapi's ``validate`` package and ``field.Error``, because people and
tests read it: the field's path first, then what was got and what is expected.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import ipaddress
import re
import uuid
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_local.apiserver.schema import Schema


class Cause(msgspec.Struct, frozen=True):
    """One entry of ``Status.details.causes``."""

    reason: str
    field: str
    message: str

    def text(self) -> str:
        """The cause as it appears in the Status message."""
        return f"{self.field}: {self.message}" if self.field else self.message


def shown(value: Any) -> str:
    """A value as error texts quote it."""
    return msgspec.json.encode(value).decode()


def invalid(field: str, value: Any, why: str) -> Cause:
    """``FieldValueInvalid``."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {shown(value)}: {why}")


def required(field: str, why: str = "") -> Cause:
    """``FieldValueRequired``."""
    return Cause("FieldValueRequired", field, f"Required value{': ' + why if why else ''}")


def forbidden(field: str, why: str) -> Cause:
    """``FieldValueForbidden``."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {why}")


def validate(value: Any, schema: Schema, path: str = "") -> list[Cause]:
    """Every violation below ``path``, outermost first; an empty list means valid."""
    if schema.opaque or (value is None and schema.nullable):
        return []
    wrong_type = _type_error(value, schema, path)
    if wrong_type is not None:
        return [wrong_type]
    causes = _enum(value, schema, path)
    match value:
        case dict():
            causes += _object(value, schema, path)
        case list():
            causes += _array(value, schema, path)
        case bool():
            pass
        case str():
            causes += _string(value, schema, path)
        case int() | float():
            causes += _number(value, schema.raw, path)
    return causes + _combinations(value, schema, path)


def json_type(value: Any) -> str:
    """The JSON type of a decoded value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _type_error(value: Any, schema: Schema, path: str) -> Cause | None:
    got = json_type(value)
    match schema.type:
        case "any":
            return None
        case "int-or-string":
            accepted = got in {"integer", "string"}
        case "number":
            accepted = got in {"integer", "number"}
        case "integer" if got == "number":
            accepted = value.is_integer()  # 3.0 is an integer to JSON schema
        case expected:
            accepted = got == expected
    if accepted:
        return None
    message = f'Invalid value: "{got}": {path} in body must be of type {schema.type}: "{got}"'
    return Cause("FieldValueTypeInvalid", path, message)


def _enum(value: Any, schema: Schema, path: str) -> list[Cause]:
    if schema.enum is None or value in schema.enum:
        return []
    quoted = (one if isinstance(one, str) else shown(one) for one in schema.enum)
    supported = ", ".join(shown(one) for one in quoted)
    message = f"Unsupported value: {shown(value)}: supported values: {supported}"
    return [Cause("FieldValueNotSupported", path, message)]


def _object(value: dict[str, Any], schema: Schema, path: str) -> list[Cause]:
    prefix = f"{path}." if path else ""
    causes = [required(f"{prefix}{name}") for name in schema.required if name not in value]
    raw = schema.raw
    if len(value) < raw.get("minProperties", 0):
        need = raw["minProperties"]
        causes.append(
            invalid(path, value, f"{path} in body should have at least {need} properties")
        )
    if "maxProperties" in raw and len(value) > raw["maxProperties"]:
        message = f"Too many: {len(value)}: must have at most {raw['maxProperties']} items"
        causes.append(Cause("FieldValueTooMany", path, message))
    for key, item in value.items():
        causes += validate(item, schema.child(key), f"{prefix}{key}")
    return causes


def _array(value: list[Any], schema: Schema, path: str) -> list[Cause]:
    causes: list[Cause] = []
    raw = schema.raw
    if len(value) < raw.get("minItems", 0):
        why = f"{path} in body should have at least {raw['minItems']} items"
        causes.append(invalid(path, len(value), why))
    if "maxItems" in raw and len(value) > raw["maxItems"]:
        message = f"Too many: {len(value)}: must have at most {raw['maxItems']} items"
        causes.append(Cause("FieldValueTooMany", path, message))
    causes += _duplicates(value, schema, path)
    for index, item in enumerate(value):
        causes += validate(item, schema.element, f"{path}[{index}]")
    return causes


def _duplicates(value: list[Any], schema: Schema, path: str) -> list[Cause]:
    if schema.list_type == "atomic":
        return []
    seen: set[str] = set()
    causes: list[Cause] = []
    for index, item in enumerate(value):
        shared = {key: item.get(key) for key in schema.map_keys} if isinstance(item, dict) else item
        text = shown(shared)
        if text in seen:
            causes.append(
                Cause("FieldValueDuplicate", f"{path}[{index}]", f"Duplicate value: {text}")
            )
        seen.add(text)
    return causes


def _string(value: str, schema: Schema, path: str) -> list[Cause]:
    raw = schema.raw
    causes: list[Cause] = []
    if len(value) < raw.get("minLength", 0):
        why = f"{path} in body should be at least {raw['minLength']} chars long"
        causes.append(invalid(path, value, why))
    if "maxLength" in raw and len(value) > raw["maxLength"]:
        message = f"Too long: may not be more than {raw['maxLength']} bytes"
        causes.append(Cause("FieldValueTooLong", path, message))
    if schema.pattern is not None and not schema.pattern.search(value):
        why = f"{path} in body should match '{raw['pattern']}'"
        causes.append(invalid(path, value, why))
    check = FORMATS.get(raw.get("format", ""))
    if check is not None and not check(value):
        why = f'{path} in body must be of type {raw["format"]}: "{value}"'
        causes.append(invalid(path, value, why))
    return causes


def _number(value: float, raw: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    low, high = raw.get("minimum"), raw.get("maximum")
    if low is not None and (value < low or (raw.get("exclusiveMinimum") and value == low)):
        word = "greater than" if raw.get("exclusiveMinimum") else "greater than or equal to"
        causes.append(invalid(path, value, f"{path} in body should be {word} {low}"))
    if high is not None and (value > high or (raw.get("exclusiveMaximum") and value == high)):
        word = "less than" if raw.get("exclusiveMaximum") else "less than or equal to"
        causes.append(invalid(path, value, f"{path} in body should be {word} {high}"))
    step = raw.get("multipleOf")
    if step is not None and value % step != 0:
        causes.append(invalid(path, value, f"{path} in body should be a multiple of {step}"))
    limits = _INTEGER_LIMITS.get(raw.get("format", ""))
    if limits is not None and not limits[0] <= value <= limits[1]:
        causes.append(invalid(path, value, f"{path} in body must be of type {raw['format']}"))
    return causes


def _combinations(value: Any, schema: Schema, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for branch in schema.all_of:
        causes += validate(value, branch, path)
    if schema.any_of and all(validate(value, branch, path) for branch in schema.any_of):
        causes.append(invalid(path, value, f"{path} in body must validate at least one schema"))
    if schema.one_of:
        matching = sum(not validate(value, branch, path) for branch in schema.one_of)
        if matching != 1:
            why = f"{path} in body must validate one and only one schema (oneOf)"
            causes.append(invalid(path, value, f"{why}. Found {matching} valid alternatives"))
    if schema.negated is not None and not validate(value, schema.negated, path):
        causes.append(invalid(path, value, f"{path} in body must not validate the schema (not)"))
    return causes


_INTEGER_LIMITS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
_DURATION = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d|w)(\S*)")


def _accepts(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _rfc3339(text: str) -> dt.datetime:
    if not _RFC3339.fullmatch(text):
        raise ValueError(text)
    return dt.datetime.fromisoformat(text)


FORMATS: dict[str, Callable[[str], bool]] = {
    "byte": _accepts(lambda text: base64.b64decode(text, validate=True)),
    "date-time": _accepts(_rfc3339),
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "ipv4": _accepts(ipaddress.IPv4Address),
    "ipv6": _accepts(ipaddress.IPv6Address),
    "uuid": _accepts(uuid.UUID),
}
"""String formats that are checked; ``crds`` refuses a CRD that names any other."""
NUMBER_FORMATS = frozenset({"int32", "int64", "float", "double"})
