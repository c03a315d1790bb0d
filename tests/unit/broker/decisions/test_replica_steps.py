"""Steps of the replica core: recorded while it runs, and the same when they are taken once more."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from gantry_broker.decisions import dense, recorded
from gantry_broker.decisions.recorded import RecordedReplica, batch_in_numbers, step_in_numbers
from gantry_broker.decisions.replay import INPUTS, REPLICA
from gantry_broker.decisions.rings import SHARE_MIN, GroupRings
from gantry_broker.decisions.state import PLAIN, core_of, state_of
from gantry_broker.decisions.told import effects_told, event_told
from gantry_broker.replica import ReplicaCore, Role
from gantry_broker.replica import effects as fx
from gantry_broker.replica import events as ev
from gantry_broker.replica.effects import Fate
from gantry_broker.replica.master import Batch
from gantry_broker.replica.messages import Ack, Append
from gantry_operator.redact import Redactor
from gantry_protocol.steps.files import StepsRead, StretchRead, steps_of
from gantry_protocol.steps.plain import NotStepsError
from gantry_protocol.steps.replay import retaken
from gantry_protocol.steps.ring import RUN, StepRing
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset
from sim.mutants.planting import Edit, planted
from support.replica_steps import AT, BUGS, CORE, a_life, again, file_of, recorded_replicas
from support.replicas import Group, facts
from support.steps_again import differences

INCARNATION = "9f86d081884c7d65"
PURE = {"next_batch", "controllers_silent_ms"}


def test_every_input_of_the_core_is_recorded_and_can_be_taken_again() -> None:
    public = {
        name
        for name, found in vars(ReplicaCore).items()
        if not name.startswith("_") and not isinstance(found, property)
    }
    overridden = {name for name in vars(RecordedReplica) if not name.startswith("_")}
    assert public - PURE == overridden == set(INPUTS)


@pytest.fixture(scope="module")
def rings() -> list[StepRing]:
    """Of members to which all kinds of things happen."""
    with recorded_replicas() as made:
        a_life(Group(3), INCARNATION)
    return made


@pytest.fixture(scope="module")
def lived(rings: list[StepRing]) -> StepsRead:
    return again(*rings)


def each(lived: StepsRead) -> list[list[Any]]:
    """The steps as the replay sees them."""
    found: list[list[Any]] = []
    for stretch in lived.stretches:
        for step in stretch.steps:
            if step[0] != RUN:
                found.append([*step, None, None, None][:4])
                continue
            for kind, given, _, outcome in dense.items(PLAIN.read(step[1], "")):
                found.append([kind, PLAIN.written(given), None, PLAIN.written(outcome)])
    return found


def test_every_input_and_event_is_found_again(lived: StepsRead) -> None:
    steps = each(lived)
    assert {step[0] for step in steps} == set(INPUTS)
    events = {next(iter(step[1]["tuple"][0])) for step in steps if step[0] == "step"}
    assert events == {kind.__name__ for kind in ev.Event.__args__}
    effects = {next(iter(one)) for step in steps if step[0] == "step" for one in step[3] or ()}
    kinds = {kind.__name__ for kind in fx.Effect.__args__}
    assert kinds - effects <= {"Slow", "Stuck", "DrainEnded", "AskElection"}


@pytest.mark.parametrize("bytes_max", [16 * 1024, 64 * 1024])
def test_a_small_ring_has_its_beginning(bytes_max: int) -> None:
    """States follow one another, and each is what the steps before it lead to."""
    with recorded_replicas(bytes_max) as made:
        a_life(Group(3))
    assert len(again(*made).stretches) > len(made)
    assert sum(ring.dropped for ring in made) > 0


def test_a_state_is_the_core_also_in_what_its_parts_share() -> None:
    with recorded_replicas():
        group = Group(3)
        group.elect(1)
        group[1].flushing = False
        group.write(1, b"waits")
    for node in group.nodes.values():
        core = node.core
        stretch = StretchRead(1, AT, state_of(core), None, [], [])
        made = core_of(stretch, "here")
        assert state_of(made) == state_of(core)
        assert made.log is not core.log
        if made.master is not None:
            assert made.master._log is made.log
            assert all(m in made.master.members.values() for m in made.master._by_link.values())
            assert len(made.master.pending) == 1
        if made.following is not None:
            assert made.following._log is made.log
            assert made.following._saver is made._saver


# ---- another version


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found_in_what_was_recorded_before_it(lived: StepsRead, bug: str) -> None:
    with planted((Edit(*BUGS[bug]),)):
        found = differences(lived, REPLICA)
    assert found, "no step differs"
    assert found[0].path.startswith(("outcome", "state"))
    assert (found[0].number > 0, bool(found[0].given)) == (True, True)
    assert found[0].recorded != found[0].now


def test_a_state_that_drifts_without_a_word_is_found() -> None:
    """Nothing of it comes out, but the next stretch begins with another state."""
    with recorded_replicas(32 * 1024) as made:
        group = Group(3)
        group.elect(1)
        while len(made[0].held().stretches) < 3:
            group.write(1, b"x")
            group.tick()
    lived = again(made[0])
    bug = Edit(f"{CORE}.pace:Pace.excuse", "self._mark_ms += pause_ms", "pass")
    same = Edit(
        f"{CORE}.syncset:Member.acknowledged", "self.heard_ms = now_ms", "self.heard_ms = 0"
    )
    with planted((same,)):
        found = differences(lived, REPLICA)
    assert "heard_ms" in found[0].path
    with planted((bug,)):
        assert differences(lived, REPLICA) == [], "nobody stood still"


def test_a_state_that_this_version_cannot_tell_is_refused_in_a_sentence() -> None:
    with recorded_replicas(32 * 1024) as made:
        group = Group(3)
        group.elect(1)
        while len(made[0].held().stretches) < 2:
            group.write(1, b"x")
            group.tick()

    def fails(_: ReplicaCore) -> Any:
        raise TypeError("Thing is no value of the core")

    with pytest.raises(NotStepsError, match=r"no state of a core \(TypeError: Thing is no value"):
        list(retaken(REPLICA._replace(state_of=fails), again(made[0]), "file"))


def test_the_step_that_differs_is_named(lived: StepsRead) -> None:
    with planted((Edit(*BUGS["heartbeats"]),)):
        outcomes = list(retaken(REPLICA, lived, "file"))
    first = next(one for one in outcomes if one.difference is not None)
    assert first.of.startswith("orders-")
    assert first.difference is not None
    assert first.difference.given.startswith("Tick at ")


# ---- what is in it


def test_no_message_is_in_it(rings: list[StepRing]) -> None:
    for ring in rings:
        assert b"hunter2" not in file_of(ring)
        for stretch, _ in ring.held().stretches:
            assert not any(b"hunter2" in value for value in reached(stretch.steps))


def reached(root: Any) -> list[bytes]:
    """All bytes that an object holds on to, at whatever depth."""
    seen, todo, found = {id(root)}, [root], []
    while todo:
        one = todo.pop()
        if isinstance(one, bytes):
            found.append(one)
        for inner in gc.get_referents(one):
            if id(inner) not in seen and not isinstance(inner, type):
                seen.add(id(inner))
                todo.append(inner)
    return found


def test_the_redactor_of_bundles_finds_nothing_in_it(rings: list[StepRing]) -> None:
    text = file_of(*rings).decode()
    redactor = Redactor()
    assert redactor.text("x", text) == text
    assert redactor.found() == []


ENTRY = EpochEntry(Epoch(3), Offset(40))
BYTES = Append(Epoch(4), ENTRY, Offset(90), Offset(80), True, b"12345")
ACK = Ack(Epoch(4), Offset(90), draining=True, has_room=True)
MOVED = fx.ConfirmMoved(Offset(70), Fate.CONFIRMED, [object()] * 3)


@pytest.mark.parametrize(
    ("event", "effects", "is_dense"),
    [
        (ev.Tick(), [], True),
        (ev.Tick(), [fx.AskElection()], False),
        (ev.LogFlushed(Offset(9), 2), [], True),
        (ev.LogFlushed(Offset(9), 2), [MOVED], True),
        (ev.LogFlushed(Offset(9), 2), [fx.Send(-3, ACK)], True),
        (ev.LogFlushed(Offset(9), 2), [fx.Send(-3, BYTES)], False),
        (ev.LogFlushed(Offset(9), 2), [fx.Send(-3, ACK), MOVED], False),
        (ev.Received(5, ACK), [], True),
        (ev.Received(5, ACK), [fx.Feed()], True),
        (ev.Received(5, ACK), [MOVED], True),
        (ev.Received(5, ACK), [MOVED, fx.Feed()], True),
        (ev.Received(5, ACK), [fx.Feed(), MOVED], False),
        (ev.Received(5, ACK), [fx.ConfirmMoved(Offset(7))], True),
        (ev.Received(5, ACK), [fx.ConfirmMoved(Offset(7), Fate.TOO_FEW, [1])], False),
        (ev.Received(5, ACK), [MOVED, fx.Feed(), fx.Feed()], False),
        (ev.Received(-5, BYTES), [fx.AppendLog(Offset(90), b"12345")], True),
        (
            ev.Received(-5, BYTES),
            [fx.AppendLog(Offset(90), b"12345"), fx.ConfirmMoved(Offset(0))],
            True,
        ),
        (ev.Received(-5, BYTES), [fx.AppendLog(Offset(91), b"12345")], False),
        (ev.Received(-5, BYTES), [fx.AppendLog(Offset(90), b"1234")], False),
        (ev.Received(-5, BYTES), [fx.AppendLog(Offset(90), b"12345"), MOVED], False),
        (ev.Received(-5, BYTES), [], False),
        (ev.LogCut(), [], False),
    ],
)
def test_numbers_stand_for_the_very_step(event: Any, effects: list[Any], is_dense: bool) -> None:
    numbers = step_in_numbers(event, 77, effects)
    assert (numbers is not None) == is_dense
    if numbers is not None:
        ((kind, given, drawn, outcome),) = dense.items(numbers)
        assert (kind, drawn) == ("step", None)
        assert PLAIN.written(given) == PLAIN.written((event_told(event), 77))
        assert PLAIN.written(outcome) == PLAIN.written(effects_told(effects))


def test_numbers_stand_for_the_very_batch() -> None:
    batch = Batch(Offset(90), Offset(200), 64, ENTRY)
    numbers = batch_in_numbers(5, batch, 5, BYTES)
    assert numbers is not None
    ((kind, given, _, outcome),) = dense.items(numbers)
    assert (kind, given) == ("sent", (5, batch, 5))
    assert outcome == Append(Epoch(4), ENTRY, Offset(90), Offset(80), True)
    assert batch_in_numbers(5, Batch(Offset(91), Offset(200), 64, ENTRY), 5, BYTES) is None
    other = EpochEntry(Epoch(2), Offset(40))
    assert batch_in_numbers(5, Batch(Offset(90), Offset(200), 64, other), 5, BYTES) is None


# ---- bounds


def busy(bytes_max: int) -> tuple[Group, StepRing]:
    """A master and what is kept of it."""
    ring = StepRing(bytes_max)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "support.replicas.ReplicaCore",
            lambda **start: (
                RecordedReplica(ring=ring, time=lambda: AT, **start)
                if start["me"] == 1
                else ReplicaCore(**start)
            ),
        )
        group = Group(3)
    group.elect(1)
    group.said.clear()
    return group, ring


def test_a_ring_is_as_large_as_it_says() -> None:
    limit = 256 * 1024
    group, ring = busy(limit)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        while ring.dropped < 1000:
            group.write(1, b"x")
            group.tick()
            for node in group.nodes.values():
                node.done.clear()
            group.said.clear()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert ring.size <= limit
    assert held < 1.5 * limit
    again(ring)


def test_what_is_beyond_the_bound_is_counted() -> None:
    group, ring = busy(32 * 1024)
    for _ in range(600):
        group.write(1, b"x")
        group.tick()
    stretches = ring.held().stretches
    assert ring.dropped > 100
    assert ring.size <= 32 * 1024
    assert stretches[0][0].number == ring.dropped + 1
    last, count = stretches[-1]
    assert last.number + count - 1 == ring.dropped + ring.entries


def test_a_run_is_bounded() -> None:
    group, ring = busy(1 << 30)
    ticks = dense.RUN_MAX
    for _ in range(ticks):
        group[1].core.step(ev.Tick(), group.now_ms)
    sizes = [
        len(step[1]) for one, _ in ring.held().stretches for step in one.steps if step[0] == RUN
    ]
    assert max(sizes) <= dense.RUN_MAX + 11
    again(ring)


@pytest.mark.parametrize(
    "broken", ["step_in_numbers", "batch_in_numbers"], ids=["an event", "a batch"]
)
def test_recording_that_fails_ends_and_the_core_goes_on(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    group, ring = busy(1 << 30)
    group.write(1, b"before")
    held = ring.entries

    def fails(*_: Any) -> Any:
        raise ValueError("cannot be told")

    monkeypatch.setattr(recorded, broken, fails)
    group.write(1, b"x")
    assert ring.ended == "ValueError: cannot be told"
    monkeypatch.undo()
    group.write(1, b"y")
    group.tick(1000)
    assert group[1].facts.confirm == group[1].facts.end == 8
    assert ring.entries <= held + 3
    assert differences(steps_of(file_of(ring), "file"), REPLICA) == []


def test_a_state_that_cannot_be_told_keeps_nobody_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_: Any) -> Any:
        raise TypeError("no value of the core")

    monkeypatch.setattr("gantry_broker.decisions.recorded.state_of", fails)
    group, ring = busy(1 << 30)
    group.write(1, b"x")
    assert group[1].facts.confirm == 1
    assert ring.ended == "TypeError: no value of the core"
    assert ring.held().stretches == ()


def test_a_failure_is_a_step_and_reaches_the_caller() -> None:
    group, ring = busy(1 << 30)
    core = group[1].core
    with pytest.raises(AssertionError):
        core.step(ev.LogFlushed(Offset(99), 0), group.now_ms)
    with pytest.raises(AssertionError):
        core.appended(Offset(-1))
    with pytest.raises(KeyError):
        core.sent(99, Batch(Offset(0), Offset(1), 1, ENTRY), b"")
    (stretch,) = again(ring).stretches
    errors = [step[3]["Raised"]["error"] for step in stretch.steps[-3:]]
    assert errors == ["AssertionError", "AssertionError", "KeyError"]


def test_groups_of_a_process_have_equal_shares() -> None:
    start: dict[str, Any] = {"me": BrokerId(1), "incarnation": "1", "log": facts(), "now_ms": 0}
    rings = GroupRings(4 * SHARE_MIN, 4, lambda: AT)
    core = rings.new_core("a", **start)
    rings.new_core("b", **start)
    assert list(rings.by_group) == ["a", "b"]
    assert rings.by_group["a"]._bytes_max == SHARE_MIN
    core.step(ev.Tick(), 5)
    rings.new_core("a", **start).step(ev.Tick(), 20)
    found = again(rings.by_group["a"])
    assert [(one.number, len(one.steps)) for one in found.stretches] == [(1, 1), (3, 1)]
    assert rings.note == ""


def test_many_groups_with_little_memory_record_nothing_and_say_so() -> None:
    start: dict[str, Any] = {"me": BrokerId(1), "incarnation": "1", "log": facts(), "now_ms": 0}
    rings = GroupRings(4 * SHARE_MIN, 5, lambda: AT)
    assert type(rings.new_core("a", **start)) is ReplicaCore
    assert rings.by_group == {}
    assert f"set recorded_bytes to {5 * SHARE_MIN} or more" in rings.note
    assert GroupRings(0, 5, lambda: AT).note == ""


# ---- files that are none


def small() -> bytes:
    with recorded_replicas() as made:
        group = Group(2)
        group.elect(1)
        group.write(1, b"x")
        group.tick(400)
    assert group[1].core.role is Role.MASTER
    return file_of(*made)


@pytest.fixture(scope="module")
def data() -> bytes:
    return small()


def refused(data: bytes) -> str:
    with pytest.raises(NotStepsError) as caught:
        list(retaken(REPLICA, steps_of(data, "replica/b-0.jsonl"), "replica/b-0.jsonl"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data[: len(data) // 2], "is cut off"),
        (lambda data: data.replace(b'["step"', b'["stop"', 1), "knows no input stop"),
        (lambda data: data.replace(b'"Saver"', b'"Fury"', 1), "knows no Fury"),
        (lambda data: data.replace(b'"_save":', b'"_safe":', 1), "of another version"),
        (lambda data: data.replace(b'"me":1', b'"we":1', 1), "of another version"),
        (lambda data: data.replace(b'{"ref":1}', b'{"ref":99}', 1), "this is no ref"),
        (lambda data: data.replace(b'["run",{"numbers":[', b'["run",{"numbers":[77,', 1), "no run"),
        (lambda data: data.replace(b'["run",{"numbers":[', b'["run",{"numbers":["x",', 1), ""),
        (lambda data: data.replace(b'{"ReplicaCore":', b'{"Saver":', 1), ""),
        (lambda data: data.replace(b'"hollow":0', b'"hollow":99999999999'), "cannot wait"),
    ],
)
def test_a_bad_file_is_refused_in_a_sentence(
    data: bytes, spoil: Callable[[bytes], bytes], says: str
) -> None:
    spoilt = spoil(data)
    assert spoilt != data
    assert says in refused(spoilt)


def test_rotten_bytes_are_refused_or_differ_and_nothing_else(data: bytes) -> None:
    rng = Random(7)
    for _ in range(200):
        spoilt = bytearray(data)
        spoilt[rng.randrange(len(data))] = rng.randrange(32, 127)
        with contextlib.suppress(NotStepsError):
            found = differences(steps_of(bytes(spoilt), "file"), REPLICA)
            assert all(one.number > 0 for one in found)
