"""The columns of the three details, written once: Arrow here, Spark's names for the same types.

``packs`` has a row per pack of a manifest, ``runs`` one per run of a pack's footer, ``messages``
one per record. Types are those that Spark's own Arrow schema has for them: a data source may only
yield batches that are equal to it, so there are no unsigned, dictionary or large types here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from gantry_protocol.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

TIME = pa.timestamp("us", tz="UTC")

_PLACE = [
    ("cluster", pa.string()),
    ("shard", pa.string()),
    ("version", pa.int64()),
    ("pack", pa.string()),
]

DETAILS: dict[str, pa.Schema] = {
    "packs": pa.schema(
        [
            *_PLACE,
            ("epoch", pa.int64()),
            ("inc", pa.int32()),
            ("writer", pa.string()),
            ("committed_at", TIME),  # the writer's clock: for people
            ("lo", pa.int64()),
            ("hi", pa.int64()),
            ("size", pa.int64()),
            ("records", pa.int64()),
            ("first_stored_at", TIME),
            ("last_stored_at", TIME),
        ]
    ),
    "runs": pa.schema(
        [
            *_PLACE,
            ("topic", pa.string()),
            ("queue_id", pa.int32()),
            ("first_queue_offset", pa.int64()),
            ("records", pa.int64()),
            ("position", pa.int64()),
            ("size", pa.int64()),
            ("first_stored_at", TIME),
            ("last_stored_at", TIME),
        ]
    ),
    "messages": pa.schema(
        [
            *_PLACE,
            ("topic", pa.string()),
            ("queue_id", pa.int32()),
            ("queue_offset", pa.int64()),
            ("physical_offset", pa.int64()),
            ("size", pa.int32()),
            ("stored_at", TIME),
            ("born_at", TIME),
            ("flag", pa.int32()),
            ("sys_flag", pa.int32()),
            ("reconsume_times", pa.int32()),
            ("prepared_offset", pa.int64()),
            ("tag_hash", pa.int64()),
            ("properties", pa.binary()),  # as stored: nobody promised that they are UTF-8
            ("body", pa.binary()),
        ]
    ),
}

_SPARK = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.binary(): "binary",
    TIME: "timestamp",
}


def schema_of(detail: str, columns: Sequence[str] = ()) -> pa.Schema:
    """The Arrow schema of ``detail``, or of those of its ``columns`` that are wanted, as ordered.

    Raises:
        ConfigError: there is no such detail or column, or a column is named twice.
    """
    if detail not in DETAILS:
        raise ConfigError(f"There is no detail {detail!r}; there are {', '.join(DETAILS)}.")
    whole = DETAILS[detail]
    for at, name in enumerate(columns):
        if name not in whole.names:
            raise ConfigError(
                f"{detail} have no column {name!r}; there are {', '.join(whole.names)}."
            )
        if name in columns[:at]:
            raise ConfigError(f"The column {name!r} is asked for twice.")
    return pa.schema([whole.field(name) for name in columns]) if columns else whole


def spark_ddl(schema: pa.Schema) -> str:
    """The same schema in Spark's words."""
    return ", ".join(f"{field.name} {_SPARK[field.type]}" for field in schema)
