"""One view of a cluster's consumers: what readers are given, and that they all come to know it."""

from __future__ import annotations

import random

import pytest
from gantry_controller.metadata import consumer_view as module
from gantry_controller.metadata.clients import Client, ConsumerGroup, ConsumerTable, Subscription
from gantry_controller.metadata.consumer_view import ClusterConsumers, ClusterGroup, ConsumerPage
from gantry_protocol.types import Index

A, B, C = ("c", "a"), ("c", "b"), ("c", "z")


class Reports:
    """Reports of masters, and the view of them."""

    def __init__(self) -> None:
        self.index = 0
        self.tables: dict[tuple[str, str], ConsumerTable] = {}
        self.view = ClusterConsumers(Index(0))

    def put(self, key: tuple[str, str], **groups: tuple[str, ...]) -> None:
        """The master of ``key`` reports who is in these consumer groups."""
        self.index += 1
        known = dict(self.tables.get(key, ConsumerTable()).groups)
        for name, clients in groups.items():
            known[name] = ConsumerGroup(tuple(Client(one, "JAVA") for one in sorted(clients)))
            if not clients:
                del known[name]
        self.tables[key] = ConsumerTable(self.index, known)
        self.view.changed(key, sorted(groups), self.tables[key], Index(self.index))

    def restored(self) -> None:
        """The view is made again from the reports, as after a snapshot."""
        self.view = ClusterConsumers(Index(self.index))
        for key, table in sorted(self.tables.items()):
            self.view.changed(key, sorted(table.groups), table, Index(self.index))

    def show(self, name: str) -> ClusterGroup:
        return self.view.group(name, self.tables, Index(self.index))

    def page(self, since: int, after: str | None = None) -> ConsumerPage:
        return self.view.page(Index(since), after, self.show)

    def members(self) -> dict[str, list[str]]:
        names = {name for table in self.tables.values() for name in table.groups}
        return {
            name: sorted(
                {
                    client.client_id
                    for table in self.tables.values()
                    if name in table.groups
                    for client in table.groups[name].clients
                }
            )
            for name in names
        }


class Reader:
    """Follows a view as a broker does."""

    def __init__(self) -> None:
        self.since, self.after = Index(0), None
        self.known: dict[str, ClusterGroup] = {}
        self.whole: dict[str, ClusterGroup] = {}

    def read(self, reports: Reports) -> bool:
        """One page; returns whether there is more."""
        page = reports.page(self.since, self.after)
        if page.is_whole:
            self.whole = dict(page.groups) if self.after is None else {**self.whole, **page.groups}
            if page.after is None:
                self.known = self.whole
        else:
            self.known = {**self.known, **page.groups}
        self.known = {name: group for name, group in self.known.items() if group.clients}
        self.since, self.after = page.since, page.after
        return page.more

    def members(self) -> dict[str, list[str]]:
        return {name: ids(group) for name, group in self.known.items()}


def ids(group: ClusterGroup) -> list[str]:
    return [heard.client.client_id for heard in group.clients]


def test_a_member_is_one_whichever_master_hears_it() -> None:
    reports = Reports()
    reports.put(A, g=("one", "both"))
    reports.put(B, g=("both", "two"))
    group = reports.show("g")
    assert ids(group) == ["both", "one", "two"]
    assert [heard.heard_by for heard in group.clients] == [("a", "b"), ("a",), ("b",)]
    reports.put(A, g=("one",))
    assert ids(reports.show("g")) == ["both", "one", "two"]
    reports.put(B, g=())
    assert ids(reports.show("g")) == ["one"]


def test_of_those_who_hear_a_client_two_are_named() -> None:
    reports = Reports()
    for key in (C, A, B):
        reports.put(key, g=("x",))
    ((_, heard_by),) = reports.show("g").clients
    assert heard_by == ("a", "b")


def test_subscriptions_of_all_masters_count() -> None:
    reports = Reports()
    for index, (key, topic) in enumerate(((A, "t"), (B, "u")), start=1):
        group = ConsumerGroup((Client("x"),), (Subscription(topic),), message_model=topic)
        reports.tables[key] = ConsumerTable(1, {"g": group})
        reports.view.changed(key, ["g"], reports.tables[key], Index(index))
    group = reports.show("g")
    assert [wanted.topic for wanted in group.subscriptions] == ["t", "u"]
    assert group.latest is not None
    assert group.latest.message_model == "u"


def test_a_reader_is_given_what_changed_and_no_more() -> None:
    reports, reader = Reports(), Reader()
    reports.put(A, g=("x",), h=("y",))
    assert not reader.read(reports)
    assert reader.members() == {"g": ["x"], "h": ["y"]}
    reports.put(B, h=("z",))
    page = reports.page(reader.since)
    assert (list(page.groups), page.is_whole, page.more) == (["h"], False, False)
    reader.read(reports)
    assert not reports.page(reader.since).groups
    reports.put(A, g=())
    reader.read(reports)
    assert reader.members() == {"h": ["y", "z"]}


def test_whoever_read_too_long_ago_is_given_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GONE_MAX", 1)
    reports, reader = Reports(), Reader()
    reports.put(A, g=("x",), h=("x",), i=("x",))
    reader.read(reports)
    for name in ("g", "h"):
        reports.put(A, **{name: ()})
    assert reports.page(reader.since).is_whole
    reader.read(reports)
    assert reader.members() == {"i": ["x"]}


def test_a_controller_that_was_restored_behind_the_reader_gives_the_whole() -> None:
    reports, reader = Reports(), Reader()
    reports.put(A, g=("x",))
    reader.read(reports)
    reader.since = Index(reader.since + 10)  # it read at another controller, which is further
    reader.read(reports)
    assert reader.members() == {"g": ["x"]}
    assert reader.since == reports.index


def test_pages_are_bounded_and_what_changed_at_once_stays_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PAGE_CLIENTS_MAX", 4)
    reports, reader = Reports(), Reader()
    for number in range(6):
        reports.put(A, **{f"g{number}": ("x",)})
    pages = 1
    while reader.read(reports):
        pages += 1
    assert pages == 3
    assert len(reader.members()) == 6
    reports.put(A, **{f"g{number}": ("y",) for number in range(6)})
    page = reports.page(reader.since)
    assert len(page.groups) == 6


@pytest.mark.parametrize("seed", range(40))
def test_every_reader_comes_to_know_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GONE_MAX", 3)
    monkeypatch.setattr(module, "PAGE_CLIENTS_MAX", 5)
    rng = random.Random(seed)
    reports, readers = Reports(), [Reader(), Reader()]
    names = [f"g{number}" for number in range(8)]
    for _ in range(200):
        kind = rng.random()
        if kind < 0.5:
            changed = rng.sample(names, rng.randint(1, 3))
            key = rng.choice((A, B, C))
            known = reports.tables.get(key, ConsumerTable()).groups
            told = {name: tuple(rng.sample("uvwxyz", rng.randint(0, 3))) for name in changed}
            reports.put(key, **{name: told[name] for name in told if told[name] or name in known})
        elif kind < 0.95:
            rng.choice(readers).read(reports)
        else:
            reports.restored()
    for reader in readers:
        for _ in range(20):
            if not reader.read(reports):
                break
        assert reader.members() == reports.members()
