"""The ledger of open transactions, and which of them are due to be asked for. Pure.

The ledger is what the two queues of the log say, read in their order: a half message opens a
transaction, the first op record that names it ends it, and whatever names it again changes nothing.
So a second master that reads the same log has the same ledger, and an outcome cannot change.
Between the append of an op record and its confirmation the transaction is *ending*: nobody else may
end it, and if the record is lost with the mastership, so is this memory of it.

A half message keeps its place. Upstream appends it anew with each check, which writes the body
again and leaves two places by which a producer could end one transaction. Here its count is in the
table that is written after each round.

Bounds: ``open_max`` transactions, beyond which new ones are refused. A clock that jumps makes
nobody be asked too early or given up: what arrives in this mastership waits by the steady clock,
what was there before by the wall clock and never beyond its time-out (as delays do, ADR 0031), and
the patience with those whom nobody can be asked for is counted in rounds.
"""

import msgspec
from gantry_protocol.settings.defaults import (
    TRANSACTION_CHECK_INTERVAL_S,
    TRANSACTION_CHECK_MAX,
    TRANSACTION_TIMEOUT_S,
)

from gantry_broker.clients.core.clocks import Clocks
from gantry_broker.clients.core.transactions.records import Ended, OpenTransaction, Table


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The times at which producers are asked; upstream's names in brackets.

    Attributes:
        timeout_ms: how old a half message is before anybody asks (transactionTimeOut).
        interval_ms: between two rounds (transactionCheckInterval).
        checks_max: so many questions, then it is given up (transactionCheckMax).
        rounds_max: so many rounds, asked or not: three days of them (fileReservedTime, 72 h).
        open_max: so many open transactions: some 60 MB here, 8 MB for each table in the log.
    """

    timeout_ms: int = 1000 * TRANSACTION_TIMEOUT_S
    interval_ms: int = 1000 * TRANSACTION_CHECK_INTERVAL_S
    checks_max: int = TRANSACTION_CHECK_MAX
    rounds_max: int = 8_640
    open_max: int = 200_000


class Ledger:
    """See the module.

    Attributes:
        policy: when producers are asked.
        half_next: half messages below this queue offset are known.
        op_next: op records below this queue offset are taken into account.
        changed: something is not in a table yet.
    """

    def __init__(self, policy: Policy, table: Table | None = None) -> None:
        self.policy = policy
        self.half_next = 0 if table is None else table.half_next
        self.op_next = 0 if table is None else table.op_next
        self.changed = False
        # By ascending queue offset, since half messages come in that order.
        self._open = {} if table is None else {row.offset: row for row in table.rows}
        self._due_ms: dict[int, int] = {}  # when to ask, by the steady clock
        self._ending: dict[int, bool] = {}  # half message to whether its op record is confirmed

    def __len__(self) -> int:
        return len(self._open)

    @property
    def is_full(self) -> bool:
        """Whether no further transaction may begin."""
        return len(self._open) >= self.policy.open_max

    @property
    def half_needed(self) -> int:
        """The first half message that is still needed."""
        return next(iter(self._open), self.half_next)

    def take_half(self, row: OpenTransaction, now: Clocks) -> None:
        """The next half message of the queue, which arrived just now or before this mastership."""
        assert row.offset >= self.half_next, "half messages come in their order"
        self.half_next = row.offset + 1
        self._open[row.offset] = row
        self._wait(row, now)
        self.changed = True

    def take_ended(self, offset: int, ended: Ended | None) -> int:
        """The next op record, at queue offset ``offset``; None for a piece of a table.

        Every half message it names has been taken before.

        Returns:
            How many transactions it ended.
        """
        assert offset >= self.op_next, "op records come in their order"
        self.op_next = offset + 1
        if ended is None:
            return 0
        self.changed = True
        before = len(self._open)
        for half in ended.offsets:
            self._open.pop(half, None)
            self._due_ms.pop(half, None)
            self._ending.pop(half, None)
        return before - len(self._open)

    def _wait(self, row: OpenTransaction, now: Clocks) -> int:
        """Decide until when ``row`` is left alone, by the steady clock."""
        wait_ms = row.immunity_ms or self.policy.timeout_ms
        due_ms = self._due_ms[row.offset] = now.over_at(row.stored_ms, wait_ms)
        return due_ms

    def find(self, half: int) -> OpenTransaction | None:
        """The open transaction of the half message at this queue offset."""
        return self._open.get(half)

    def is_ending(self, half: int) -> bool:
        """Whether its outcome is in the log here and has not been read from it yet."""
        return half in self._ending

    def has_ended(self, half: int) -> bool:
        """Whether its outcome is confirmed, so that it holds; also before it was read back."""
        return half not in self._open or self._ending.get(half, False)

    def begin_end(self, half: int) -> None:
        """Its outcome is being appended: it is taken."""
        assert half not in self._ending, "a transaction ends once"
        self._ending[half] = False

    def confirm_end(self, half: int) -> None:
        """Its outcome is confirmed; the op record may have been read already."""
        if half in self._ending:
            self._ending[half] = True

    def cancel_end(self, half: int) -> None:
        """Its outcome was not stored."""
        self._ending.pop(half, None)

    def due(self, now: Clocks) -> list[int]:
        """The half messages to ask for now, oldest first; each counts a round."""
        found = []
        for row in self._open.values():
            due_ms = self._due_ms.get(row.offset)
            if due_ms is None:  # of a table
                due_ms = self._wait(row, now)
            if now.steady_ms >= due_ms and row.offset not in self._ending:
                row.rounds += 1
                found.append(row.offset)
        self.changed = self.changed or bool(found)
        return found

    def is_hopeless(self, row: OpenTransaction) -> bool:
        """Whether it was asked for often enough."""
        return row.checks >= self.policy.checks_max or row.rounds > self.policy.rounds_max

    def table(self) -> Table:
        """Everything of now; ``changed`` is false until something else happens."""
        self.changed = False
        return Table(self.half_next, self.op_next, list(self._open.values()))
