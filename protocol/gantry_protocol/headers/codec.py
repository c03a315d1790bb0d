"""Custom headers to and from ``extFields``: wire values are strings, attributes have their types.

A header class is a frozen struct whose encoded field names are upstream's Java field names. Reading
is one call into a converter compiled per class; unknown keys are ignored, as extra fields (ACL,
zones, tracing) may ride on any request. A field that is missing without a default, or does not read
as its type, is refused by name. So is one that holds a name that nothing can have (``names``).
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from gantry_protocol.errors import HeaderError, NameRefused
from gantry_protocol.names import Check, checked_fields

HeaderT = TypeVar("HeaderT", bound=msgspec.Struct)

_MAX_SHOWN_CHARS = 64
_KNOWN_MAX = 8_192  # names of each kind
_NOTHING: dict[str, None] = {}
_sound: dict[Check, dict[str, None]] = {}  # names that were looked at lately, by what was asked


def to_ext(header: msgspec.Struct) -> dict[str, str]:
    """The ``extFields`` of a header; None means absent, booleans are ``true`` and ``false``."""
    ext: dict[str, str] = {}
    for attribute, wire_name in _names(type(header)):
        value = getattr(header, attribute)
        if value is None:
            continue
        if value.__class__ is str:
            ext[wire_name] = value
        elif value.__class__ is bool:
            ext[wire_name] = "true" if value else "false"
        else:
            ext[wire_name] = str(int(value))
    return ext


@cache
def _names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Attributes and their names on the wire."""
    return tuple(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


def from_ext(kind: type[HeaderT], ext: Mapping[str, str] | None) -> HeaderT:
    """The header of class ``kind`` in ``ext``.

    Raises:
        HeaderError: a required field is missing, or a value does not read as its type; names field
            and value.
        NameRefused: a name in it can be no name, see ``check_names``.
    """
    try:
        header = msgspec.convert(ext if ext is not None else {}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(_explain(kind, ext or {}, str(error))) from error
    check_names(header)
    return header


def _explain(kind: type[msgspec.Struct], ext: Mapping[str, str], reason: str) -> str:
    _, found, path = reason.rpartition("$.")
    field = path.rstrip("`")
    if not found or field not in ext:
        return f"{kind.__name__}: {reason}."
    shown = ext[field][:_MAX_SHOWN_CHARS]
    wanted = reason.partition(" - at")[0]
    return f"{kind.__name__}: the field {field!r} has the value {shown!r}: {wanted}."


# Names


def has_sound_names(struct: msgspec.Struct) -> bool:
    """Whether ``check_names`` passes."""
    try:
        check_names(struct)
    except NameRefused:
        return False
    return True


def check_names(struct: msgspec.Struct) -> None:
    """Refuse ``struct``, which came from outside, if a name in it cannot be one.

    Raises:
        NameRefused: which, in upstream's words.
    """
    for attribute, problem_of, is_optional in checked_fields(struct.__class__):
        value = getattr(struct, attribute)
        if value is None or (is_optional and not value):
            continue
        known = _sound.get(problem_of, _NOTHING)
        if value not in known:
            _look_at(value, problem_of)


def _look_at(value: Any, problem_of: Check) -> None:
    problem = problem_of(value)
    if problem is not None:
        raise NameRefused(problem)
    known = _sound.setdefault(problem_of, {})
    if len(known) >= _KNOWN_MAX:
        known.clear()
    known[value] = None


def check_all_names(value: Any) -> None:
    """The same for everything in a body: structs, and those in lists and structs.

    Raises:
        NameRefused: which, in upstream's words.
    """
    if isinstance(value, list):
        for item in value:
            check_all_names(item)
    elif isinstance(value, msgspec.Struct):
        check_names(value)
        for field in value.__struct_fields__:
            inner = getattr(value, field)
            if isinstance(inner, (msgspec.Struct, list)):
                check_all_names(inner)
