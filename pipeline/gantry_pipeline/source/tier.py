"""The ``tier`` data source of Spark: batch and stream over the packs that manifest chains name.

    spark.dataSource.register(TierSource)
    spark.read.format("tier").option("detail", "runs").load("file:///srv/tier")

A batch reads the chains as they are when it is planned, a stream what each version added. Its
offset is ``{shard: manifest version}``, and versions never change, so a batch that is repeated
after a crash reads the same packs. Neither goes on where a chain is broken or a pack is not what
its version committed: the job fails with the sentence that names object and byte.

Options: ``path`` (the tier's URL), ``detail`` (packs, runs, messages), ``columns`` (a,b,c: what is
not asked for is not decoded), ``cluster``, ``shard``, ``version`` (of one shard), and those of
:mod:`gantry_pipeline.source.objects`. Readers are pickled to the workers, so they hold options and
plain values only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.errors import ConfigError
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow

from gantry_pipeline.decode.columns import schema_of, spark_ddl
from gantry_pipeline.source import chain
from gantry_pipeline.source.objects import (
    ANONYMOUS,
    S3_OPTIONS,
    open_objects,
    place_in_environment,
)
from gantry_pipeline.source.rows import Pieces, pack_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from gantry_protocol.tier.judgement import Listed
    from gantry_protocol.tier.keys import Shard
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from gantry_pipeline.source.objects import Objects

PARTITION_BYTES = (
    64 << 20
)  # small packs share a task; a task's set-up costs as much as reading 10 MB
PARTITION_PACKS = 10_000
STREAM_BATCH_BYTES = 1 << 30
_OPTIONS = ("path", "detail", "columns", "cluster", "shard", "version")


class Wanted(msgspec.Struct, frozen=True):
    """The options of a read, checked."""

    url: str
    detail: str = "messages"
    columns: tuple[str, ...] = ()
    cluster: str = ""
    shard: str = ""
    version: int | None = None
    store: dict[str, str] = {}

    @property
    def schema(self) -> pa.Schema:
        """Of the rows."""
        return schema_of(self.detail, self.columns)

    def open(self) -> Objects:
        """The store."""
        return open_objects(self.url, self.store)


def wanted(options: Mapping[str, str]) -> Wanted:
    """The options, checked.

    Raises:
        ConfigError: one is missing, unknown or wrong; a secret's value is in no sentence.
    """
    given = {name.lower(): value for name, value in options.items()}
    if not given.get("path"):
        raise ConfigError("The tier's URL is missing: load('file:///…') or load('s3://…').")
    store = {
        name: given[name.lower()] for name in (*S3_OPTIONS, ANONYMOUS) if name.lower() in given
    }
    unknown = set(given) - set(_OPTIONS) - {name.lower() for name in store}
    if given["path"].startswith("s3:"):
        store = place_in_environment() | store
    if unknown:
        raise ConfigError(
            f"The tier source has no option {min(unknown)!r}; it has "
            f"{', '.join((*_OPTIONS, *S3_OPTIONS, ANONYMOUS))}."
        )
    version = given.get("version")
    if version is not None and not (version.isascii() and version.isdigit() and int(version)):
        raise ConfigError(f"The version is {version!r}; it is a number from 1.")
    if version is not None and not given.get("shard"):
        raise ConfigError("A version belongs to one chain: give the option shard, too.")
    found = Wanted(
        given["path"],
        given.get("detail", "messages"),
        tuple(name.strip() for name in given.get("columns", "").split(",") if name.strip()),
        given.get("cluster", ""),
        given.get("shard", ""),
        None if version is None else int(version),
        store,
    )
    assert found.schema is not None  # refuses an unknown detail or column
    return found


class TierSource(DataSource):
    """Registered as ``tier``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(…)``."""
        return "tier"

    def schema(self) -> str:
        """By detail and columns."""
        return spark_ddl(wanted(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch."""
        return TierReader(wanted(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """For a stream."""
        return TierStream(wanted(self.options))


class TierReader(DataSourceReader):
    """Everything that the chains name when the batch is planned."""

    def __init__(self, asked: Wanted) -> None:
        self._asked = asked

    def partitions(self) -> list[InputPartition]:
        """Packs in groups, by shard and offset."""
        asked = self._asked
        objects = asked.open()
        pieces: list[InputPartition] = []
        for place in chain.shards(objects, cluster=asked.cluster, shard=asked.shard):
            found = chain.advance(objects, chain.begin(place), upto=asked.version)
            pieces += partitions(place, found.packs, asked.detail)
        return pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a worker."""
        return _read(self._asked, partition)


class TierStream(DataSourceStreamReader, AvailableNow):
    """The additions of later versions. Chains are folded once, and then continued."""

    def __init__(self, asked: Wanted) -> None:
        if asked.version is not None:
            raise ConfigError("A stream has no version; leave the option out.")
        self._asked = asked
        self._chains: dict[str, chain.Chain] = {}
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        """Before the first version of every chain."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        """Bytes of packs in one batch; a version is never split."""
        return ReadMaxBytes(STREAM_BATCH_BYTES)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """End the query with what is there now."""
        self._refresh()
        self._target = {uid: known.state.v for uid, known in self._chains.items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The end of the next batch: whole versions, as many as the limit allows."""
        if self._target is None or not self._chains:
            self._refresh()
        room = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        assert room is not None or isinstance(limit, ReadAllAvailable), limit
        end = dict(start)
        for uid in sorted(self._chains):
            known = self._chains[uid]
            done = start.get(uid, 0)
            upto = known.state.v if self._target is None else self._target.get(uid, done)
            if known.state.v < done:
                raise ConfigError(
                    f"The manifest of {uid} ends at version {known.state.v}, and this stream has "
                    f"read up to {done}: it is not the tier that the checkpoint was made with."
                )
            begun = done
            for pack in known.between(done, upto):
                if room is not None and room <= 0 and pack.v > begun:
                    upto = begun
                    break
                begun = pack.v
                room = None if room is None else room - pack.entry.size
            end[uid] = max(done, upto)
            if room is not None and room <= 0:
                break
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The packs of the versions in between."""
        if any(uid not in self._chains or self._chains[uid].state.v < v for uid, v in end.items()):
            self._refresh()  # after a restart, Spark repeats its last batch before it asks
        pieces: list[InputPartition] = []
        for uid, v in sorted(end.items()):
            if uid not in self._chains or self._chains[uid].state.v < v:
                raise ConfigError(
                    f"Version {v} of the manifest of {uid} is gone: this is not the tier that the "
                    "checkpoint was made with."
                )
            known = self._chains[uid]
            packs = known.between(start.get(uid, 0), v)
            pieces += partitions(known.place, packs, self._asked.detail)
        return pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a worker."""
        return _read(self._asked, partition)

    def _refresh(self) -> None:
        asked = self._asked
        objects = asked.open()
        for place in chain.shards(objects, cluster=asked.cluster, shard=asked.shard):
            known = self._chains.get(place.uid, chain.begin(place))
            self._chains[place.uid] = chain.advance(objects, known)


def partitions(place: Shard, packs: Iterable[Listed], detail: str) -> list[InputPartition]:
    """Packs in groups that one task reads, in order."""
    whole = detail == "messages"
    return [
        InputPartition(msgspec.msgpack.encode(pieces))
        for pieces in grouped(place, packs, whole=whole)
    ]


def grouped(place: Shard, packs: Iterable[Listed], *, whole: bool) -> list[Pieces]:
    """The work of tasks; ``whole`` says whether they read the packs' every byte."""
    groups: list[list[Listed]] = []
    room = 0
    for pack in packs:
        cost = pack.entry.size if whole else 0
        if not groups or room < cost or len(groups[-1]) >= PARTITION_PACKS:
            groups.append([])
            room = PARTITION_BYTES
        groups[-1].append(pack)
        room -= cost
    return [Pieces(place, tuple(group)) for group in groups]


def _read(asked: Wanted, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if partition.value is None:  # Spark's stand-in when there is nothing to read
        return
    pieces = msgspec.msgpack.decode(partition.value, type=Pieces)
    yield from pack_rows(asked.open(), pieces, asked.detail, asked.schema)
