"""Members of one group without a tier, with real stores, that cut their logs at any moment.

The steps are those of ``sim.tier.retention_world``, without uploads; each member cuts its own log
whenever the real ``retention.core.rules.decide`` lets it, by size, by age, and because its disk is
full. Who was behind and ends below the master's first byte begins anew there. Checked:

=====  ===========================================================================================
H5     nobody's log begins above what is confirmed, nor above the end of a member of the set
once   each offset of each queue is served as it was confirmed, or answered with the first that is
whole  who has everything confirmed has the witness's topics, consumer offsets and queue numbers
=====  ===========================================================================================
"""

from __future__ import annotations

from gantry_broker.queues import MessageStore
from gantry_broker.retention.core.rules import (
    Facts,
    Need,
    RetentionBounds,
    Trim,
    WriteState,
    decide,
)
from gantry_broker.store.contract import GetStatus
from sim.kernel.world import Violation
from sim.tier.retention_world import NAMES, ONE, SEGMENT_BYTES, RetentionWorld
from support import stores


class OwnRetentionWorld(RetentionWorld):
    """See the module."""

    def _open(self, name: str) -> MessageStore:
        return MessageStore.open(self.directory / name, SEGMENT_BYTES)

    def upload(self) -> None:
        """There is nowhere to upload to; somebody falls behind instead."""
        name = self.rng.choice(NAMES)
        if name != self.master and len(self.in_sync - {name}) > 1:
            self.in_sync.discard(name)

    def _claim(self) -> None:
        self.epoch_start = self.leader.log.end

    def copy(self) -> None:
        """Who fell behind stays behind for a while."""
        name = self.rng.choice([one for one in NAMES if one != self.master])
        if name in self.in_sync or self.rng.random() < 0.2:
            self._copy(name, self.rng.choice([100, 3000]))

    def _retain(self, name: str, local_bytes: int) -> None:
        rng, store = self.rng, self.members[name]
        size, end = self.state[name]
        is_master = name == self.master
        others = [one for one in NAMES if one != name]
        ends = {one: Need(self.members[one].log.end, one) for one in others}
        decision = decide(
            Facts(
                kept=RetentionBounds(bytes=local_bytes),
                starts=store.log.starts,
                log_start=store.log.log_start,
                end=store.log.end,
                confirm=store.dispatched,
                whole_from=store.whole_from,
                expired_to=rng.choice([store.log.log_start, *store.log.starts]),
                disk_is_full=rng.random() < 0.3,
                disk_fills=rng.random() < 0.5,
                needed=[ends[one] for one in others if one in self.in_sync] if is_master else (),
                copied=[ends[one] for one in others if rng.random() < 0.2] if is_master else (),
                state_bytes=size,
                state_end=end,
                writes=is_master,
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

    # ---- checks

    def check_starts(self) -> None:
        for name, store in self.members.items():
            if store.log.log_start > self.confirm:
                raise Violation(
                    f"H5: the log of {name} begins at {store.log.log_start}, confirmed is "
                    f"{self.confirm}"
                )
        start = self.leader.log.log_start
        for name in self.in_sync:
            if self.members[name].log.end < start:
                raise Violation(f"H5: {name} is in the set, and the master cut what it needs")

    def check_offset(self, store: MessageStore, topic: str, queue_id: int, offset: int) -> None:
        """once."""
        if not (store.is_whole and store.dispatched >= self._whole_end(store)):
            return  # it cannot know yet where the queue begins
        if (
            not self.witness.min_offset(topic, queue_id)
            <= offset
            < store.max_offset(topic, queue_id)
        ):
            return  # the topic was deleted, though this one may not know it yet; or it is behind
        low = store.min_offset(topic, queue_id)
        result = store.get(topic, queue_id, offset, ONE)
        if offset < low:
            if (result.status, result.next_offset) != (GetStatus.OFFSET_TOO_SMALL, low):
                raise Violation(f"once: offset {offset} of {topic} is gone, and {result.status}")
            self.count("sent on")
        elif result.body != self.witness.get(topic, queue_id, offset, ONE).body:
            raise Violation(f"once: offset {offset} of {topic}, {result.status}: other bytes")

    def numbers(self, store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
        """Where a queue begins is each member's own, but not with what a deleted topic held."""
        hidden = self.witness.min_offset(topic, queue_id)
        shown = min(0, store.min_offset(topic, queue_id) - hidden)
        return hidden + shown, store.max_offset(topic, queue_id)
