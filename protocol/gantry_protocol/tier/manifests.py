"""Manifest versions and meta.json: JSON in one canonical encoding, under a sum.

Rules protected: what is read is what was written, byte for byte (the sum, and an encoding that
leaves no second way to say the same); a version names its place (shard, number), so a copy put
elsewhere is noticed. Whether a version may follow another is decided in ``chain``.

What it refuses: objects over their size before reading them, unknown fields, unknown operations.
The bytes are specified in ``docs/tier-format.md``.
"""

import json
import re
from typing import Annotated, NoReturn, TypeAlias, TypeVar

import google_crc32c
import msgspec

from gantry_protocol.tier.damage import DamagedObject, ForeignObject, NewerObject, TruncatedObject
from gantry_protocol.tier.keys import MAX_EPOCH, MAX_INC, MAX_OFFSET, ManKey, MetaKey, Pair, Shard

FORMAT = 1
MAX_OBJECT_BYTES = 1024 * 1024
MAX_ADDED = 1024  # packs of one append
NO_CRC = "00000000"

Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_OFFSET)]
Crc = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]
Nonce = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
# Printable ASCII without the two characters that JSON escapes: one encoding in every language.
Label = Annotated[str, msgspec.Meta(pattern=r"^[ !#-\[\]-~]{1,255}\Z")]


class Tail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last record below the tier's end.

    Attributes:
        at: its physical offset.
        size: its bytes.
        crc: CRC-32C of them.
    """

    at: Number
    size: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    crc: Crc


class PackEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pack, as a version adds it. Times are store timestamps in ms, 0 without records."""

    key: Annotated[str, msgspec.Meta(max_length=200)] = msgspec.field(name="k")
    lo: Number
    hi: Number
    cls: Annotated[int, msgspec.Meta(ge=0, le=9)]
    epoch_first: Annotated[int, msgspec.Meta(ge=0, le=MAX_EPOCH)] = msgspec.field(name="e0")
    epoch_last: Annotated[int, msgspec.Meta(ge=0, le=MAX_EPOCH)] = msgspec.field(name="e1")
    size: Number = msgspec.field(name="sz")
    crc: Crc
    count: Number = msgspec.field(name="n")
    min_ts: Number = msgspec.field(name="t0")
    max_ts: Number = msgspec.field(name="t1")


class _Version(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="op"
):
    format: Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)] = FORMAT
    crc32c: Crc = NO_CRC
    shard: str
    v: Annotated[int, msgspec.Meta(ge=1, le=MAX_OFFSET)]
    prev_crc: Crc
    epoch: Annotated[int, msgspec.Meta(ge=1, le=MAX_EPOCH)]
    inc: Annotated[int, msgspec.Meta(ge=0, le=MAX_INC)]
    writer: Label
    nonce: Nonce
    at_ms: Number
    start: Number
    end: Number
    tail: Tail | None

    @property
    def pair(self) -> Pair:
        """The pair that commits."""
        return Pair(self.epoch, self.inc)


class Claim(_Version, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="claim"):
    """A new master takes the chain: from here on nobody with a lower pair can commit."""


class Take(Claim, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="take"):
    """A claim by another group: from here on only its masters may claim.

    Attributes:
        owner: the uid of that group. Before the first take it is the shard.
    """

    owner: Label


class Append(_Version, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="append"):
    """Packs that continue the tier at its end."""

    lineage_add: Annotated[list[tuple[Number, Number]], msgspec.Meta(max_length=65_536)]
    add: Annotated[list[PackEntry], msgspec.Meta(min_length=1, max_length=MAX_ADDED)]


Version: TypeAlias = Claim | Take | Append


class Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whose prefix it is."""

    format: Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)] = FORMAT
    crc32c: Crc = NO_CRC
    shard: str
    cluster: str
    group: Label
    created_ms: Number


class _Probe(msgspec.Struct):
    """Only what says whether the rest can be read."""

    format: int
    op: str | None = None


_Sealed = TypeVar("_Sealed", Claim, Take, Append, Version, Owner)
_PROBE = msgspec.json.Decoder(_Probe)
_VERSION: msgspec.json.Decoder[Version] = msgspec.json.Decoder(Version)
_OWNER = msgspec.json.Decoder(Owner)
_ENCODER = msgspec.json.Encoder(order="sorted")
_OPERATIONS = ("claim", "take", "append")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def canonical(value: object) -> bytes:
    """The one encoding of ``value``."""
    return _ENCODER.encode(value)


def seal(value: _Sealed) -> _Sealed:
    """``value`` with its sum."""
    return msgspec.structs.replace(value, crc32c=_crc_of(value))


def encode(value: Version | Owner) -> bytes:
    """The object's bytes. ``value`` must be sealed; anything else is our fault."""
    assert value.crc32c == _crc_of(value), "seal it first"
    return canonical(value)


def decode_version(data: bytes, place: Shard, v: int) -> Version:
    """Manifest version ``v`` of ``place``.

    Raises:
        TierObjectError: which one says what is wrong with the object.
    """
    key = place.key(ManKey(v))
    version = _decode(_VERSION, data, key, "op")
    if version.shard != place.uid:
        raise ForeignObject(key, 0, f"it is of shard {version.shard[:80]}, not {place.uid}")
    if version.v != v:
        raise ForeignObject(key, 0, f"it is version {version.v}")
    return version


def decode_owner(data: bytes, place: Shard, group: str) -> Owner:
    """The object that says whose prefix it is.

    Raises:
        TierObjectError: which one says what is wrong with the object.
    """
    key = place.key(MetaKey())
    owner = _decode(_OWNER, data, key, None)
    found, wanted = (owner.cluster, owner.group, owner.shard), (place.cluster, group, place.uid)
    if found != wanted:
        raise ForeignObject(
            key, 0, f"it belongs to {'/'.join(found)[:400]}, not to {'/'.join(wanted)}"
        )
    return owner


def _decode(
    decoder: "msgspec.json.Decoder[_Sealed]", data: bytes, key: str, operation: str | None
) -> _Sealed:
    if len(data) > MAX_OBJECT_BYTES:
        raise DamagedObject(
            key, MAX_OBJECT_BYTES, f"it has {len(data)} bytes, at most {MAX_OBJECT_BYTES} may be"
        )
    try:
        probe = _PROBE.decode(data)
        if probe.format > FORMAT:
            raise NewerObject(
                key, 0, f"it has format {probe.format}, this version reads format {FORMAT}"
            )
        if operation is not None and probe.op not in _OPERATIONS:
            raise NewerObject(key, 0, f"this version knows no operation {str(probe.op)[:40]!r}")
        value = decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        _unreadable(data, key, error)
    crc = _crc_of(value)
    if crc != value.crc32c:
        raise DamagedObject(key, 0, f"its crc32c says {value.crc32c}, its content has {crc}")
    if (again := canonical(value)) != data:
        at = next((i for i, (a, b) in enumerate(zip(again, data, strict=False)) if a != b), 0)
        raise DamagedObject(key, at, "it is not in canonical encoding")
    return value


def _unreadable(data: bytes, key: str, error: Exception) -> NoReturn:
    """Cut short, when the text ends before the object does; else damaged, with the place."""
    if _ends_early(data):
        raise TruncatedObject(key, len(data), "the JSON object does not end") from error
    try:
        json.loads(data)
    except json.JSONDecodeError as where:
        raise DamagedObject(key, where.pos, f"it is no JSON object ({where.msg})") from error
    except UnicodeDecodeError as where:
        raise DamagedObject(key, where.start, "it is not UTF-8") from error
    except (RecursionError, ValueError):
        raise DamagedObject(key, 0, "it is nested too deeply or holds a huge number") from error
    raise DamagedObject(key, 0, f"a field is missing, unknown or wrong ({error})") from error


def _ends_early(data: bytes) -> bool:
    """Whether a string or bracket is still open."""
    bare = _STRING.sub(b"", data)
    opened, closed = bare.count(b"{") + bare.count(b"["), bare.count(b"}") + bare.count(b"]")
    return not data or b'"' in bare or opened > closed


def _crc_of(value: Version | Owner) -> str:
    fields = msgspec.to_builtins(value)
    del fields["crc32c"]
    return f"{google_crc32c.value(canonical(fields)):08x}"
