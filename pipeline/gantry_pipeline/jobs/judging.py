"""What one task of the audit does: judge packs, each to a row per run or to one finding.

A data source of its own, because rows then stay Arrow from here to Spark's window; ``mapInArrow``
would do, but wants pandas, for nothing. Damage becomes a row, never an exception; only a store that
does not answer fails the task.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec
import pyarrow as pa
from gantry_protocol.tier.damage import TierObjectError
from gantry_protocol.tier.footer import UNIT, Footer
from gantry_protocol.tier.keys import Shard
from gantry_protocol.tier.manifests import Tail
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gantry_pipeline.decode.columns import spark_ddl
from gantry_pipeline.decode.packs import check_against, check_pack
from gantry_pipeline.jobs.findings import FAULT, Finding, of_object
from gantry_pipeline.source.chain import Listed
from gantry_pipeline.source.objects import MissingObject, Objects
from gantry_pipeline.source.rows import Pieces, fetched, footer_of, name_of
from gantry_pipeline.source.tier import Wanted

_ROWS = pa.schema(
    [
        ("cluster", pa.string()),
        ("shard", pa.string()),
        ("lo", pa.int64()),  # of the pack
        ("pack", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("first", pa.int64()),
        ("records", pa.int64()),
        ("position", pa.int64()),
        ("finding", pa.binary()),  # null in a row that is a run
    ]
)


class Work(msgspec.Struct, frozen=True):
    """What one task judges."""

    wanted: Wanted
    level: str
    pieces: Pieces
    tail: Tail | None


class JudgedSource(DataSource):
    """Rows of what tasks judge.

    ``path`` is a file of this driver, which plans; tasks get their part of it and no path.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format(…)`` calls it."""
        return "gantry-judged"

    def schema(self) -> str:
        """A run, or a finding."""
        return spark_ddl(_ROWS)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch."""
        return _JudgedReader(self.options["path"])


class _JudgedReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        work = msgspec.msgpack.decode(Path(self._path).read_bytes(), type=list[bytes])
        return [InputPartition(one) for one in work]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's stand-in when there is nothing to read
            return
        work = msgspec.msgpack.decode(partition.value, type=Work)
        objects = work.wanted.open()
        for pack in work.pieces.packs:
            yield _judged(objects, work.pieces.place, pack, work.tail, work.level)


def _judged(
    objects: Objects, place: Shard, pack: Listed, tail: Tail | None, level: str
) -> pa.RecordBatch:
    """A row per run of a pack that is sound, else one with what is wrong with it."""
    entry = pack.entry
    try:
        if level == "runs":
            footer = footer_of(objects, place, pack)
        else:
            data = fetched(objects, place, pack)
            check_against(data, place, entry, pack.v)
            footer = check_pack(data, place, name_of(pack))
            if tail is not None and entry.lo <= tail.at < entry.hi:
                fault = _tail_fault(data, footer, tail)
                if fault:
                    finding = Finding(FAULT, "tail", place.key(entry.key), fault, offset=tail.at)
                    return _rows(place, pack, None, finding)
    except MissingObject:
        gone = f"it went missing while it was judged; manifest version {pack.v} names it"
        finding = Finding(FAULT, "T4", place.key(entry.key), gone, offset=entry.lo)
        return _rows(place, pack, None, finding)
    except TierObjectError as error:
        finding = msgspec.structs.replace(of_object(error), offset=entry.lo)
        return _rows(place, pack, None, finding)
    counted = sum(run.count for run in footer.runs)
    if counted != entry.count:
        reason = f"it holds {counted} records, manifest version {pack.v} says {entry.count}"
        finding = Finding(FAULT, "T4", place.key(entry.key), reason, offset=entry.lo)
        return _rows(place, pack, None, finding)
    return _rows(place, pack, footer, None)


def _tail_fault(data: bytes, footer: Footer, tail: Tail) -> str | None:
    """Why the chain's tail is not the record there; None when it is."""
    for run in footer.runs:
        for position, size, _ in UNIT.iter_unpack(run.units):
            at = run.pos + position
            if int.from_bytes(data[at + 28 : at + 36], "big") == tail.at:
                crc = f"{google_crc32c.value(data[at : at + size]):08x}"
                if (size, crc) == (tail.size, tail.crc):
                    return None
                return (
                    f"the record at {tail.at} has {size} bytes with sum {crc}, the manifest says "
                    f"{tail.size} with {tail.crc}"
                )
    return f"no record begins at {tail.at}, where the manifest says the last one does"


def _rows(
    place: Shard, pack: Listed, footer: Footer | None, finding: Finding | None
) -> pa.RecordBatch:
    runs = [] if footer is None else footer.runs
    topics = [] if footer is None else [footer.topics[run.topic] for run in runs]
    many = len(runs) if finding is None else 1
    columns: dict[str, list[Any]] = {
        "cluster": [place.cluster] * many,
        "shard": [place.uid] * many,
        "lo": [pack.entry.lo] * many,
        "pack": [pack.entry.key] * many,
        "topic": topics if finding is None else [None],
        "queue_id": [run.queue_id for run in runs] if finding is None else [None],
        "first": [run.first_qoff for run in runs] if finding is None else [None],
        "records": [run.count for run in runs] if finding is None else [None],
        "position": [run.pos for run in runs] if finding is None else [None],
        "finding": [None if finding is None else msgspec.msgpack.encode(finding)] * many,
    }
    return pa.RecordBatch.from_pydict(columns, schema=_ROWS)
