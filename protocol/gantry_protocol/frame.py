"""The remoting frame: a ``RemotingCommand`` to bytes and back, in any chunking.

A frame is ``length`` (int32, not counting itself) · serialize type (1 byte) · header length (3
bytes) · header · body. The rule protected here: a reader never believes a length it has not
bounded, never holds more than one frame beyond what is complete, and takes the first malformed byte
as the end of the connection, as upstream's ``NettyDecoder`` does. It refuses TLS and everything
else that starts neither like a frame nor like a PROXY preamble.

What a header may be is decided by its eight first bytes. What a body may be depends on the request:
a reader that has a limit for each code reads the header before the body is there, and lets a body
that is too large pass by without keeping it. The request is handed out all the same, with
``TOO_LARGE`` in place of its body, so that it can be answered.

A header is JSON (type 0) or ROCKETMQ binary (type 1). JSON headers go through one prebuilt decoder;
only what it refuses is read again by the tolerant way, which accepts what upstream's reader
accepts: missing and unknown keys, nulls, numbers written as strings, and custom header values of
any scalar type. What neither reads is a :class:`FrameError`; a header is never half believed.
"""

import struct
from collections.abc import Callable
from typing import Any

import msgspec

from gantry_protocol.command import RemotingCommand, SerializeType, reply, request
from gantry_protocol.errors import FrameError
from gantry_protocol.proxy_preamble import parse_preamble, starts_preamble

__all__ = [
    "MAX_FRAME_BYTES",
    "MAX_HEADER_BYTES",
    "TOO_LARGE",
    "BodyLimit",
    "FrameDecoder",
    "RemotingCommand",
    "SerializeType",
    "encode",
    "json_frame",
    "reply",
    "request",
]

MAX_FRAME_BYTES = (
    16 * 1024 * 1024
)  # upstream's com.rocketmq.remoting.frameMaxLength, the length field included

# The largest header that a client needs is a send's. Its properties are at most 32,767 bytes; the
# separators, half of them at the very most, take six bytes each in JSON, so that 115 KB hold any.
# Upstream takes 16 MiB, which a JSON reader needs a second for. Answers have no such limit: that to
# a batch names each message in its header.
MAX_HEADER_BYTES = 128 * 1024
TOO_LARGE = b"a body that was too large for its request"  # compared by identity

BodyLimit = Callable[[RemotingCommand], int]
"""The largest body that this request, of which only the header is known, may have."""

_LOOK_FIRST_BYTES = 64 * 1024  # bodies of frames below this are nobody's worry
_PREFIX = struct.Struct(">iI")  # length; serialize type in the high byte, header length below
_PREFIX_BYTES = _PREFIX.size
_unpack_prefix = _PREFIX.unpack_from
_LENGTH_BYTES = 4
_MAX_LENGTH = MAX_FRAME_BYTES - _LENGTH_BYTES
_HEADER_LENGTH_MASK = 0xFFFFFF
_TLS_HANDSHAKE = 0x16
_ROCKETMQ_WORD = SerializeType.ROCKETMQ << 24
_JSON = SerializeType.JSON  # to look a member up costs a tenth of a microsecond, per frame

# org.apache.rocketmq.remoting.protocol.LanguageCode, codes 0 … 13 in this order.
_LANGUAGE_WORDS = "JAVA CPP DOTNET PYTHON DELPHI ERLANG RUBY OTHER HTTP GO PHP OMS RUST NODE_JS"
LANGUAGES = tuple(_LANGUAGE_WORDS.split())
_LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}
_UNKNOWN_LANGUAGE = "OTHER"

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_FIXED = struct.Struct(">hbhiii")  # code, language, version, opaque, flag, remark length
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def encode(command: RemotingCommand) -> bytes:
    """The frame of ``command``, in the codec it names.

    Raises:
        FrameError: it does not fit a frame; nothing may be sent.
    """
    if command.serialize_type is _JSON:
        header = encode_json_header(command)
    else:
        header = encode_rocketmq_header(command)
    word = len(header) if command.serialize_type is _JSON else len(header) | _ROCKETMQ_WORD
    return _frame(command.code, word, header, command.body)


def json_frame(header: bytes) -> bytes:
    """The frame of a command that has no body and this JSON header.

    Raises:
        FrameError: it does not fit a frame; nothing may be sent.
    """
    return _frame(0, len(header), header, b"")


def _frame(code: int, word: int, header: bytes, body: bytes) -> bytes:
    length = _LENGTH_BYTES + len(header) + len(body)
    if length > _MAX_LENGTH:
        raise FrameError(f"Command {code} takes {length} bytes; a frame holds {MAX_FRAME_BYTES}.")
    return b"".join((_PREFIX.pack(length, word), header, body))


