"""A group of which only the store is here: its broker speaks to it in frames, in one loop turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gantry_broker.clients.consumers import Claim
from gantry_broker.clients.view import Created
from gantry_broker.ha.wire import Frames
from gantry_broker.member.local_store import LocalStore
from gantry_broker.remote import messages as wire
from gantry_broker.remote.session import Session
from gantry_broker.remote.store import RemoteStore
from gantry_broker.remote.view import RemoteView
from gantry_broker.store.contract import Refusal
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.command import RemotingCommand
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.types import BrokerId, Epoch
from support.group_view import FakeGroup


class Host:
    """The storage process: a `StoreHost` over the fake group's own store."""

    claim = Claim(BrokerId(1), Epoch(7), "incarnation")
    subscriptions_version = 0

    def __init__(self, group: FakeGroup) -> None:
        self.view = group

    def ask(
        self, command: RemotingCommand, done: Callable[[Outcome], None], timeout_s: float
    ) -> None:
        self.view.controllers.ask(command, done, timeout_s)


class RemoteGroup(FakeGroup):
    """As `FakeGroup`, seen from a broker in front of it; `cut` ends the link."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.heard: list[wire.FromBroker] = []
        self.held_answers: list[wire.FromStore] | None = None  # while a list, nothing arrives
        self._to_store, self._to_broker = Frames(), Frames()
        self.inner = _Inner(self)
        self.disk_is_full = False
        self.session = Session(Host(self.inner), self._told, lambda: self.disk_is_full)
        self.remote = self.store = RemoteStore(self._asked)
        self.remote_view = RemoteView(
            self.remote,
            cluster=self.cluster,
            broker_name=self.broker_name,
            store_host=self.store_host,
            consumers=self.consumers,
        )
        self.welcome: wire.Welcome | None = None
        self.session.open()

    def cut(self) -> None:
        self.session.end()
        self.remote.lost()

    def release(self) -> None:
        held, self.held_answers = self.held_answers or [], None
        for message in held:
            self._told(message)

    def _asked(self, message: wire.FromBroker) -> None:
        for frame in self._to_store.feed(wire.encode(message)):
            self.heard.append(wire.from_broker(frame))
            self.session.received(self.heard[-1])

    def _told(self, message: wire.FromStore) -> None:
        if self.held_answers is not None:
            self.held_answers.append(message)
            return
        for frame in self._to_broker.feed(wire.encode(message)):
            told = wire.from_store(frame)
            if isinstance(told, wire.Welcome):
                self.welcome = told
            else:
                self.remote.received(told)

    # ---- what its broker sees

    def accepting_writes(self) -> Refusal | None:
        self.session.tell_state()
        return self.remote_view.accepting_writes()

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        self.remote_view.create_topic(topic, done, if_absent=if_absent)

    def delete_topic(self, topic: str, done: Created) -> None:
        self.remote_view.delete_topic(topic, done)


class _Inner:
    """The same group as the storage process sees it."""

    def __init__(self, group: RemoteGroup) -> None:
        self._group = group

    @property
    def store(self) -> LocalStore:
        return self._group.local

    def accepting_writes(self) -> Refusal | None:
        return self._group.refusal

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        FakeGroup.create_topic(self._group, topic, done, if_absent=if_absent)

    def delete_topic(self, topic: str, done: Created) -> None:
        FakeGroup.delete_topic(self._group, topic, done)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


def make_group(kind: str, directory: Path) -> FakeGroup:
    """A group on a store of the kind `local` or `remote`."""
    return RemoteGroup(directory) if kind == "remote" else FakeGroup(directory)
