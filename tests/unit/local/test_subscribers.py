"""Subscribers of the store: one that fails hurts neither the writer nor the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from gantry_local.apiserver.store import Store

if TYPE_CHECKING:
    from gantry_local.apiserver.store import Event

CONFIG = ("", "configmaps")


def write(store: Store, name: str) -> None:
    store.put(CONFIG, ("ns", name), {"metadata": {"name": name, "uid": name}})


class Faulty:
    """Fails while told to; remembers what it heard, and what it saw when it looked again."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.broken = True
        self.heard: list[str] = []
        self.seen: list[list[str]] = []
        self.looks = 0

    def on_event(self, event: Event) -> None:
        if self.broken:
            raise RuntimeError("planted")
        self.heard.append(event.record.key[1])

    def resync(self) -> None:
        self.looks += 1
        if self.broken:
            raise OSError("planted")
        self.seen.append([record.key[1] for record in self.store.records(CONFIG)])


def heard_by(store: Store) -> list[str]:
    heard: list[str] = []
    store.subscribe(lambda event: heard.append(event.record.key[1]), name="other")
    return heard


def test_a_failing_subscriber_hurts_nobody_else() -> None:
    store = Store()
    faulty = Faulty(store)
    before = heard_by(store)
    store.subscribe(faulty.on_event, name="faulty")
    after = heard_by(store)
    write(store, "a")
    store.delete(CONFIG, ("ns", "a"))
    write(store, "b")
    assert before == after == ["a", "a", "b"]
    assert store.failures == {"faulty": 3}
    assert [record.key[1] for record in store.records(CONFIG)] == ["b"]


def test_without_a_loop_the_next_change_catches_up() -> None:
    store = Store()
    faulty = Faulty(store)
    store.subscribe(faulty.on_event, name="faulty", resync=faulty.resync)
    write(store, "a")
    faulty.broken = False
    write(store, "b")
    write(store, "c")
    assert faulty.seen == [["a", "b"]], "what it looks at includes the change it was not told"
    assert faulty.heard == ["c"]


@pytest.mark.looptime
async def test_a_subscriber_that_failed_catches_up_by_itself_and_not_too_often() -> None:
    store = Store()
    faulty = Faulty(store)
    store.subscribe(faulty.on_event, name="faulty", resync=faulty.resync)
    write(store, "a")
    write(store, "b")  # while a look is pending, the writer pays for no other
    assert faulty.looks == 0
    await asyncio.sleep(60)
    assert 12 <= faulty.looks <= 18, "soon at first, every five seconds in the end"
    assert store.failures == {"faulty": faulty.looks + 1}
    faulty.broken = False
    await asyncio.sleep(5)
    assert faulty.seen == [["a", "b"]]
    write(store, "c")
    assert faulty.heard == ["c"]


@pytest.mark.looptime
async def test_one_that_left_is_never_called_again() -> None:
    store = Store()
    faulty = Faulty(store)
    leave: Any = store.subscribe(faulty.on_event, name="faulty", resync=faulty.resync)
    write(store, "a")
    leave()
    leave()
    await asyncio.sleep(60)
    write(store, "b")
    assert faulty.looks == 0
    assert faulty.heard == []
