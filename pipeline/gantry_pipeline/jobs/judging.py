"""One task of the audit: it judges packs, each to a row per run or to one finding.

A data source of its own, because rows then stay Arrow from here to Spark's window; ``mapInArrow``
would do, but wants pandas, for nothing. Damage becomes a row, never an exception; only a store that
does not answer fails the task.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from gantry_protocol.tier.damage import TierObjectError
from gantry_protocol.tier.findings import Finding, of_object
from gantry_protocol.tier.footer import Footer
from gantry_protocol.tier.judgement import Listed, judge_footer, judge_pack, missing_pack
from gantry_protocol.tier.keys import Shard
from gantry_protocol.tier.manifests import Tail
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from gantry_pipeline.decode.columns import spark_ddl
from gantry_pipeline.decode.packs import check_pack
from gantry_pipeline.source.objects import MissingObject, Objects
from gantry_pipeline.source.rows import Pieces, fetched, footer_of
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
    """The packs that one task judges."""

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
        """The name for ``format(…)``."""
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
        return [InputPartition(item) for item in work]

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
    judged: Footer | Finding
    try:
        if level == "runs":
            judged = judge_footer(footer_of(objects, place, pack), place, pack)
        else:
            data = fetched(objects, place, pack)
            judged = judge_pack(data, place, pack, tail, check=check_pack)
    except MissingObject:  # it went missing after it was listed
        judged = missing_pack(place, pack)
    except TierObjectError as error:
        judged = of_object(error, offset=pack.entry.lo)
    return _rows(place, pack, judged)


def _rows(place: Shard, pack: Listed, judged: Footer | Finding) -> pa.RecordBatch:
    one = isinstance(judged, Finding)
    runs = [] if isinstance(judged, Finding) else judged.runs
    topics = [] if isinstance(judged, Finding) else [judged.topics[run.topic] for run in runs]
    many = 1 if one else len(runs)
    columns: dict[str, list[Any]] = {
        "cluster": [place.cluster] * many,
        "shard": [place.uid] * many,
        "lo": [pack.entry.lo] * many,
        "pack": [pack.entry.key] * many,
        "topic": [None] if one else topics,
        "queue_id": [None] if one else [run.queue_id for run in runs],
        "first": [None] if one else [run.first_qoff for run in runs],
        "records": [None] if one else [run.count for run in runs],
        "position": [None] if one else [run.pos for run in runs],
        "finding": [msgspec.msgpack.encode(judged) if one else None] * many,
    }
    return pa.RecordBatch.from_pydict(columns, schema=_ROWS)
