"""A snapshot holds everything that is replicated, and is the same bytes on every replica."""

from __future__ import annotations

from typing import Any, get_args, get_origin

import msgspec
import pytest
from gantry_controller.metadata import snapshot
from gantry_controller.metadata.events import (
    CreateTopic,
    DeleteTopic,
    ImportBroker,
    RemoveGroup,
)
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.state import BrokerGroup, Declaration, MetadataState
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.errors import DataDirError
from support.metadata_world import World, consumers, three_in_sync, told_by_tools

FOUR = Topic(4, 4, 6)


def eventful() -> World:
    """A state with something in every field, and with things that came and went."""
    world = three_in_sync()
    for topic in ("b", "a", "zeta"):
        world.apply(CreateTopic(cluster="c", name="", topic=topic, config=FOUR))
    world.apply(DeleteTopic(cluster="", name="", topic="a"))
    world.apply(
        ImportBroker(cluster="old", name="x", broker_id=0, address="h:1", topics={"q": FOUR})
    )
    consumers(world)
    told_by_tools(world)
    world.elect(live=[3, 2])
    return world


def slots(state: MetadataState) -> dict[str, Any]:
    """Every field but notes of what changed, which differ while the state is the same."""
    notes = ("_sum", "_cluster_consumers")
    return {name: getattr(state, name) for name in MetadataState.__slots__ if name not in notes}


def test_round_trip_keeps_every_field_and_its_order() -> None:
    world = eventful()
    slices = list(snapshot.take(world.state))
    fresh = snapshot.assemble(slices)
    assert slots(fresh) == slots(world.state)
    assert fresh.digest() == world.state.digest()
    assert fresh.cluster_group("c", "g") == world.state.cluster_group("c", "g")
    assert list(snapshot.take(fresh)) == slices


def test_no_field_of_the_state_is_missing_from_the_snapshot() -> None:
    """A field is written, or its name says that it is derived; a new one cannot be forgotten."""
    derived = {name for name in MetadataState.__slots__ if name.startswith("_")}
    assert set(MetadataState.__slots__) - derived == set(snapshot.FIELDS)
    written = {snapshot.decode(data).field for data in snapshot.take(eventful().state)}
    assert written == set(snapshot.FIELDS)


@pytest.mark.parametrize("name", sorted(snapshot.FIELDS))
def test_a_view_of_the_field_cannot_change(name: str) -> None:
    """The view copies dictionaries and nothing below them, so what they hold must be immutable."""
    kind = snapshot.FIELDS[name]
    if get_origin(kind) is dict:
        kind = get_args(kind)[1]
    immutable = getattr(kind, "__supertype__", kind) in (int, str, bool, bytes)
    frozen = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    assert immutable or get_origin(kind) is tuple or (frozen and kind.__struct_config__.frozen)


def test_events_that_come_while_it_is_written_are_not_in_it() -> None:
    world = eventful()
    before = list(snapshot.take(world.state))
    view = snapshot.take(world.state)
    world.apply(RemoveGroup(cluster="c", name="broker-a", uid="u1"))
    world.apply(CreateTopic(cluster="c", name="", topic="late", config=FOUR))
    assert list(view) == before


def test_slices_follow_the_size_of_what_they_hold() -> None:
    state = MetadataState()
    table = {f"topic-{number:05}": FOUR for number in range(500)}
    for number in range(400):
        state.index += 1  # type: ignore[misc]  # int arithmetic
        state.put_topics(
            ("c", f"g{number}"),
            msgspec.structs.replace(state.topic_table(("", "")), version=1, topics=table),
        )
    sizes = [len(data) for data in snapshot.take(state)]
    assert max(sizes[2:]) < 2 * snapshot.SLICE_BYTES
    assert len(sizes) > 10


def test_a_group_of_an_older_snapshot_is_read() -> None:
    group = BrokerGroup("c", "n", Declaration("u", 1, 1))
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(group))
    assert (fields.pop(), fields.pop()) == ([], False), "the last fields are the newest"
    older = msgspec.msgpack.encode(("groups", [(("c", "n"), fields)]))
    assert snapshot.decode(older).content == [(("c", "n"), group)]


def test_a_restore_replaces_what_was_there_and_tells_it() -> None:
    machine, told = MetadataStateMachine(), []
    machine.add_restore_listener(lambda: told.append(machine.state.index))
    slices = list(machine.snapshot())
    state = machine.state
    machine.restore(machine.assemble(snapshot.take(eventful().state)))
    assert machine.state is state
    assert machine.group("c", "broker-a") is not None
    machine.restore(machine.assemble(slices))
    assert machine.group("c", "broker-a") is None
    assert len(told) == 2
    assert told[1] == 0


@pytest.mark.parametrize(
    "data",
    [
        msgspec.msgpack.encode(("field_of_tomorrow", 1)),
        msgspec.msgpack.encode(("index", "not a number")),
        b"\xc1",
    ],
)
def test_what_this_program_does_not_understand_is_refused(data: bytes) -> None:
    with pytest.raises(DataDirError, match="start a program at least as new"):
        snapshot.decode(data)
