"""The cost of filters in SQL: `make measure-filters`.

One thread evaluates each filter on 100,000 records of one queue, as they lie in the log and in
slices as pulls read them; each has a body of 200 bytes and seven properties. Prints one JSON object
per figure, as benchmarks do. Time is the thread's own CPU.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from gantry_broker.clients.core.filters.sql import SqlFilter, passed
from gantry_broker.store.contract import GetResult, GetStatus, ReadLimits
from gantry_cli.output import print_json
from gantry_protocol.records import MessageRecord, encode_properties, encode_record
from gantry_protocol.records.properties import KEYS, TAGS, TRACE_ON, UNIQ_KEY, WAIT_STORE_MSG_OK

from gantry_lab.bench.results import line, machine

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNS = 5
SLICE = 500  # records of one read
COMPILED = 200
FILTERS = {
    "typical_per_s": "amount > 500 AND region IN ('eu', 'us')",
    "short_per_s": "region = 'eu'",
    "long_per_s": " OR ".join(["amount < 0", "region = 'nowhere'"] * 10),
}
EVERYTHING = ReadLimits(1 << 30, 1 << 30)


def record(number: int) -> bytes:
    properties = {
        UNIQ_KEY: f"{number:032X}",
        WAIT_STORE_MSG_OK: "true",
        KEYS: f"order-{number}",
        TAGS: "paid",
        "region": ("eu", "us", "ap")[number % 3],
        "amount": str(number % 1000),
        TRACE_ON: "true",
    }
    return encode_record(
        MessageRecord(
            topic="orders",
            body=b"x" * 200,
            properties=encode_properties(properties),
            queue_offset=number,
            born_host=("10.0.0.1", 4000),
            store_host=("10.0.0.2", 10911),
        )
    )


def reads(count: int) -> list[GetResult]:
    """The records, as a store gives them."""
    starts = range(0, count, SLICE)
    return [
        GetResult(
            GetStatus.FOUND,
            next_offset=start + SLICE,
            min_offset=0,
            max_offset=count,
            body=b"".join(map(record, range(start, start + SLICE))),
            count=SLICE,
        )
        for start in starts
    ]


def rate(source: str, found: Sequence[GetResult]) -> float:
    """Records per second of CPU."""
    wanted = SqlFilter(source)
    begun = time.thread_time()
    for result in found:
        passed(result, wanted, EVERYTHING)
    return len(found) * SLICE / (time.thread_time() - begun)


def compile_us(source: str) -> float:
    begun = time.thread_time()
    for _ in range(COMPILED):
        SqlFilter(source)
    return (time.thread_time() - begun) / COMPILED * 1e6


def main(count: int) -> None:
    before = machine()
    found = reads(count)
    for metric, source in FILTERS.items():
        rates = [rate(source, found) for _ in range(RUNS)]
        print_json(line("filters", "sql", metric, "1/s", rates, digits=0))
    costs = [compile_us(FILTERS["typical_per_s"]) for _ in range(RUNS)]
    print_json(line("filters", "sql", "compile_us", "us", costs))
    print_json({"bench": "filters", "machine": before})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
