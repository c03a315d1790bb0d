"""Transactions under random orders of sends, ends, checks, confirmations, cuts and new masters.

Every step is what clients and masters really do, on a real store whose unconfirmed end a change of
master may cut anywhere between two records. What the log says at the end is compared with what was
answered on the way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.core.transactions import Policy
from gantry_broker.clients.core.transactions.records import Ended, TransactionOutcome, parse_op
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.records import MessageRecord
from support import logs
from support.group_view import FakeConnection, FakeGroup
from support.late_store import LateStore
from support.transactions import (
    COMMIT,
    GIVEN_UP,
    GROUP,
    HALF,
    HEARTBEAT,
    OPS,
    ROLLBACK,
    UNKNOWN,
    claim,
    claim_checked,
    half,
    read_queue,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

SEEDS = range(8)
STEPS = 120
POLICY = Policy(checks_max=3)
OUTCOMES = {COMMIT: TransactionOutcome.COMMIT, ROLLBACK: TransactionOutcome.ROLLBACK}


class World:
    """One group, one producer, and what the producer was told."""

    def __init__(self, directory: Path, seed: int, *, late: bool) -> None:
        self.random = Random(seed)
        self.group = FakeGroup(directory)
        if late:
            self.group.store = LateStore(self.group.store)
        self.group.add_topic(TopicConfig("TopicTest", 4, 4))
        self.group.add_topic(TopicConfig(GIVEN_UP, 1, 1))
        self.group.holding = True
        self.sent: list[RemotingCommand] = []  # answers to half messages, all confirmed
        self.ended: dict[int, int] = {}  # half offset: the outcome that was confirmed to somebody
        self.waiting: list[tuple[RemotingCommand, int, int]] = []  # 37 without an answer
        self.opaque = 0
        self.begin()

    def begin(self) -> None:
        """A mastership begins, and the producer connects to it."""
        self.waiting.clear()
        self.conn = FakeConnection()
        loop = asyncio.get_running_loop()
        self.group.now_ms = max(self.group.now_ms, self.now_ms())
        self.processor = ClientProcessor(
            self.group, lambda: 1_700_000_000 + loop.time(), policy=POLICY
        )
        self.ask(34, None, HEARTBEAT)

    @staticmethod
    def now_ms() -> int:
        return int((1_700_000_000 + asyncio.get_running_loop().time()) * 1000)

    def ask(self, code: int, ext: dict[str, object] | None, body: bytes = b"") -> RemotingCommand:
        texts = None if ext is None else {key: str(value).lower() if isinstance(value, bool) else
                                          str(value) for key, value in ext.items()}  # fmt: skip
        self.opaque += 1
        asked = request(code, texts, body)
        asked.opaque = self.opaque
        answer = self.processor(self.conn, asked)
        if answer is not None:
            self.conn.reply(asked, answer)
        return asked

    # Steps

    def send(self) -> None:
        """A half message; its producer knows of it once it is confirmed."""
        asked = self.ask(310, half(f"{self.opaque:032}"), b"x")
        if self.random.random() < 0.8:
            self.confirm()
            (answer,) = [answer for to, answer in self.conn.replies if to is asked]
            if answer.code == 0:
                self.sent.append(answer)

    def end(self) -> None:
        """37 for any half message, also one that has ended, with any outcome."""
        if self.sent:
            sent = self.random.choice(self.sent[-8:])
            outcome = self.random.choice((COMMIT, ROLLBACK, UNKNOWN))
            self._note(self.ask(37, claim(sent, outcome)), sent, outcome)

    def _note(self, asked: RemotingCommand, sent: RemotingCommand, outcome: int) -> None:
        if outcome != UNKNOWN:
            assert sent.ext is not None
            self.waiting.append((asked, int(sent.ext["queueOffset"]), outcome))

    def answer_checks(self) -> None:
        """The producer answers what it was asked, or does not."""
        checks = [command for command in self.conn.sent if command.code == 39]
        self.conn.sent.clear()
        for check in checks:
            assert check.ext is not None
            if self.random.random() < 0.5:
                outcome = self.random.choice((COMMIT, ROLLBACK, UNKNOWN))
                asked = self.ask(37, claim_checked(check, outcome))
                if outcome != UNKNOWN:
                    offset = int(check.ext["tranStateTableOffset"])
                    self.waiting.append((asked, offset, outcome))

    def confirm(self) -> None:
        self.group.confirm()
        answers = {id(to): answer for to, answer in self.conn.replies}
        for asked, offset, outcome in self.waiting:
            answer = answers.get(id(asked))
            if answer is not None and answer.code == 0 and answer.remark is None:
                assert offset not in self.ended, "two ends of one transaction were confirmed"
                self.ended[offset] = outcome
        self.waiting = [one for one in self.waiting if id(one[0]) not in answers]

    def fail_over(self) -> None:
        """The master goes; of what is not confirmed the next one has any part."""
        self.group.give_up()
        self.processor.close()
        store = self.group.messages
        cuts = [at for at in logs.boundaries(store.log) if at >= store.dispatched]
        store.drop_mastership()
        store.truncate(self.random.choice(cuts))
        store.take_mastership()
        self.begin()

    async def run(self) -> None:
        steps = [self.send, self.end, self.end, self.confirm, self.answer_checks, self.fail_over]
        for _ in range(STEPS):
            (step,) = self.random.choices([*steps, None], [6, 4, 4, 4, 3, 1, 4])
            if step is None:
                await asyncio.sleep(self.random.choice((0.01, 1, 8, 31)))
                self.group.now_ms = max(self.group.now_ms, self.now_ms())
            else:
                step()
        await self.settle(0.2)

    async def settle(self, for_s: float) -> None:
        """Let everything be confirmed for a while."""
        end_s = asyncio.get_running_loop().time() + for_s
        while asyncio.get_running_loop().time() < end_s:
            self.confirm()
            await asyncio.sleep(for_s / 20)
        self.confirm()

    # What the log says

    def outcomes(self) -> dict[int, TransactionOutcome]:
        """By half offset, the first outcome in the log; the others must repeat it."""
        found: dict[int, TransactionOutcome] = {}
        for record in read_queue(self.group.messages, OPS):
            op = parse_op(record.properties.encode(), record.body)
            if isinstance(op, Ended):
                for offset in op.offsets:
                    assert op.outcome is not None
                    assert found.setdefault(offset, op.outcome) is op.outcome
        return found

    def check(self) -> None:
        """Each transaction has ended once, as was said, or is open and known to be."""
        store = self.group.messages
        halves = read_queue(store, HALF)
        outcomes = self.outcomes()
        delivered = _by_half(read_queue(store, "TopicTest", 2))
        given_up = _by_half(read_queue(store, GIVEN_UP))
        for stored in halves:
            outcome = outcomes.get(stored.queue_offset)
            at = stored.physical_offset
            assert delivered[at] == (outcome is TransactionOutcome.COMMIT)
            assert given_up[at] == (outcome is TransactionOutcome.GIVEN_UP)
        for offset, said in self.ended.items():
            assert outcomes[offset] is OUTCOMES[said]
        kept = {stored.queue_offset: stored.physical_offset for stored in halves}
        for sent in self.sent:
            assert sent.ext is not None
            assert int(sent.ext["queueOffset"]) in kept
        open_halves = [offset for offset in kept if offset not in outcomes]
        assert self.processor.transactions.ready
        ledger = self.processor.transactions.ledger
        assert [row.offset for row in ledger.table().rows] == open_halves
        needed = self.group.store.committed.query(GROUP, HALF, 0)
        assert needed is None or needed <= min(open_halves, default=len(halves))


def _by_half(records: list[MessageRecord]) -> Counter[int]:
    return Counter(record.prepared_transaction_offset for record in records)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("seed", SEEDS)
async def test_each_transaction_ends_once_as_first_recorded(
    tmp_path: Path, seed: int, late: bool
) -> None:
    world = World(tmp_path, seed, late=late)
    try:
        await world.run()
        world.check()
        rows = world.processor.transactions.ledger.table().rows
        hopeful = {row.offset for row in rows if row.checks < POLICY.checks_max}
        world.conn.sent.clear()
        world.group.holding = False
        await world.settle(200)  # nobody answers: six rounds, up to three checks, given up
        world.check()
        assert len(world.processor.transactions.ledger) == 0
        asked = {int(check.ext["tranStateTableOffset"]) for check in world.conn.sent}
        assert asked == hopeful
        needed = world.group.store.committed.query(GROUP, HALF, 0)
        assert needed == world.processor.transactions.ledger.half_next
    finally:
        world.processor.close()
        world.group.messages.log.close()
