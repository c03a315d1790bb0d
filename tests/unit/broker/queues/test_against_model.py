"""Random histories against lists: what is confirmed can be read, in order, whatever happens."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import GetStatus, ReadLimits
from gantry_broker.store.tables.topics import TopicChange, change_record
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.records import MessageRecord, decode_records, tags_code
from gantry_protocol.types import Offset
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support import logs, stores

QUEUES = [("A", 0), ("A", 1), ("B", 0)]
TAGS = [None, "x", "y"]
SEGMENT_BYTES = 2000


class Model:
    """All appended records in log order; those below `confirmed` count."""

    def __init__(self) -> None:
        self.records: list[tuple[int, MessageRecord]] = []  # where it ends, and it
        self.confirmed = 0
        self.offsets: dict[tuple[str, str, int], int] = {}

    def queue(self, key: tuple[str, int]) -> list[MessageRecord]:
        return [
            record
            for end, record in self.records
            if end <= self.confirmed and (record.topic, record.queue_id) == key
        ]


class StoreMachine(RuleBasedStateMachine):
    """A master that now and then dies, or loses its mastership and the end of its log."""

    @initialize()
    def begin(self) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        self.root = Path(self.temporary.name)
        self.generation = 0
        self.model = Model()
        self.number = 0
        self.store = self._open(self.root / "0")

    def _open(self, directory: Path) -> MessageStore:
        floor = Offset(self.model.confirmed)
        store = MessageStore.open(directory, SEGMENT_BYTES, confirm_floor=floor)
        store.take_mastership()
        return store

    @rule(
        picks=st.lists(
            st.tuples(st.sampled_from(QUEUES), st.sampled_from(TAGS), st.integers(0, 600)),
            min_size=1,
            max_size=5,
        )
    )
    def put(self, picks) -> None:
        records = []
        for (topic, queue_id), tag, size in picks:
            self.number += 1
            body = b"%d." % self.number + bytes(size)
            records.append(stores.message(topic, queue_id, body, tag=tag))
        self._append(records)

    def _append(self, records: list[MessageRecord]) -> None:
        stored = self.store.put(records, now_ms=self.number)
        self.model.records += [(at.end, record) for at, record in zip(stored, records, strict=True)]

    @rule(percent=st.integers(0, 100))
    def confirm(self, percent: int) -> None:
        self.store.log.flush()
        ends = [end for end, _ in self.model.records if end > self.model.confirmed]
        if ends:
            self.model.confirmed = ends[percent * (len(ends) - 1) // 100]
            self.store.dispatch(Offset(self.model.confirmed))

    @rule(offset=st.integers(0, 5))
    def commit(self, offset: int) -> None:
        self.store.offsets.commit("g", "A", 0, offset)
        records, _ = self.store.offsets.take_records()
        if records:
            self._append(records)
            self.store.log.flush()
            self.model.confirmed = self.store.log.end
            self.store.dispatch(self.store.log.end)
        self.model.offsets["g", "A", 0] = offset

    @rule()
    def change_topics(self) -> None:
        self.number += 1
        self._append([change_record(TopicChange(self.number, [TopicConfig(f"t{self.number}")]))])

    @rule()
    def save(self) -> None:
        self.store.save()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self._open(self.root / str(self.generation))

    @rule()
    def kill(self) -> None:
        """What was written is there; what was flushed may be all there is."""
        self.generation += 1
        left = logs.clone(self.root / str(self.generation - 1), self.root / str(self.generation))
        self.store.close()
        self.store = self._open(left)
        end = self.store.log.end
        self.model.records = [pair for pair in self.model.records if pair[0] <= end]

    @rule(percent=st.integers(0, 100))
    def lose_the_end(self, percent: int) -> None:
        self.store.drop_mastership()
        starts = [at for at in logs.boundaries(self.store.log) if at >= self.model.confirmed]
        to = starts[percent * (len(starts) - 1) // 100]
        self.store.truncate(to)
        self.model.records = [pair for pair in self.model.records if pair[0] <= to]
        self.store.take_mastership()

    @invariant()
    def queues_are_those_of_the_model(self) -> None:
        for topic, queue_id in QUEUES:
            expected = self.model.queue((topic, queue_id))
            assert self.store.max_offset(topic, queue_id) == len(expected)
            every = self.store.get(topic, queue_id, 0, ReadLimits(10**6, 10**9))
            assert decode_records(every.body) == expected_as_read(expected)
            codes = frozenset({tags_code("x")})
            tagged = self.store.get(topic, queue_id, 0, ReadLimits(10**6, 10**9), codes)
            wanted = [record for record in expected if "TAGS\x01x\x02" in record.properties]
            assert decode_records(tagged.body) == expected_as_read(wanted)
            assert (tagged.status is GetStatus.FOUND) == bool(wanted)

    @invariant()
    def offsets_are_never_forgotten(self) -> None:
        for key, offset in self.model.offsets.items():
            assert self.store.offsets.query(*key) == offset

    @invariant()
    def everything_unconfirmed_still_has_its_number(self) -> None:
        for topic, queue_id in QUEUES:
            numbers = [
                record.queue_offset
                for _, record in self.model.records
                if (record.topic, record.queue_id) == (topic, queue_id)
            ]
            assert numbers == list(range(len(numbers)))
            assert self.store.next_offset(topic, queue_id) == len(numbers)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.temporary.cleanup()


def expected_as_read(records: list[MessageRecord]) -> list[MessageRecord]:
    """`put` fills the positions in; reading adds the size."""
    read = []
    for record in records:
        copy = MessageRecord(**{name: getattr(record, name) for name in record.__struct_fields__})
        copy.size = 91 + len(copy.body) + len(copy.topic.encode()) + len(copy.properties.encode())
        read.append(copy)
    return read


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
