"""JSON bodies to and from structs: compact out, tolerant in.

Out: no blanks (Go clients split route text by hand), string keys, no nulls; a field with a default
of None is left out while it is None. In: the fast way is a prebuilt decoder per class; what it
refuses is read again with Java's bare keys, nulls as absent, numbers in strings, and enums by their
ordinals. Both ways validate.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from gantry_protocol.bodies.javajson import quote_keys
from gantry_protocol.errors import BodyError
from gantry_protocol.headers.codec import check_all_names

BodyT = TypeVar("BodyT")

_MAX_BARE_KEY_BYTES = 1024 * 1024  # re-reading takes about a second per MiB at worst

_ENUMS = {
    "consumeType": ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
    "messageModel": ("BROADCASTING", "CLUSTERING"),
    "consumeFromWhere": (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        "CONSUME_FROM_MIN_OFFSET",
        "CONSUME_FROM_MAX_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ),
}
"""Upstream's enums in what clients send, by field. The C++ client and all that is built on it write
the ordinal, which fastjson reads like the name."""

_encoder = msgspec.json.Encoder()
_any_decoder = msgspec.json.Decoder()


class Body(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all bodies: attributes in snake_case, upstream's camelCase on the wire."""


def encode_body(body: msgspec.Struct | Mapping[str, Any] | list[Any] | int) -> bytes:
    """The compact JSON of a body."""
    return _encoder.encode(body)


def decode_body(kind: type[BodyT], data: bytes) -> BodyT:
    """The body of class ``kind`` in ``data``.

    Raises:
        BodyError: it is missing, no JSON, or lacks what the class demands.
    """
    try:
        body: BodyT = _decoder(cast(Any, kind)).decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _decode_tolerantly(kind, data)
    return body


def decode_request(kind: type[BodyT], data: bytes) -> BodyT:
    """The body of a request: as ``decode_body``, and no name in it is one that nothing can have.

    Raises:
        BodyError: it is missing, no JSON, or lacks what the class demands.
        NameRefused: see ``check_names``.
    """
    body = decode_body(kind, data)
    check_all_names(body)
    return body


@lru_cache(maxsize=256)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _decode_tolerantly(kind: type[BodyT], data: bytes) -> BodyT:
    name = getattr(kind, "__name__", str(kind))
    if not data:
        raise BodyError(f"The request needs a {name} as its body, which is empty.")
    try:
        value = _decode_any(data)
        return msgspec.convert(_as_standard(value), kind, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BodyError(f"The body is no {name}: {str(error).removesuffix('.')}.") from error


def _decode_any(data: bytes) -> Any:
    try:
        return _any_decoder.decode(data)
    except msgspec.DecodeError:
        if len(data) > _MAX_BARE_KEY_BYTES:
            raise
        return _any_decoder.decode(quote_keys(data))


def _as_standard(value: Any) -> Any:
    """``value`` without nulls, and with the names of enums for their ordinals."""
    if isinstance(value, dict):
        return {
            key: _enum_name(key, item) if type(item) is int else _as_standard(item)
            for key, item in value.items()
            if item is not None
        }
    if isinstance(value, list):
        return [_as_standard(item) for item in value if item is not None]
    return value


def _enum_name(field: str, value: int) -> int | str:
    names = _ENUMS.get(field, ())
    return names[value] if 0 <= value < len(names) else value
