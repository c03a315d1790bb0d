"""The two header codecs of a frame: JSON (type 0) and ROCKETMQ binary (type 1).

JSON headers go through one prebuilt decoder; only what it refuses is read again by the tolerant
way, which accepts what upstream's reader accepts: missing and unknown keys, nulls, numbers written
as strings, and custom header values of any scalar type. What neither reads is a
:class:`FrameError`; a header is never half believed.
"""

import struct
from typing import Any

import msgspec

from gantry_protocol.command import RemotingCommand, SerializeType
from gantry_protocol.errors import FrameError

# org.apache.rocketmq.remoting.protocol.LanguageCode, codes 0 … 13 in this order.
_LANGUAGE_WORDS = "JAVA CPP DOTNET PYTHON DELPHI ERLANG RUBY OTHER HTTP GO PHP OMS RUST NODE_JS"
LANGUAGES = tuple(_LANGUAGE_WORDS.split())
_LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}
_UNKNOWN_LANGUAGE = "OTHER"

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_FIXED = struct.Struct(">hbhiii")  # code, language, version, opaque, flag, remark length
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class _JsonHeader(msgspec.Struct):
    """The keys in the order Java writes them; absent members are left out."""

    code: int
    ext_fields: dict[str, str] | msgspec.UnsetType = msgspec.field(name="extFields")
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serialize_type: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


_json_encoder = msgspec.json.Encoder()
_json_decoder = msgspec.json.Decoder(RemotingCommand)
_any_decoder = msgspec.json.Decoder()


def encode_json_header(command: RemotingCommand) -> bytes:
    """The compact JSON header, keys in Java's order."""
    return _json_encoder.encode(
        _JsonHeader(
            command.code,
            msgspec.UNSET if command.ext is None else command.ext,
            command.flag,
            command.language,
            command.opaque,
            msgspec.UNSET if command.remark is None else command.remark,
            "JSON",
            command.version,
        )
    )


def decode_json_header(data: bytes) -> RemotingCommand:
    """The command of a JSON header, without its body.

    Raises:
        FrameError: the header is no JSON object, or a member cannot be read as its type.
    """
    try:
        return _json_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _decode_tolerantly(data)


def _decode_tolerantly(data: bytes) -> RemotingCommand:
    try:
        fields = _any_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FrameError(f"The frame's header is not JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise FrameError(f"The frame's header is a JSON {type(fields).__name__}, not an object.")
    remark = fields.get("remark")
    language = fields.get("language")
    return RemotingCommand(
        code=_coerce_int32(fields, "code"),
        opaque=_coerce_int32(fields, "opaque"),
        flag=_coerce_int32(fields, "flag"),
        language=language if isinstance(language, str) else _UNKNOWN_LANGUAGE,
        version=_coerce_int32(fields, "version"),
        remark=None if remark is None else _coerce_str(remark),
        ext=_coerce_ext(fields.get("extFields")),
    )


def _coerce_int32(fields: dict[str, Any], key: str) -> int:
    value = fields.get(key)
    if value is None:
        return 0
    if isinstance(value, str) and len(value) <= 11:
        try:
            value = int(value)
        except ValueError:
            value = None
    if type(value) is int and _INT32_MIN <= value <= _INT32_MAX:
        return value
    raise FrameError(f"The frame's header has no int32 in {key!r}.")


def _coerce_ext(ext: object) -> dict[str, str] | None:
    if ext is None:
        return None
    if not isinstance(ext, dict):
        raise FrameError("The frame's header has extFields that are no JSON object.")
    return {key: _coerce_str(value) for key, value in ext.items() if value is not None}


def _coerce_str(value: object) -> str:
    return value if isinstance(value, str) else _json_encoder.encode(value).decode()


def encode_rocketmq_header(command: RemotingCommand) -> bytes:
    """The binary header.

    Raises:
        FrameError: code, version or a key length does not fit its 16 bits (the POP codes do not).
    """
    remark = (command.remark or "").encode()
    pairs = bytearray()
    try:
        for key, value in (command.ext or {}).items():
            raw_key, raw_value = key.encode(), value.encode()
            pairs += _INT16.pack(len(raw_key)) + raw_key + _INT32.pack(len(raw_value)) + raw_value
        language = _LANGUAGE_CODES.get(command.language, _LANGUAGE_CODES[_UNKNOWN_LANGUAGE])
        fixed = _FIXED.pack(
            command.code, language, command.version, command.opaque, command.flag, len(remark)
        )
    except struct.error as error:
        raise FrameError(
            f"Command {command.code} does not fit a binary header: {error}."
        ) from error
    return fixed + remark + _INT32.pack(len(pairs)) + bytes(pairs)


def decode_rocketmq_header(data: bytes) -> RemotingCommand:
    """The command of a binary header, without its body.

    Raises:
        FrameError: a length inside the header is negative or leads out of it, or a text is not
            UTF-8.
    """
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(data)
        position = _FIXED.size
        remark, position = _take_text(data, position, remark_size)
        (pairs_size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if position + pairs_size != len(data):
            raise FrameError(
                f"The binary header has {len(data) - position} bytes of ext, not {pairs_size}."
            )
        ext = _decode_pairs(data, position) if pairs_size else None
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"The binary header is cut short or not UTF-8: {error}.") from error
    return RemotingCommand(
        code=code,
        opaque=opaque,
        flag=flag,
        language=LANGUAGES[language] if 0 <= language < len(LANGUAGES) else _UNKNOWN_LANGUAGE,
        version=version,
        remark=remark or None,
        ext=ext,
        serialize_type=SerializeType.ROCKETMQ,
    )


def _decode_pairs(data: bytes, position: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    while position < len(data):
        (key_size,) = _INT16.unpack_from(data, position)
        key, position = _take_text(data, position + _INT16.size, key_size)
        (value_size,) = _INT32.unpack_from(data, position)
        value, position = _take_text(data, position + _INT32.size, value_size)
        if key and value:  # upstream reads an empty text as null, which is as good as absent
            ext[key] = value
    return ext


def _take_text(data: bytes, start: int, size: int) -> tuple[str, int]:
    end = start + size
    if size < 0 or end > len(data):
        raise FrameError(
            f"The binary header has a text of {size} bytes where {len(data) - start} are left."
        )
    return data[start:end].decode(), end
