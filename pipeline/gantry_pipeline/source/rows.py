"""One task of a read: fetch some packs, compare them with what was committed, yield their rows.

Rows of ``packs`` need no object: the manifest says it all. Rows of ``runs`` need the footer only,
which is in the last 64 KiB of nearly every pack. Rows of ``messages`` need every byte, and so every
byte is compared: with the manifest's sum first, then run by run, body by body.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from gantry_protocol.tier.damage import DamagedObject
from gantry_protocol.tier.footer import (
    MAX_PACK_BYTES,
    TAIL_BYTES,
    Footer,
    decode_footer,
    read_trailer,
)
from gantry_protocol.tier.judgement import Listed
from gantry_protocol.tier.keys import PackKey, Shard, parse_name

from gantry_pipeline.decode.columns import TIME
from gantry_pipeline.decode.packs import Origin, check_against, message_batches, run_batch
from gantry_pipeline.source.objects import Objects


class Pieces(msgspec.Struct, frozen=True):
    """The work of one task: some packs of one broker group."""

    place: Shard
    packs: tuple[Listed, ...]


def pack_rows(
    objects: Objects, pieces: Pieces, detail: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of the packs, in their order.

    Raises:
        MissingObject: a pack that a version names is not there.
        TierObjectError: a pack is not what the version committed.
        StoreError: it could not be read.
    """
    if detail == "packs":
        yield _listed_batch(pieces, schema)
        return
    place = pieces.place
    for pack in pieces.packs:
        origin = Origin(place.cluster, place.uid, pack.v, pack.entry.key)
        if detail == "runs":
            yield run_batch(footer_of(objects, place, pack), origin, schema)
        else:
            data = fetched(objects, place, pack)
            check_against(data, place, pack.entry, pack.v)
            yield from message_batches(data, place, name_of(pack), origin, schema)


def fetched(objects: Objects, place: Shard, pack: Listed) -> bytes:
    """The whole object, if it can be one at all. Raises as :func:`pack_rows`."""
    key = place.key(pack.entry.key)
    if pack.entry.size > MAX_PACK_BYTES:
        raise DamagedObject(
            key,
            0,
            f"manifest version {pack.v} says {pack.entry.size} bytes, a pack has at most "
            f"{MAX_PACK_BYTES}",
        )
    return objects.get(key)


def footer_of(objects: Objects, place: Shard, pack: Listed) -> Footer:
    """The footer, read from the object's end. Raises as :func:`pack_rows`."""
    name = name_of(pack)
    key = place.key(name)
    tail, size = objects.tail(key, TAIL_BYTES)
    if size != pack.entry.size:
        raise DamagedObject(
            key,
            min(size, pack.entry.size),
            f"it has {size} bytes, manifest version {pack.v} says {pack.entry.size}",
        )
    start = read_trailer(tail, size, key).start
    if start < size - len(tail):
        tail = objects.get_range(key, start, size - len(tail)) + tail
    return decode_footer(tail, size, place, name)


def name_of(pack: Listed) -> PackKey:
    """The parsed name."""
    name = parse_name(pack.entry.key)
    assert isinstance(name, PackKey), "the chain was folded, and refuses any other name"
    return name


def _listed_batch(pieces: Pieces, schema: pa.Schema) -> pa.RecordBatch:
    packs, place = pieces.packs, pieces.place
    columns: dict[str, list[Any]] = {
        "cluster": [place.cluster] * len(packs),
        "shard": [place.uid] * len(packs),
        "version": [pack.v for pack in packs],
        "pack": [pack.entry.key for pack in packs],
        "epoch": [pack.epoch for pack in packs],
        "inc": [pack.inc for pack in packs],
        "writer": [pack.writer for pack in packs],
        "committed_at": [_micros(pack.at_ms) for pack in packs],
        "lo": [pack.entry.lo for pack in packs],
        "hi": [pack.entry.hi for pack in packs],
        "size": [pack.entry.size for pack in packs],
        "records": [pack.entry.count for pack in packs],
        "first_stored_at": [_micros(pack.entry.min_ts) for pack in packs],
        "last_stored_at": [_micros(pack.entry.max_ts) for pack in packs],
    }
    arrays = [
        pa.array(columns[field.name], pa.int64()).cast(TIME)
        if field.type == TIME
        else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _micros(ms: int) -> int:
    return min(ms, (2**63 - 1) // 1000) * 1000
