"""What is above the log in a simulated broker: its clients, and the tables made from the log.

Clients are timers of the broker itself: whenever it serves and accepts writes, a few messages and
consumer positions are appended, and whoever sent them is answered once they are confirmed; and a
consumer reads on where the last one stopped. The tables follow confirm, as the real store's do,
and are checkpointed now and then; a master has a second one at the end of its log, for the numbers
of the next messages, which it makes at its promotion and drops with its mastership.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from gantry_broker.replica import Role
from gantry_protocol.types import Offset
from sim.replica_disk import SIZE, record
from sim.replica_tables import QUEUES, Content, Tables, number_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_broker.replica import LogFacts, ReplicaCore
    from sim.kernel.machine import Host
    from sim.replica_disk import ReplicaDisk

READ_MAX = 200 * SIZE


class ClientObserver(Protocol):
    """Who checks what clients are told."""

    @property
    def served_end(self) -> int: ...
    def next_number(self) -> int: ...
    def appended(self, name: str, core: ReplicaCore, first: Offset) -> None: ...
    def acknowledged(self, name: str, end: Offset, number: int) -> None: ...
    def served(self, name: str, start: int, data: bytes) -> None: ...
    def tabled(self, name: str, tables: Tables) -> None: ...


class Clients:
    """Of one life of a broker's process.

    Attributes:
        tables: of the log up to confirm, or to the checkpoint that was found.
    """

    def __init__(self, host: Host, disk: ReplicaDisk, observer: ClientObserver) -> None:
        self.tables = Tables()
        self._next: Tables | None = None
        self._name = host.name
        self._rng = host.rng
        self._disk = disk
        self._observer = observer
        self._waiting: list[tuple[Offset, int]] = []
        self._checkpointed = 0

    # ---- the life of a process and of a mastership

    def recovered(self, facts: LogFacts) -> None:
        """The checkpoint, and from there what is known to be confirmed."""
        found = self._disk.tables()
        self.tables = msgspec.json.decode(found, type=Tables) if found else Tables()
        self._checkpointed = self.tables.offset
        self._follow(facts.confirm)

    def promoted(self, core: ReplicaCore) -> None:
        """Numbers go on behind the last record, confirmed or not."""
        self._next = self.tables.copy().fold(self._disk.log.data, core.log.end)
        self._observer.tabled(self._name, self._next)

    def demoted(self) -> None:
        """Whoever waits is told nothing more; the numbers given belong to another master now."""
        self._waiting.clear()
        self._next = None

    def confirmed(self, core: ReplicaCore) -> None:
        """Tables follow; who waits is answered 0 if the set is large enough, else 12."""
        self._follow(core.log.confirm)
        master = core.serving
        if master is None:
            return
        done = [one for one in self._waiting if one[0] <= core.log.confirm]
        self._waiting = [one for one in self._waiting if one[0] > core.log.confirm]
        if master.has_enough:
            for end, number in done:
                self._observer.acknowledged(self._name, end, number)

    def cut(self, point: int) -> None:
        """Nothing here reaches beyond confirm, and the log is never cut below that."""
        assert self.tables.offset <= point, f"tables at {self.tables.offset}, cut at {point}"

    def _follow(self, confirm: Offset) -> None:
        if confirm > self.tables.offset:
            self.tables.fold(self._disk.log.data, confirm)
            self._observer.tabled(self._name, self.tables)

    def checkpoint(self) -> None:
        """Keep the tables as they are."""
        if self.tables.offset != self._checkpointed and not self._disk.is_full:
            self._checkpointed = self.tables.offset
            self._disk.save_tables(msgspec.json.encode(self.tables))

    # ---- clients

    def write(self, core: ReplicaCore, appended: Callable[[Offset], None]) -> bool:
        """Append a few records; False when there was no room."""
        assert core.role is Role.MASTER
        first = Offset(len(self._disk.log.data))
        for _ in range(self._rng.randint(1, 4)):
            offset = len(self._disk.log.data)
            number = number_of(self._observer.next_number(), self._content())
            data = record(core.epoch, number, offset)
            if self._disk.append(data) != len(data):
                break
            assert self._next is not None, "only a promoted broker writes"
            self._next.fold(self._disk.log.data, offset + SIZE)
            self._waiting.append((Offset(offset + SIZE), number))
        end = Offset(len(self._disk.log.data))
        if end == first:
            return False
        appended(end)
        self._observer.appended(self._name, core, first)
        return True

    def _content(self) -> Content:
        assert self._next is not None, "only a promoted broker writes"
        queue = self._rng.randrange(QUEUES)
        end = self._next.ends[queue]
        if self._rng.random() < 0.2:
            return Content(is_position=True, queue=queue, value=self._rng.randint(0, end))
        return Content(is_position=False, queue=queue, value=end)

    def read(self, core: ReplicaCore) -> None:
        """A consumer reads on; what is not confirmed waits (H9)."""
        start = self._observer.served_end
        end = min(core.log.confirm, start + READ_MAX)
        if start < end:
            self._observer.served(self._name, start, bytes(self._disk.log.data[start:end]))
