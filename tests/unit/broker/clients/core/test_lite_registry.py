"""Who takes which lite topic: compared with a plain table, event by event."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from gantry_broker.clients.core.lite.records import (
    Added,
    Event,
    Left,
    Removed,
    Whole,
    event_record,
    parse,
)
from gantry_broker.clients.core.lite.registry import LiteRegistry

GROUPS, CLIENTS, PARENTS = ("g", "h"), ("c1", "c2", "c3"), ("p", "q")
NAMES = [f"n{number}" for number in range(6)]


def any_event(rng: random.Random) -> Event:
    group, client, parent = rng.choice(GROUPS), rng.choice(CLIENTS), rng.choice(PARENTS)
    names = rng.sample(NAMES, rng.randint(0, 4))
    match rng.randrange(8):
        case 0:
            return Left(group, client)
        case 1:
            return Whole(group, client, parent, names, all=rng.random() < 0.3)
        case 2 | 3:
            return Removed(group, client, names)
        case _:
            return Added(group, client, parent, names, alone=rng.random() < 0.4)


class Plain:
    """The same, without thought for time or memory."""

    def __init__(self) -> None:
        self.parents: dict[tuple[str, str], str] = {}
        self.names: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.all: set[tuple[str, str]] = set()

    def apply(self, event: Event) -> None:
        key = (event.group, event.client_id)
        if isinstance(event, Left):
            self._forget(key)
            return
        if isinstance(event, Removed):
            self.names[key] -= set(event.names)
            return
        if isinstance(event, Added) and event.alone:
            for other in self.names.keys() - {key}:
                if other[0] == event.group and self.parents.get(other) == event.parent:
                    self.names[other] -= set(event.names)
        if self.parents.get(key) != event.parent:
            self._forget(key)
            self.parents[key] = event.parent
        if isinstance(event, Whole):
            self.names[key] = set()
            self.all = self.all - {key} | ({key} if event.all else set())
        self.names[key] |= set(event.names)

    def _forget(self, key: tuple[str, str]) -> None:
        self.parents.pop(key, None)
        self.names[key] = set()
        self.all.discard(key)

    def takers(self, parent: str, name: str) -> set[tuple[str, str]]:
        return {
            key
            for key, at in self.parents.items()
            if at == parent and (name in self.names[key] or key in self.all)
        }


@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_a_plain_table_says(seed: int) -> None:
    rng, registry, plain = random.Random(seed), LiteRegistry(), Plain()
    for at in range(150):
        event = any_event(rng)
        plain.apply(event)
        registry.apply(event, at)
        for parent in PARENTS:
            for name in NAMES:
                found = {item.key for item in registry.subscribers(parent, name)}
                assert found == plain.takers(parent, name), (at, event)
        assert set(registry.clients) == set(plain.parents)
        named = sum(len(plain.names[key]) for key in plain.parents)
        assert registry.count == named + len(plain.all)


@pytest.mark.parametrize("seed", range(10))
def test_whole_records_of_all_clients_say_the_same(seed: int) -> None:
    rng, registry = random.Random(seed), LiteRegistry()
    for at in range(100):
        registry.apply(any_event(rng), at)
    again = LiteRegistry()
    for at, item in enumerate(registry.clients.values()):
        record = event_record(registry.whole(item), ("10.0.0.1", 1))
        again.apply(parse(record.body), at)
    assert again.count == registry.count
    assert {key: (item.parent, item.names, item.all) for key, item in again.clients.items()} == {
        key: (item.parent, item.names, item.all) for key, item in registry.clients.items()
    }


@pytest.mark.parametrize("seed", range(10))
def test_the_records_from_the_oldest_whole_one_on_say_everything(seed: int) -> None:
    rng, registry, log = random.Random(seed), LiteRegistry(), []
    for _event in range(200):
        oldest = next(iter(registry.clients.values()), None)
        is_renewal = oldest is not None and rng.random() < 0.4
        event = registry.whole(oldest) if oldest and is_renewal else any_event(rng)
        registry.apply(event, len(log))
        log.append(event)
        first = registry.first_needed()
        again = LiteRegistry()
        for at in range(len(log) if first is None else first, len(log)):
            again.apply(log[at], at)
        assert {key: (item.names, item.all) for key, item in again.clients.items()} == {
            key: (item.names, item.all) for key, item in registry.clients.items()
        }
