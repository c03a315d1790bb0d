"""Real replica cores joined by imagined links, disks and a controller that says what a test says.

The smallest vocabulary for a story::

    group = Group(3)
    group.elect(1)                       # broker 1 is master, every replica attached
    group.write(1, b"abc")               # appended, flushed, replicated
    group.cut_link(2)                    # ... and so on

Everything happens at once and in order unless a test switches an automatism off
(``node.flushing``, ``node.saving``, ``node.cutting``), holds what a node is sent
(``group.held``), stops a node altogether (``group.stopped``), or lets it hear nothing from the
controllers (``group.deaf``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gantry_broker.replica import (
    DEFAULT_LIMITS,
    ControllerView,
    Limits,
    Lineage,
    LogFacts,
    ReplicaCore,
    Role,
    StoredState,
)
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.effects import Fate
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset

if TYPE_CHECKING:
    from gantry_broker.replica.messages import Message


def entries(*pairs: tuple[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in pairs)


def lineage(*pairs: tuple[int, int]) -> Lineage:
    return Lineage(entries(*pairs))


def facts(
    *pairs: tuple[int, int], end: int = 0, start: int = 0, confirm: int = 0, epoch: int = 0
) -> LogFacts:
    stored = StoredState(Epoch(epoch), lineage(*pairs), Offset(confirm))
    return LogFacts(log_start=Offset(start), end=Offset(end), flushed=Offset(end), stored=stored)


@dataclass
class Disk:
    """What a restart finds."""

    log: bytearray = field(default_factory=bytearray)
    flushed: int = 0
    start: int = 0
    state: StoredState = field(default_factory=lambda: StoredState(Epoch(0), Lineage(), Offset(0)))


class Node:
    """One replica: a core, its disk, and what it has asked for."""

    def __init__(
        self,
        group: Group,
        broker_id: int,
        disk: Disk | None = None,
        incarnation: str = "1",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.group = group
        self.id = BrokerId(broker_id)
        self.disk = Disk() if disk is None else disk
        log = LogFacts(
            log_start=Offset(self.disk.start),
            end=Offset(self.disk.start + len(self.disk.log)),
            flushed=Offset(self.disk.flushed),
            stored=self.disk.state,
        )
        self.incarnation = incarnation
        self.core = ReplicaCore(
            me=self.id, incarnation=incarnation, log=log, now_ms=group.now_ms, limits=limits
        )
        self.flushing = self.saving = self.cutting = True
        self.done: list[fx.Effect] = []
        self._unsaved: deque[fx.SaveState] = deque()

    # ---- what tests look at

    @property
    def facts(self) -> LogFacts:
        return self.core.log

    def asked(self, kind: type[fx.Effect]) -> list[fx.Effect]:
        return [effect for effect in self.done if isinstance(effect, kind)]

    @property
    def ended(self) -> list[tuple[Fate, list[object]]]:
        """What became of writes, in order; a write is the data that was appended."""
        found: list[tuple[Fate, list[object]]] = []
        for effect in self.done:
            match effect:
                case fx.ConfirmMoved(fate=fate, writes=writes) if writes:
                    found.append((fate, list(writes)))
                case fx.Demoted(writes=writes) if writes:
                    found.append((Fate.DEPOSED, list(writes)))
                case fx.WritesEnded(fate=fate, writes=writes):
                    found.append((fate, list(writes)))
        return found

    def last_proposal(self) -> fx.Propose:
        found = self.asked(fx.Propose)
        assert found, "nothing was proposed"
        assert isinstance(found[-1], fx.Propose)
        return found[-1]

    # ---- input

    def step(self, event: ev.Event) -> None:
        for effect in self.core.step(event, self.group.now_ms):
            self.done.append(effect)
            self._carry_out(effect)

    def append(self, data: bytes) -> None:
        assert self.core.role is Role.MASTER
        self.disk.log += data
        end = Offset(self.disk.start + len(self.disk.log))
        self.core.appended(end, data, self.group.now_ms)
        self.done.append(fx.Feed())
        self._carry_out(fx.Feed())
        if self.flushing:
            self.flush()

    def trim(self, start: int) -> None:
        """The log begins at ``start`` from now on."""
        del self.disk.log[: start - self.disk.start]
        self.disk.start = start
        self.step(ev.LogTrimmed(Offset(start)))
        self.group.run()

    def flush(self) -> None:
        self.disk.flushed = self.disk.start + len(self.disk.log)
        self.step(ev.LogFlushed(Offset(self.disk.flushed), self.core.log.cuts))

    def save(self) -> None:
        """Make everything that waits to be saved durable."""
        while self._unsaved:
            effect = self._unsaved.popleft()
            self.disk.state = effect.state
            self.step(ev.StateSaved(effect.token))

    # ---- output

    def _carry_out(self, effect: fx.Effect) -> None:
        match effect:
            case fx.SaveState():
                self._unsaved.append(effect)
                if self.saving:
                    self.save()
            case fx.CutLog(point=point, reset=reset):
                self._cut(point, reset)
                if self.cutting:
                    self.step(ev.LogCut())
            case fx.AppendLog(offset=offset, data=data):
                assert offset == self.disk.start + len(self.disk.log), "a gap in the log"
                self.disk.log += data
                if self.flushing:
                    self.flush()
            case fx.Send(link=link, message=message):
                self.group.send(self, link, message)
            case fx.OpenLink(link=link, address=address):
                self.group.open(self, link, address)
            case fx.CloseLink(link=link):
                self.group.close(self, link)
            case fx.Feed():
                self._feed()
            case _:
                pass

    def _cut(self, point: int, reset: bool) -> None:
        self.disk.flushed = point
        if reset:
            self.disk.start = point
            self.disk.log.clear()
        else:
            del self.disk.log[point - self.disk.start :]

    def _feed(self) -> None:
        for link in [] if self.core.master is None else self.core.master.links():
            while (batch := self.core.next_batch(link)) is not None:
                end = min(batch.limit, batch.offset + batch.size_hint)
                data = bytes(self.disk.log[batch.offset - self.disk.start : end - self.disk.start])
                self.group.send(self, link, self.core.sent(link, batch, data))


class Group:
    """Nodes, their links and the clock. A link is (node, number) <-> (node, number)."""

    def __init__(self, size: int, limits: Limits = DEFAULT_LIMITS, min_in_sync: int = 2) -> None:
        self.now_ms = 1_000
        self.limits = limits
        self.min_in_sync = min_in_sync
        self.nodes = {number: Node(self, number, limits=limits) for number in range(1, size + 1)}
        self.set: frozenset[BrokerId] = frozenset()
        self.set_epoch = 0
        self.epoch = 0
        self.unreachable: set[int] = set()
        self.held: set[int] = set()
        self.stopped: set[int] = set()
        self.deaf: set[int] = set()  # to the controllers
        self.said: list[tuple[int, Message]] = []
        self._peers: dict[tuple[int, int], tuple[int, int]] = {}
        self._queue: deque[tuple[int, int, Message | None]] = deque()
        self._held_messages: list[tuple[int, int, Message | None]] = []
        self._links = 0

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    # ---- the controller

    def view(self, master: int | None, members: set[int] | None = None) -> ControllerView:
        incarnation = "" if master is None else self.nodes[master].incarnation
        chosen = self.set if members is None else frozenset(map(BrokerId, members))
        return ControllerView(
            master_epoch=Epoch(self.epoch),
            master_id=None if master is None else BrokerId(master),
            master_incarnation=incarnation,
            master_address=f"{master}:remoting",
            master_ha_address=f"{master}:ha",
            sync_state_set=chosen,
            sync_state_set_epoch=self.set_epoch,
            min_in_sync=self.min_in_sync,
            replicas=len(self.nodes),
        )

    def elect(self, master: int, members: set[int] | None = None) -> None:
        """A new epoch; everybody is told, the master first."""
        self.epoch += 1
        self.set_epoch += 1
        chosen = set(self.nodes) if members is None else members
        self.set = frozenset(map(BrokerId, chosen))
        self.tell(master, [master, *(other for other in self.nodes if other != master)])

    def tell(self, master: int | None, audience: list[int]) -> None:
        for number in audience:
            self.nodes[number].step(ev.ViewLearned(self.view(master)))
        self.run()
        self.tick()

    def answer(self, node: Node, outcome: ev.Adopted | ev.Refused | ev.Unknown) -> None:
        """Answer the newest proposal of ``node``."""
        node.step(ev.ProposalFinished(node.last_proposal().attempt, outcome))
        self.run()

    def accept(self, node: Node) -> None:
        """The controller adopts the newest proposal."""
        proposal = node.last_proposal()
        assert proposal.sync_state_set_epoch == self.set_epoch
        self.set, self.set_epoch = proposal.sync_state_set, self.set_epoch + 1
        self.answer(node, ev.Adopted(self.set, self.set_epoch))

    # ---- time and traffic

    def tick(self, ms: int = 20) -> None:
        """Let ``ms`` pass in steps of 20."""
        for _ in range(ms // 20):
            self.now_ms += 20
            for node in list(self.nodes.values()):
                if node.id in self.stopped:
                    continue
                if node.id not in self.deaf:
                    node.step(ev.ControllersAnswered(self.now_ms))
                node.step(ev.Tick())
            self.run()

    def run(self) -> None:
        while self._queue:
            number, link, message = self._queue.popleft()
            if number in self.held | self.stopped:
                self._held_messages.append((number, link, message))
                continue
            self._deliver(number, link, message)

    def release(self, number: int) -> None:
        """Deliver what was held for ``number``."""
        self.held.discard(number)
        self.stopped.discard(number)
        self._queue.extend(self._held_messages)
        self._held_messages.clear()
        self.run()

    def write(self, number: int, data: bytes) -> None:
        self.nodes[number].append(data)
        self.run()

    def restart(self, number: int, incarnation: str) -> Node:
        """The process dies; another one starts on the same disk."""
        self.cut_links(number)
        old = self.nodes[number]
        self.nodes[number] = Node(self, number, old.disk, incarnation, self.limits)
        return self.nodes[number]

    def cut_links(self, number: int) -> None:
        """Every link of this node ends, and both sides see it."""
        for (owner, link), (peer, _) in list(self._peers.items()):
            if number in (owner, peer):
                self._queue.append((owner, link, None))
        self.run()

    # ---- called by nodes

    def send(self, node: Node, link: int, message: Message) -> None:
        peer = self._peers.get((node.id, link))
        if peer is not None:
            self.said.append((node.id, message))
            self._queue.append((*peer, message))

    def open(self, node: Node, link: int, address: str) -> None:
        target = int(address.partition(":")[0])
        if node.id in self.unreachable or target in self.unreachable:
            self._queue.append((node.id, link, None))
            return
        self._links += 1
        self._peers[node.id, link] = (target, self._links)
        self._peers[target, self._links] = (node.id, link)
        node.step(ev.LinkOpened(link))

    def close(self, node: Node, link: int) -> None:
        peer = self._drop(node.id, link)
        if peer is not None:
            self._queue.append((*peer, None))

    def _drop(self, number: int, link: int) -> tuple[int, int] | None:
        return self._peers.pop((number, link), None)

    def _deliver(self, number: int, link: int, message: Message | None) -> None:
        node = self.nodes[number]
        if message is None:
            self._drop(number, link)
            node.step(ev.LinkClosed(link))
        elif (number, link) in self._peers:
            node.step(ev.Received(link, message))
