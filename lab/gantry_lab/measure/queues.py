"""The cost of a million queues to the message store by itself: `make measure-queues`.

Without network and replication, in one process; each record has a body of 100 bytes, a unique key,
a key and a tag. Prints one JSON object per figure, as benchmarks do. CPU is the thread's own.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gantry_broker.queues import MessageStore
from gantry_cli.output import print_json
from gantry_cli.progress import tally
from gantry_protocol.records import MessageRecord, encode_properties, encode_record
from gantry_protocol.records.properties import KEYS, TAGS, UNIQ_KEY

from gantry_lab.bench.results import line, machine
from gantry_lab.bench.usage import peak_mb

SEGMENT_BYTES = 1 << 28
PER_TOPIC = 1000
PUT = 1024  # records that are flushed together
STEP = 256  # messages that are dispatched together where a step is timed
STEPS = 80
SOME = 10_000
SEED = 7


def say(metric: str, unit: str, value: float, digits: int = 1) -> None:
    print_json(line("queues", "store", metric, unit, [value], digits=digits))
    sys.stdout.flush()


class Messages:
    """Records with keys of their own."""

    def __init__(self) -> None:
        self.made = 0

    def to(self, queue: int) -> MessageRecord:
        self.made += 1
        record = MessageRecord(
            topic=f"topic-{queue // PER_TOPIC:06d}",
            queue_id=queue % PER_TOPIC,
            body=b"x" * 100,
            born_host=("10.0.0.1", 4000),
            store_host=("10.0.0.2", 10911),
        )
        words = {UNIQ_KEY: f"{self.made:032X}", KEYS: f"order-{self.made}", TAGS: "paid"}
        record.properties = encode_properties(words)
        return record


def make(store: MessageStore, messages: Messages, count: int) -> None:
    """A message in each queue, in random order."""
    order = list(range(count))
    random.Random(SEED).shuffle(order)
    told = tally(lambda text: print(text, file=sys.stderr), "queues made", count)
    wall, cpu = time.perf_counter(), time.thread_time()
    for start in range(0, count, PUT):
        records = [messages.to(queue) for queue in order[start : start + PUT]]
        store.put(records, now_ms=1000)
        store.log.flush()
        store.dispatch(store.log.end)
        told(len(records))
    say("made_s", "s", time.perf_counter() - wall)
    say("made_cpu_s", "s", time.thread_time() - cpu)


def dispatches(store: MessageStore, messages: Messages, queue: Callable[[], int]) -> list[float]:
    """CPU seconds of each step of 256 messages."""
    found = []
    for _ in range(STEPS):
        store.put([messages.to(queue()) for _ in range(STEP)], now_ms=1000)
        store.log.flush()
        begun = time.thread_time()
        store.dispatch(store.log.end)
        found.append(time.thread_time() - begun)
    return found


def steps(store: MessageStore, messages: Messages, count: int) -> None:
    chosen = random.Random(SEED)
    some = chosen.sample(range(count), min(SOME, count))
    longest = 0.0
    for metric, queue in (
        ("one_us", lambda: 0),
        ("some_us", lambda: chosen.choice(some)),
        ("all_us", lambda: chosen.randrange(count)),
    ):
        found = dispatches(store, messages, queue)
        say(metric, "us", 1e6 * sum(found) / (STEPS * STEP))
        longest = max(longest, *found)
    say("step_ms", "ms", 1000 * longest)


def state(store: MessageStore) -> None:
    begun = time.perf_counter()
    records = store.state_records()
    took = time.perf_counter() - begun
    assert records is not None
    say("state_records", "1", len(records), 0)
    say("state_mb", "MB", sum(len(encode_record(record)) for record in records) / 1e6)
    say("state_s", "s", took)


def derived(directory: Path) -> None:
    """The derived rows on the disk."""
    files = [path for path in (directory / "kv").rglob("*") if path.is_file()]
    say("disk_mb", "MB", sum(path.stat().st_size for path in files) / 1e6)
    say("files", "1", len(files), 0)


def main(count: int) -> None:
    before = machine()
    say("queues", "1", count, 0)
    messages = Messages()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        store = MessageStore.open(directory, SEGMENT_BYTES)
        store.take_mastership()
        make(store, messages, count)
        store.close()
        derived(directory)
        begun = time.perf_counter()
        store = MessageStore.open(directory, SEGMENT_BYTES)
        say("open_s", "s", time.perf_counter() - begun)
        store.take_mastership()
        steps(store, messages, count)
        state(store)
        begun = time.thread_time()
        for _ in store.raise_minimums(store.log.end):
            pass
        say("trim_cpu_s", "s", time.thread_time() - begun)
        say("rss_mb", "MB", peak_mb(os.getpid()), 0)
        store.close()
    print_json({"bench": "queues", "machine": before})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
