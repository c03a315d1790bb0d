"""The digest of the state: of the state alone, and found by the same work however it came to be."""

import msgspec
import pytest
from gantry_controller.metadata.digest import (
    SHARE_MAX,
    RecordSum,
    layout_of,
    value_sum,
)
from gantry_controller.metadata.events import (
    CreateTopic,
    DeleteTopic,
    ForgetImport,
    ImportBroker,
    encode_event,
)
from gantry_controller.metadata.machine import COUNT_EVERY, MetadataStateMachine
from gantry_controller.metadata.state import LAYOUT, MetadataState
from gantry_controller.metadata.topic_table import Topic, TopicTable
from gantry_protocol.types import Index, Term
from support.metadata_world import World, consumers, three_in_sync, told_by_tools

FOUR = Topic(4, 4, 6)


def counted_anew(state: MetadataState) -> int:
    """The digest as a node finds it that has only the state, say from a snapshot."""
    fresh = MetadataState()
    for name in MetadataState.REPLICATED:
        setattr(fresh, name, getattr(state, name))
    fresh.rebuild_indexes()
    return fresh.digest()


def eventful(*, often: bool) -> World:
    world = three_in_sync()

    def step() -> None:
        if often:
            assert world.state.digest() == counted_anew(world.state)

    for topic in ("b", "a", "zeta"):
        world.apply(CreateTopic(cluster="c", name="", topic=topic, config=FOUR))
        step()
    world.apply(CreateTopic(cluster="c", name="", topic="a", config=Topic(8, 8, 6)))
    step()
    world.apply(DeleteTopic(cluster="", name="", topic="b"))
    step()
    topics = {"q": FOUR, "p": FOUR}
    for name in ("x", "y"):
        world.apply(
            ImportBroker(cluster="old", name=name, broker_id=0, address=name, topics=topics)
        )
        step()
    world.apply(ForgetImport(cluster="old", name="x", address="x"))
    step()
    consumers(world)
    told_by_tools(world)
    world.elect(live=[3, 2])
    step()
    world.clean([2])
    step()
    return world


def test_kept_sum_is_that_of_the_state() -> None:
    often, once = eventful(often=True), eventful(often=False)
    assert often.state.digest() == once.state.digest() == counted_anew(once.state)


def test_every_table_counts() -> None:
    """A table that is left out of the digest could differ unnoticed."""
    world = eventful(often=False)
    whole = counted_anew(world.state)
    for name, table in world.state.tables().items():
        assert table, name
        assert isinstance(table, dict)
        table.pop(next(iter(table)))
        fewer = counted_anew(world.state)
        assert fewer != whole, name
        whole = fewer


def test_one_topic_among_many_costs_one_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = {f"t{number}": FOUR for number in range(1000)}
    old = TopicTable(version=1, topics=topics)
    new = TopicTable(version=2, topics={**topics, "t7": Topic(1, 1, 6)})
    counted = []
    monkeypatch.setattr(
        "gantry_controller.metadata.digest.record_sum",
        lambda table, key, value: counted.append(key) or 1,
    )
    value_sum("topics", ("c", "n"), new, old)
    assert counted == [("c", "n"), (("c", "n"), "t7")]


def test_another_layout_has_another_number() -> None:
    class Wider(msgspec.Struct):
        size: int
        more: int = 0

    class Narrow(msgspec.Struct):
        size: int

    assert layout_of((Wider,), ("t",)) != layout_of((Narrow,), ("t",))
    assert layout_of((Wider,), ("t",)) != layout_of((Wider,), ("t", "u"))


def test_points_are_taken_at_the_same_indexes_whatever_is_missing() -> None:
    """No-ops and changes of membership take an index and never reach the state machine."""
    full, sparse = MetadataStateMachine(digest_every=4), MetadataStateMachine(digest_every=4)
    seen: list[list[tuple[int, int]]] = [[], []]
    for index in range(1, 20):
        event = encode_event(CreateTopic(cluster="c", name="", topic="nobody", config=FOUR))
        for machine, points, skipped in ((full, seen[0], ()), (sparse, seen[1], (4, 8, 9, 10))):
            if index not in skipped:
                machine.apply(Index(index), Term(1), event)
                points.append((machine.point.index, machine.point.digest))
    assert {index for index, _ in seen[0]} == {0, 4, 8, 12, 16}
    assert set(seen[0]) == set(seen[1])


def test_digest_is_counted_while_the_state_goes_on() -> None:
    """It is that of the state at ``begin``, whatever changes before it is complete."""
    names = [f"b{number}" for number in range(3 * SHARE_MAX)]
    state, later = RecordSum(LAYOUT), RecordSum(LAYOUT)
    records = dict.fromkeys(names, 1)
    for one in (state, later):
        for name in names:
            one.touched("groups", name, None)
    expected = later.settle({"groups": dict(records)})

    state.begin({"groups": records})
    assert state.count() is None
    for name in names[::2]:
        state.touched("groups", name, records[name])
        records[name] = 2
    assert state.count() is None
    assert state.count() == expected

    fresh = RecordSum(LAYOUT)
    for name in names:
        fresh.touched("groups", name, None)
    assert state.settle({"groups": records}) == fresh.settle({"groups": records})


def test_digest_of_many_changes_is_complete_before_the_next_begins() -> None:
    """Its bits are counted between entries; a new point waits for none of them in vain."""
    machine = MetadataStateMachine(digest_every=1024)
    for index in range(1, 3000):
        topics = {"q": FOUR}
        event = ImportBroker(
            cluster="old", name=f"x{index}", broker_id=0, address=f"x{index}", topics=topics
        )
        machine.apply(Index(index), Term(1), encode_event(event))
        behind = index - machine.point.index
        assert behind <= 1024 + COUNT_EVERY * (3 * 1024 // SHARE_MAX), index


def test_restored_state_is_counted_anew_and_compared_at_the_next_point() -> None:
    """A restored machine must not name its state as that of an index it has never seen."""
    whole, restored = MetadataStateMachine(digest_every=4), MetadataStateMachine(digest_every=4)
    event = encode_event(
        ImportBroker(cluster="old", name="x", broker_id=0, address="x", topics={"q": FOUR})
    )
    later = [encode_event(ForgetImport(cluster="old", name="x", address="x"))] * 4
    for index in range(1, 7):
        whole.apply(Index(index), Term(1), event)
    restored.restore(restored.assemble(whole.snapshot()))
    assert restored.state.digest() == whole.state.digest()
    for index, command in enumerate(later, start=7):
        for machine in (whole, restored):
            machine.apply(Index(index), Term(1), command)
        assert restored.point.index in (0, 8)
    assert restored.point == whole.point
    assert restored.point.index == 8
