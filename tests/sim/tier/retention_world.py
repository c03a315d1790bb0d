"""Members of one group with real stores, a tier of real packs, and local retention at any moment.

Seeded: messages, topics and consumer offsets are put; replicas copy, lag, are restarted (with and
without what is derived), wiped and elected; confirmed units are packed; everybody trims whenever
the real ``retention.decide`` lets it. A *witness* keeps the whole confirmed log. Checked:

=====  ===========================================================================================
T10    nobody's log begins above the end of the tier
once   each offset of each queue is answered from one place, with the bytes that were confirmed
whole  who has everything confirmed has the witness's topics, consumer offsets and queue numbers
=====  ===========================================================================================
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from gantry_broker.queues import MessageStore
from gantry_broker.retention.core.rules import Trim, WriteState
from gantry_broker.store.contract import GetStatus, ReadLimits
from gantry_broker.store.tables.topics import TopicChange, change_record
from gantry_broker.tier.core.locate import Found, Queue
from gantry_broker.tier.core.reading import LoadedRun, Local, Messages, TierIndex, Wanted, pick
from gantry_broker.tier.core.retention import Facts, decide
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.tier import chain
from gantry_protocol.tier.footer import Footer
from gantry_protocol.tier.keys import CLASS_FOR_EVER, PackKey, Pair, shard
from gantry_protocol.tier.packs import encode_pack, raw_records, verify_pack
from gantry_protocol.types import Epoch, EpochEntry, Offset
from sim.kernel.world import Violation
from support import stores

PLACE = shard("c", "u")
SEGMENT_BYTES = 2048
NAMES = ("a", "b", "c")
ONE = ReadLimits(1, 1 << 20)


class RetentionWorld:
    """See the module.

    Attributes:
        confirm: everything below is on the disk of every in-sync member.
        counters: what happened how often.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.confirm = Offset(0)
        self.counters: dict[str, int] = {}
        self.members = {name: self._open(name) for name in NAMES}
        self.witness = self._open("witness")
        self.master = "a"
        self.members["a"].take_mastership()
        self.in_sync = set(NAMES)
        self.state = {name: (0, Offset(0)) for name in NAMES}
        self.index = TierIndex(PLACE)
        self.packs: dict[str, tuple[bytes, Footer]] = {}
        self.epoch = 0
        self.version = 0
        self.topics: set[str] = set()
        self._claim()

    def _open(self, name: str) -> MessageStore:
        store = MessageStore.open(self.directory / name, SEGMENT_BYTES)
        store.tiered = True
        return store

    def close(self) -> None:
        for store in (*self.members.values(), self.witness):
            store.close()

    # ---- steps

    def run(self, steps: int) -> None:
        """So many random steps, then a check of everything."""
        kinds = {
            self.produce: 6,
            self.commit: 2,
            self.change_topics: 1,
            self.copy: 8,
            self.confirm_more: 6,
            self.upload: 4,
            self.retain: 6,
            self.restart: 1,
            self.wipe: 0.5,
            self.fail_over: 0.5,
        }
        for _ in range(steps):
            step = self.rng.choices(list(kinds), list(kinds.values()))[0]
            step()
            self.check_starts()
            self.check_some()
        self.settle()

    def count(self, what: str) -> None:
        self.counters[what] = self.counters.get(what, 0) + 1

    @property
    def leader(self) -> MessageStore:
        return self.members[self.master]

    def produce(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 6)):
            topic, queue_id = rng.choice(["x", "y", "z"]), rng.randint(0, 1)
            body = bytes(rng.randint(0, 300))
            stores.put(self.leader, stores.message(topic, queue_id, body, tag="t"))

    def commit(self) -> None:
        rng, offsets = self.rng, self.leader.offsets
        offsets.commit(f"g{rng.randint(0, 3)}", "x", rng.randint(0, 1), rng.randint(0, 500))
        if rng.random() < 0.7:
            records, _ = offsets.take_records()
            if records:
                stores.put(self.leader, *records)

    def change_topics(self) -> None:
        self.version += 1
        name = self.rng.choice([*(f"topic{number}" for number in range(6)), "z"])
        if name in self.topics and self.rng.random() < 0.5:
            self.topics.discard(name)
            change = TopicChange(self.version, [], [name])
        else:
            self.topics.add(name)
            change = TopicChange(self.version, [TopicConfig(topic_name=name)])
        stores.put(self.leader, change_record(change))

    def copy(self) -> None:
        name = self.rng.choice([one for one in NAMES if one != self.master])
        self._copy(name, self.rng.choice([100, 3000]))

    def _copy(self, name: str, most: int) -> None:
        store, source = self.members[name].log, self.leader.log
        if store.end < source.log_start:
            self.count("reset")
            self.in_sync.discard(name)
            self.members[name].reset(source.log_start)
        if store.end < source.end:
            store.append_raw(store.end, source.read_units(store.end, most))
            store.flush()
        if store.end >= max(self.confirm, self.epoch_start):
            self.in_sync.add(name)

    def confirm_more(self) -> None:
        self.leader.log.flush()
        lowest = min(self.members[name].log.flushed for name in self.in_sync | {self.master})
        self.confirm = max(self.confirm, lowest)
        self._witness()
        for store in self.members.values():
            if self.rng.random() < 0.8:
                store.dispatch(Offset(min(self.confirm, store.log.flushed)))

    def _witness(self) -> None:
        log = self.witness.log
        while log.end < self.confirm:
            log.append_raw(log.end, self.leader.log.read_units(log.end, 4096, limit=self.confirm))
        log.flush()
        self.witness.dispatch(self.confirm)

    def upload(self) -> None:
        """A pack of some of what is confirmed; the master's own log is where it comes from."""
        lo = self.index.chain.end
        if self.leader.dispatched <= lo:
            return
        data = self.leader.log.read_units(
            Offset(lo), self.rng.choice([500, 4000]), limit=self.leader.dispatched
        )
        key = PackKey(
            self.index.chain.pair, lo, lo + len(data), CLASS_FOR_EVER, f"{len(self.packs):032x}"
        )
        built = encode_pack(data, PLACE, key, self.lineage)
        state = self.index.chain
        version = chain.append(
            state,
            [built.entry],
            lineage=self.lineage,
            tail=built.tail,
            writer="w",
            nonce=f"{state.v:032x}",
            at_ms=1,
        )
        self.index.follow([version])
        self.packs[built.entry.key] = (built.data, verify_pack(built.data, PLACE, key))
        if self.rng.random() < 0.9:
            self._index_all()

    def _index_all(self) -> None:
        for entry in self.index.missing(100):
            self.index.take(entry, self.packs[entry.key][1])

    def retain(self) -> None:
        self._retain(self.rng.choice(NAMES), self.rng.choice([0, 2000, 8000]))

    def _retain(self, name: str, local_bytes: int) -> None:
        store, tier = self.members[name], self.index.chain
        size, end = self.state[name]
        decision = decide(
            Facts(
                local_bytes=local_bytes,
                starts=store.log.starts,
                log_start=store.log.log_start,
                end=store.log.end,
                confirm=store.dispatched,
                committed_end=Offset(tier.end),
                tail_at=None if tier.tail is None else Offset(tier.tail.at),
                readable_end=self.index.readable_end,
                whole_from=store.whole_from,
                pins=self._pins() if name == self.master else (),
                state_bytes=size,
                state_end=end,
                writes=name == self.master,
            )
        )
        if isinstance(decision, WriteState):
            records = store.state_records()
            if records is not None:
                self.count("state")
                stores.put(store, *records)
                self.state[name] = (sum(len(one.body) for one in records), store.log.end)
        elif isinstance(decision, Trim):
            self.count("trim")
            for _ in store.raise_minimums(decision.to):
                pass
            for segment in store.trim(decision.to):
                segment.remove()

    def _pins(self) -> tuple[Offset, ...]:
        """In-sync members are connected; others may come when they like."""
        return tuple(self.members[name].log.end for name in self.in_sync - {self.master})

    def restart(self) -> None:
        name = self.rng.choice(NAMES)
        self.members[name].close()
        if self.rng.random() < 0.5:
            self.count("rebuilt")
            stores.forget_derived(self.directory / name)
        self.members[name] = self._open(name)
        if name == self.master:
            self.members[name].take_mastership()

    def wipe(self) -> None:
        name = self.rng.choice([one for one in NAMES if one != self.master])
        if len(self.in_sync - {name}) < 2:
            return
        self.count("wiped")
        self.in_sync.discard(name)
        self.members[name].close()
        shutil.rmtree(self.directory / name)
        self.members[name] = self._open(name)
        self.members[name].reset(self.leader.log.log_start)

    def fail_over(self) -> None:
        others = sorted(self.in_sync - {self.master})
        if not others:
            return
        self.count("elected")
        self.leader.log.flush()
        self.leader.drop_mastership()
        self.master = self.rng.choice(others)
        end = self.leader.log.end
        for name, store in self.members.items():
            if name != self.master and store.log.end > end:
                store.truncate(end)
        self.in_sync = {self.master, *(n for n in self.in_sync if self.members[n].log.end >= end)}
        self.leader.take_mastership()
        self._claim()

    def _claim(self) -> None:
        self.epoch += 1
        self.epoch_start = self.leader.log.end
        entry = EpochEntry(Epoch(self.epoch), self.epoch_start)
        kept = [one for one in getattr(self, "lineage", []) if one.start_offset < self.epoch_start]
        self.lineage: list[EpochEntry] = [*kept, entry]
        state = self.index.chain
        version = chain.claim(
            state,
            pair=Pair(self.epoch, 1),
            writer="w",
            nonce=f"{state.v:032x}",
            at_ms=1,
            start=0 if state.v == 0 else None,
        )
        self.index.follow([version])

    # ---- checks

    def check_starts(self) -> None:
        for name, store in self.members.items():
            if store.log.log_start > self.index.chain.end:
                raise Violation(
                    f"T10: the log of {name} begins at {store.log.log_start}, the tier ends at "
                    f"{self.index.chain.end}"
                )

    def check_some(self) -> None:
        store = self.members[self.rng.choice(NAMES)]
        for topic in ("x", "y", "z"):
            high = store.max_offset(topic, 0)
            if high:
                self.check_offset(store, topic, 0, self.rng.randrange(high))

    def check_offset(self, store: MessageStore, topic: str, queue_id: int, offset: int) -> None:
        """once."""
        expected = self.witness.get(topic, queue_id, offset, ONE).body
        low = store.local_min_offset(topic, queue_id)
        result = store.get(topic, queue_id, offset, ONE)
        if offset < self.witness.min_offset(topic, queue_id):
            return  # the topic was deleted, though this one may not know it yet
        if (result.status is GetStatus.OFFSET_IN_TIER) != (offset < low):
            if store.is_whole and store.dispatched >= self._whole_end(store):
                raise Violation(f"once: offset {offset} of {topic} ended {result.status}")
            return  # it cannot know yet where the queue begins
        if result.status is GetStatus.OFFSET_IN_TIER:
            self.count("read from the tier")
            got = self.read_tier(store, Queue(topic, queue_id), offset)
        else:
            got = result.body
        if got != expected:
            raise Violation(f"once: offset {offset} of {topic}, {result.status}: other bytes")

    def _whole_end(self, store: MessageStore) -> Offset:
        return Offset(0) if store.whole_from is None else store.whole_from

    def read_tier(self, store: MessageStore, queue: Queue, offset: int) -> bytes:
        self._index_all()
        local = Local(store.log.log_start, store.local_min_offset(queue.topic, queue.queue_id))
        found = self.index.find(queue, offset, local)
        if not isinstance(found, Found):
            raise Violation(f"once: offset {offset} of {queue} is neither here nor there: {found}")
        data, footer = self.packs[found.place.pack]
        run = footer.runs[found.place.run]
        body = data[run.pos : run.end]
        for _ in raw_records(body, footer, run, PLACE):
            pass
        wanted = Wanted(offset, 1, 1 << 20, None)
        answer = pick(LoadedRun(body, run.units), found.place, wanted)
        assert isinstance(answer, Messages)
        return answer.body

    def settle(self) -> None:
        """Everybody catches up, then everything is compared with the witness."""
        for name in NAMES:
            while name != self.master and self.members[name].log.end < self.leader.log.end:
                self._copy(name, 1 << 16)
        self.in_sync = set(NAMES)
        self.confirm_more()
        for name, store in self.members.items():
            store.dispatch(self.confirm)
            self.check_whole(name, store)

    def check_whole(self, name: str, store: MessageStore) -> None:
        """whole, and every offset of every queue."""
        mine, theirs = store, self.witness
        known = [
            (s.topics.version, sorted(t.topic_name for t in s.topics.all())) for s in (mine, theirs)
        ]
        if known[0] != known[1]:
            raise Violation(f"whole: {name} has topics {known[0]}, the witness {known[1]}")
        offsets = [{row[:3]: row[3] for row in s.offsets.applied_rows()} for s in (mine, theirs)]
        if offsets[0] != offsets[1]:
            raise Violation(f"whole: {name} has offsets {offsets[0]}, the witness {offsets[1]}")
        for topic in ("x", "y", "z"):
            for queue_id in (0, 1):
                numbers = [self.numbers(s, topic, queue_id) for s in (mine, theirs)]
                if numbers[0] != numbers[1]:
                    raise Violation(
                        f"whole: {name} has queue {topic}/{queue_id} as {numbers[0]}, the witness "
                        f"as {numbers[1]}"
                    )
                for offset in range(*numbers[0]):
                    self.check_offset(store, topic, queue_id, offset)

    def numbers(self, store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset of a queue, and the next."""
        return store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