class FrameDecoder:
    """Bytes in, commands out; one per connection and direction.

    Attributes:
        has_more: the last ``feed`` ended at its limit; the next may be fed no bytes.
        proxied: a PROXY preamble came first.
        proxied_from: the client's ``ip:port`` it named, if it did.
    """

    __slots__ = (
        "_body_limit",
        "_chunk",
        "_fresh",
        "_max_header_bytes",
        "_needed",
        "_pending",
        "_remember",
        "_skip_bytes",
        "_starts",
        "has_more",
        "proxied",
        "proxied_from",
    )

    def __init__(
        self,
        *,
        expect_preamble: bool = True,
        remember: bool = False,
        max_header_bytes: int = MAX_FRAME_BYTES,
        body_limit: BodyLimit | None = None,
    ) -> None:
        """Start at the first byte of a connection.

        Args:
            expect_preamble: False on connections we opened.
            remember: keep the bytes of the last ``feed`` for :meth:`take_back`, until ``forget``.
            max_header_bytes: the largest header; servers take ``MAX_HEADER_BYTES``.
            body_limit: of requests; None takes whatever fits a frame.
        """
        self._remember = remember
        self._max_header_bytes = max_header_bytes
        self._body_limit = body_limit
        self._skip_bytes = 0  # of a body that is not kept, still to come
        self.has_more = False
        self._chunk = b""
        self._starts: list[int] = []  # where in ``_chunk`` each command of the last feed starts
        self._pending = bytearray()  # the start of one incomplete frame (or preamble)
        self._needed = 1  # nothing can be decoded before ``_pending`` holds this many bytes
        self._fresh = expect_preamble  # no frame byte has been seen yet
        self.proxied = False
        self.proxied_from: str | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes held of what was not handed out: an incomplete frame, or more after ``limit``."""
        return len(self._pending)

    @property
    def is_skipping(self) -> bool:
        """Whether the rest of a body that is not kept is still to come."""
        return self._skip_bytes > 0

    def feed(self, data: bytes, limit: int | None = None) -> list[RemotingCommand]:
        """All commands completed by ``data``, or the first ``limit`` of them.

        Raises:
            FrameError: the stream is malformed from here on and must not be fed again; ``before``
                holds the commands completed by this call.
        """
        if self._skip_bytes:
            skipped = min(self._skip_bytes, len(data))
            self._skip_bytes -= skipped
            data = data[skipped:]
        if self._pending:
            self._pending += data
            if len(self._pending) < self._needed:
                return []
            data = bytes(self._pending)
            self._pending.clear()
        commands: list[RemotingCommand] = []
        self._starts = []
        if self._remember:
            self._chunk = data
        try:
            position = self._strip_preamble(data) if self._fresh else 0
            if position is None:
                return commands
            position = self._decode_frames(data, position, commands, limit)
        except FrameError as error:
            raise FrameError(str(error), commands) from error
        if position < len(data):
            self._pending += data[position:]
        return commands

    def _strip_preamble(self, data: bytes) -> int | None:
        """Where frames start in the connection's first bytes, or None while that is unknown."""
        if not data:
            return None
        if data[0] == _TLS_HANDSHAKE:
            raise FrameError("The peer speaks TLS, which is not served here.")
        if not starts_preamble(data[0]):
            self._fresh = False
            return 0
        preamble = parse_preamble(data)
        if preamble is None:
            self._pending += data
            self._needed = len(data) + 1
            return None
        self._fresh = False
        self.proxied = True
        self.proxied_from = preamble.source
        return preamble.size

    def _decode_frames(
        self, data: bytes, position: int, commands: list[RemotingCommand], limit: int | None
    ) -> int:
        """Append every whole frame from ``position`` on; return where the rest starts."""
        end, prefix_size = len(data), _PREFIX_BYTES
        self._needed = prefix_size
        self.has_more = False
        while end - position >= prefix_size:
            length, word = _unpack_prefix(data, position)
            serialize_type, header_size = word >> 24, word & _HEADER_LENGTH_MASK
            if (
                not header_size + _LENGTH_BYTES <= length <= _MAX_LENGTH
                or serialize_type > 1
                or header_size > self._max_header_bytes
            ):
                raise FrameError(
                    f"The frame claims {length} bytes with {header_size} of header and "
                    f"serialize type {serialize_type}."
                )
            if len(commands) == limit:
                self.has_more, self._needed = True, 0
                break
            frame_end = position + _LENGTH_BYTES + length
            header_start = position + prefix_size
            header_end = header_start + header_size
            looks_first = length >= _LOOK_FIRST_BYTES and self._body_limit is not None
            if frame_end > end and not (looks_first and header_end <= end):
                self._needed = (header_end if looks_first else frame_end) - position
                break
            if not serialize_type:
                command = decode_json_header(data[header_start:header_end])
                command.serialize_type = _JSON
            else:
                command = decode_rocketmq_header(data[header_start:header_end])
            if looks_first and self._is_too_large(command, frame_end - header_end):
                command.body = TOO_LARGE
                self._skip_bytes = max(0, frame_end - end)
                frame_end = min(frame_end, end)
            elif frame_end > end:
                self._needed = frame_end - position
                break
            else:
                command.body = data[header_end:frame_end]
            commands.append(command)
            self._starts.append(position)
            position = frame_end
        return position

    def _is_too_large(self, command: RemotingCommand, body_bytes: int) -> bool:
        return self._body_limit is not None and body_bytes > self._body_limit(command)

    def take_back(self, index: int) -> bytes:
        """Undo decoding: the raw bytes from command ``index`` of the last feed to its very end.

        The incomplete frame after them is included, so the decoder is empty afterwards.
        """
        assert self._remember
        raw = self._chunk[self._starts[index] :]
        self._pending.clear()
        self._needed = _PREFIX.size
        self._skip_bytes = 0
        self.has_more = False
        self.forget()
        return raw

    def take_rest(self) -> bytes:
        """The bytes that were not handed out; the decoder is empty afterwards."""
        assert not self.is_skipping, "what follows is no start of a frame"
        rest = bytes(self._pending)
        self._pending.clear()
        self._needed = _PREFIX.size
        self.has_more = False
        return rest

    def forget(self) -> None:
        """Let go of the bytes kept for :meth:`take_back`."""
        self._chunk = b""
        self._starts = []


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
