"""A pack's bytes as Arrow batches: rows of its runs, rows of its messages, or a verdict on all.

Records of all runs are decoded together, as they lie one behind the other, in batches that are
bounded in records and bytes; a queue with one record costs no batch of its own. The verdicts are
those of :mod:`gantry_protocol.tier.packs`: here is only found *that* something is wrong, in bulk;
where and what, says the protocol's decoder, which looks again. So whatever reads a pack names the
same damage in the same words, by object and byte.

Nothing of a run is handed out before its sum and its records were compared. There is no mode that
leaves damaged records out.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa
from gantry_protocol.tier.damage import DamagedObject
from gantry_protocol.tier.footer import MAGIC, UNIT, Footer, decode_footer
from gantry_protocol.tier.keys import PackKey, parse_name
from gantry_protocol.tier.packs import raw_records, verify_pack

from gantry_pipeline.decode.columns import TIME
from gantry_pipeline.decode.records import (
    Parts,
    Suspect,
    bodies_of,
    check_bodies,
    check_topic,
    parts_of,
    properties_of,
    refuse,
)
from gantry_pipeline.decode.tags import tag_hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gantry_protocol.tier.keys import Shard
    from gantry_protocol.tier.manifests import PackEntry

BATCH_RECORDS = 8192  # what is being worked on stays in the processor's cache
BATCH_BYTES = 4 << 20  # a record that is larger is a batch of its own
_UNIT = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")])
assert _UNIT.itemsize == UNIT.size


class Origin(msgspec.Struct, frozen=True):
    """The origin of a pack: the constant columns of its rows."""

    cluster: str
    shard: str
    version: int
    pack: str


class _Stretch(msgspec.Struct, frozen=True):
    """Some consecutive records of a pack: what the footer says of them, then what they hold.

    Arrays of one length; ``run`` is the index of each record's run.
    """

    run: Any
    queue_offset: Any
    tag: Any
    parts: Parts
    properties: pa.Array


def run_batch(footer: Footer, origin: Origin, schema: pa.Schema) -> pa.RecordBatch:
    """A row per run; only the footer was read."""
    runs = footer.runs
    make: dict[str, Callable[[], Any]] = {
        "topic": lambda: [footer.topics[run.topic] for run in runs],
        "queue_id": lambda: [run.queue_id for run in runs],
        "first_queue_offset": lambda: [run.first_qoff for run in runs],
        "records": lambda: [run.count for run in runs],
        "position": lambda: [run.pos for run in runs],
        "size": lambda: [run.length for run in runs],
        "first_stored_at": lambda: _times(np.array([run.min_ts for run in runs], np.int64)),
        "last_stored_at": lambda: _times(np.array([run.max_ts for run in runs], np.int64)),
    }
    return _batch(make, origin, len(runs), schema)


def message_batches(
    data: bytes, place: Shard, key: PackKey, origin: Origin, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """A row per record, in the order of the pack: by topic, queue and queue offset.

    Args:
        data: the whole object.
        place: whose pack it should be.
        key: the name it was read under.
        origin: for the constant columns.
        schema: the columns that are wanted; what is not is not copied.

    Raises:
        TierObjectError: what is wrong; batches that came before are sound.
    """
    footer = decode_footer(data, len(data), place, key)

    def blame(index: int) -> NoReturn:
        run = footer.runs[index]
        for _ in raw_records(data[run.pos : run.end], footer, run, place):
            pass
        raise AssertionError(f"two readers judge {place.key(key)} differently")

    pack = np.frombuffer(data, np.uint8)
    for stretch in _stretches(pack, footer, blame):
        yield _message_batch(pack, footer, stretch, origin, schema)


def check_pack(data: bytes, place: Shard, key: PackKey) -> Footer:
    """The footer of a whole pack in which every byte was checked.

    Raises:
        TierObjectError: the same that ``verify_pack`` raises.
    """
    footer = decode_footer(data, len(data), place, key)

    def blame(_index: int) -> NoReturn:
        verify_pack(data, place, key)
        raise AssertionError(f"two readers judge {place.key(key)} differently")

    if data[: len(MAGIC)] != MAGIC:
        blame(0)
    blanks = np.array(footer.blanks, np.int64).reshape(-1, 2)
    starts, sizes = [blanks[:, 0]], [blanks[:, 1]]
    for stretch in _stretches(np.frombuffer(data, np.uint8), footer, blame):
        starts.append(stretch.parts.head["physical_offset"].astype(np.int64))
        sizes.append(stretch.parts.size)
    if not _tile(np.concatenate(starts), np.concatenate(sizes), footer.lo):
        blame(0)
    return footer


def check_against(data: bytes, place: Shard, entry: PackEntry, version: int) -> None:
    """Compare an object's size and sum with what manifest version ``version`` says.

    Raises:
        TierObjectError: what is wrong with the object; if it is a sound pack, only not the one that
            was committed, the sentence names both sums.
    """
    crc = f"{google_crc32c.value(data):08x}"
    if (len(data), crc) == (entry.size, entry.crc):
        return
    key = parse_name(entry.key)
    assert isinstance(key, PackKey), "the chain was folded, and refuses any other name"
    check_pack(data, place, key)
    raise DamagedObject(
        place.key(entry.key),
        0,
        f"it has {len(data)} bytes with sum {crc}, manifest version {version} says {entry.size} "
        f"with {entry.crc}",
    )


def _tile(starts: Any, sizes: Any, lo: int) -> bool:
    """Whether the pieces lie end to end from ``lo`` on; their sum was compared with the footer."""
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], (starts + sizes)[order]
    return bool(starts.size and starts[0] == lo and (starts[1:] == ends[:-1]).all())


def _stretches(pack: Any, footer: Footer, blame: Callable[[int], NoReturn]) -> Iterator[_Stretch]:
    """All records of the pack, checked, in bounded pieces.

    ``blame`` gets the index of a run in which something is wrong; it raises what is.
    """
    if not footer.runs:
        return
    counts = np.array([run.count for run in footer.runs], np.int64)
    lasts = np.cumsum(counts)
    units = np.frombuffer(b"".join(run.units for run in footer.runs), _UNIT)
    of_run = np.repeat(np.arange(len(counts)), counts)
    starts = np.array([run.pos for run in footer.runs], np.int64)
    at = units["position"].astype(np.int64) + starts[of_run]
    size = units["size"].astype(np.int64)
    first_qoff = np.array([run.first_qoff for run in footer.runs], np.int64)
    queue_offset = first_qoff[of_run] + np.arange(len(at)) - (lasts - counts)[of_run]
    first = summed = 0
    while first < len(at):
        last = int(np.searchsorted(at, at[first] + BATCH_BYTES, "left"))
        last = max(first + 1, min(last, first + BATCH_RECORDS))
        for index in range(summed, int(of_run[last - 1]) + 1):
            run = footer.runs[index]
            if google_crc32c.value(pack[run.pos : run.end]) != run.crc32c:
                blame(index)
        summed = int(of_run[last - 1]) + 1
        piece = slice(first, last)
        try:
            parts = parts_of(pack, at[piece], size[piece])
            found = _Stretch(
                of_run[piece],
                queue_offset[piece],
                units["tag"][piece],
                parts,
                properties_of(pack, parts),
            )
            _check(pack, footer, found)
        except Suspect as suspect:
            blame(int(of_run[first + suspect.index]))
        yield found
        first = last


def _check(pack: Any, footer: Footer, stretch: _Stretch) -> None:
    """Compare the records with the footer, in bulk.

    Raises:
        Suspect: at one that differs.
    """
    parts, head = stretch.parts, stretch.parts.head
    check_bodies(pack, parts)
    runs = footer.runs
    base = int(stretch.run[0])
    local = stretch.run - base
    here = runs[base : int(stretch.run[-1]) + 1]
    refuse(head["queue_id"] != np.array([run.queue_id for run in here], np.int64)[local])
    refuse(head["queue_offset"] != stretch.queue_offset)
    physical = head["physical_offset"].astype(np.int64)
    refuse((physical < footer.lo) | (physical > footer.hi - parts.size))
    refuse(parts.stored_ms < np.array([run.min_ts for run in here], np.int64)[local])
    refuse(parts.stored_ms > np.array([run.max_ts for run in here], np.int64)[local])
    topics = np.array([run.topic for run in here], np.int64)[local]
    edges = [0, *(np.flatnonzero(np.diff(topics)) + 1).tolist(), len(topics)]
    for start, end in pairwise(edges):
        check_topic(pack, parts, start, end, footer.topics[int(topics[start])].encode())
    refuse(tag_hashes(stretch.properties) != stretch.tag)


def _message_batch(
    pack: Any, footer: Footer, stretch: _Stretch, origin: Origin, schema: pa.Schema
) -> pa.RecordBatch:
    parts = stretch.parts
    head, tail = parts.head, parts.tail
    make: dict[str, Callable[[], Any]] = {
        "topic": lambda: _topics(footer, stretch.run),
        "queue_id": lambda: head["queue_id"].astype(np.int32),
        "queue_offset": lambda: stretch.queue_offset,
        "physical_offset": lambda: head["physical_offset"].astype(np.int64),
        "size": lambda: parts.size.astype(np.int32),
        "stored_at": lambda: _times(parts.stored_ms),
        "born_at": lambda: _times(head["born_ms"].astype(np.int64)),
        "flag": lambda: head["flag"].astype(np.int32),
        "sys_flag": lambda: head["sys_flag"].astype(np.int32),
        "reconsume_times": lambda: tail["reconsume_times"].astype(np.int32),
        "prepared_offset": lambda: tail["prepared_offset"].astype(np.int64),
        "tag_hash": lambda: stretch.tag.astype(np.int64),
        "properties": lambda: stretch.properties,
        "body": lambda: bodies_of(pack, parts),
    }
    return _batch(make, origin, len(parts.at), schema)


def _topics(footer: Footer, run: Any) -> pa.Array:
    base = int(run[0])
    names = [footer.topics[found.topic] for found in footer.runs[base : int(run[-1]) + 1]]
    return pa.array(names, pa.string()).take(pa.array(run - base))


def _times(ms: Any) -> pa.Array:
    """Milliseconds as Arrow's microseconds; they saturate, since a clock may say anything."""
    edge = np.iinfo(np.int64).max // 1000
    return pa.array(np.clip(ms, -edge, edge) * 1000, pa.int64()).cast(TIME)


def _batch(
    make: dict[str, Callable[[], Any]], origin: Origin, rows: int, schema: pa.Schema
) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name in make:
            made = make[field.name]()
            columns.append(made if isinstance(made, pa.Array) else pa.array(made, field.type))
        else:
            constant = pa.scalar(getattr(origin, field.name), field.type)
            columns.append(pa.repeat(constant, rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
