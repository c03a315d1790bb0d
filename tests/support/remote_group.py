"""A group of which a front has the store: the two speak in frames, in one turn of the loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gantry_broker.clients.claim import Claim
from gantry_broker.ha.wire import Frames
from gantry_broker.remote import messages as wire
from gantry_broker.remote.session import Session
from gantry_broker.remote.store import RemoteStore
from gantry_protocol.types import BrokerId, Epoch
from support.group_view import FakeGroup


class Host:
    """The storage process: a `StoreHost` over the fake group."""

    claim = Claim(BrokerId(1), Epoch(7), "incarnation")
    subscriptions_version = 0
    is_offered = True

    def __init__(self, group: FakeGroup) -> None:
        self.view = group
        self.counted: list[wire.Ping] = []

    def moved(self, said: wire.Ping) -> None:
        self.counted.append(said)


class RemoteGroup(FakeGroup):
    """As `FakeGroup`, with a front's store over a link; `cut` ends that."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.heard: list[wire.FromFront] = []
        self.held_answers: list[wire.FromStore] | None = None  # while a list, nothing arrives
        self._to_store, self._to_front = Frames(), Frames()
        self.host = Host(self)
        self.session = Session(self.host, self._told)
        self.turn: list[Callable[[], wire.FromFront]] | None = None  # while a list, it does not end
        self.remote = RemoteStore(self._asked, self._at_the_end)
        self.session.open()

    def cut(self) -> None:
        self.session.end()
        self.remote.lost()

    def release(self) -> None:
        held, self.held_answers = self.held_answers or [], None
        for message in held:
            self._told(message)

    def end_turn(self) -> None:
        """What came together leaves."""
        turn, self.turn = self.turn or [], None
        for make in turn:
            self._asked(make())

    def _at_the_end(self, make: Callable[[], wire.FromFront]) -> None:
        if self.turn is None:
            self._asked(make())
        else:
            self.turn.append(make)

    def _asked(self, message: wire.FromFront) -> None:
        for frame in self._to_store.feed(wire.encode(message)):
            self.heard.append(wire.from_front(frame))
            self.session.received(self.heard[-1])

    def _told(self, message: wire.FromStore) -> None:
        if self.held_answers is not None:
            self.held_answers.append(message)
            return
        for frame in self._to_front.feed(wire.encode(message)):
            told = wire.from_store(frame)
            if not isinstance(told, wire.Welcome):
                self.remote.received(told)
