"""Steps of the Raft core: recorded while it runs, and the same when they are taken once more."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from gantry_controller.decisions import recorded, told
from gantry_controller.decisions.recorded import RecordedCore
from gantry_controller.decisions.replay import INPUTS
from gantry_controller.decisions.replay import RAFT as MACHINE
from gantry_controller.decisions.shape import LogShape
from gantry_controller.raft.config import RaftConfig
from gantry_controller.raft.core import RaftCore
from gantry_controller.raft.digests import DigestPoint
from gantry_controller.raft.errors import NotLeader
from gantry_controller.raft.messages import Append, Entry, EntryKind, HardState, make_entry
from gantry_controller.raft.state import Role
from gantry_operator.redact import Redactor
from gantry_protocol.steps.files import StepsRead, steps_of
from gantry_protocol.steps.plain import NotStepsError
from gantry_protocol.steps.replay import retaken
from gantry_protocol.steps.ring import StepRing
from gantry_protocol.types import Index, NodeId, Term
from sim.mutants.planting import Edit, planted
from sim.raft.world import run_seed
from support.steps_again import again, differences, file_of, first_difference, recorded_cores

RAFT = "gantry_controller.raft"
SECRET = b"db-password=hunter2-in-a-command"
VOTERS = (NodeId(1), NodeId(2), NodeId(3))
PURE = {"lease_is_valid", "counted", "snapshot_meta"}


class Trio:
    """Three cores, the first of them recorded, with disks and a network that never fail."""

    def __init__(self, bytes_max: int = 1 << 30) -> None:
        self.ring = StepRing(bytes_max)
        self.nodes: dict[NodeId, RaftCore] = {NodeId(n): self._core(n) for n in (2, 3)}
        self.core = RecordedCore(
            RaftConfig(node_id=VOTERS[0], voters=VOTERS, lease_ns=300_000_000),
            Random(1),
            ring=self.ring,
            time=lambda: "2026-11-30T00:00:00.000+00:00",
            hard_state=HardState(voting=True),
        )
        self.nodes[VOTERS[0]] = self.core
        self.now_ns = 0

    def _core(self, number: int) -> RaftCore:
        config = RaftConfig(node_id=NodeId(number), voters=VOTERS)
        return RaftCore(config, Random(number), hard_state=HardState(voting=True))

    def lead(self) -> None:
        while self.core.role is not Role.LEADER:
            self.core.tick()
            self.settle()

    def settle(self, passes: int = 4) -> None:
        for _ in range(passes):
            for core in list(self.nodes.values()):
                self.now_ns += 1_000_000
                ready = core.ready(self.now_ns)
                if ready.must_persist:
                    core.persisted(ready.batch)
                if ready.committed:
                    core.applied(ready.committed[-1].index)
                for message in [*ready.messages_now, *ready.messages_after_persist]:
                    if message.target in self.nodes:
                        self.nodes[message.target].step(message)

    def write(self, *commands: bytes) -> None:
        self.core.propose(list(commands))
        self.settle()


def a_life(trio: Trio) -> None:
    """One of each input that no story has."""
    trio.settle()
    trio.core.say_layout(5)
    trio.core.leader_lost(VOTERS[1])
    trio.lead()
    trio.write(b"a", SECRET)
    trio.core.read_index([object(), object()])
    trio.core.barrier()
    trio.core.connection_changed(VOTERS[1])
    trio.settle()
    trio.core.digest_taken(DigestPoint(trio.core.applied_index, 5 << 48 | 7))
    trio.core.set_lease(on=True)
    trio.settle()
    trio.core.add_learner(NodeId(4), "four.example:9879")
    config = RaftConfig(node_id=NodeId(4), voters=())
    trio.nodes[NodeId(4)] = RaftCore(config, Random(4), hard_state=HardState(voting=True))
    for _ in range(8):
        trio.core.tick()
        trio.settle()
    trio.core.promote(NodeId(4))
    trio.settle()


def test_every_input_of_the_core_is_recorded_and_can_be_taken_again() -> None:
    public = {
        name
        for name, found in vars(RaftCore).items()
        if not name.startswith("_") and not isinstance(found, property)
    }
    overridden = {name for name in vars(RecordedCore) if not name.startswith("_")}
    assert public - PURE == overridden == set(INPUTS)


@pytest.fixture(scope="module")
def rings() -> list[StepRing]:
    """Of quorums in which much happens: members, snapshots, full disks, power cuts."""
    with recorded_cores() as made:
        for seed in (5, 11):
            run_seed(seed)
    return [ring for _, ring in made]


@pytest.fixture(scope="module")
def lived(rings: list[StepRing]) -> StepsRead:
    found = [again(ring) for ring in rings]
    return StepsRead(found[0].heading, [one for file in found for one in file.stretches])


def test_every_input_is_found_again(lived: StepsRead) -> None:
    trio = Trio()
    a_life(trio)
    stretches = [*lived.stretches, *again(trio.ring).stretches]
    kinds = {step[0] for stretch in stretches for step in stretch.steps}
    assert set(INPUTS) - kinds == set()


@pytest.mark.parametrize("seed", [2, 5])
def test_a_small_ring_has_its_beginning(seed: int) -> None:
    """States follow one another, and each is what the steps before it lead to."""
    with recorded_cores(64 * 1024) as made:
        run_seed(seed)
    rings = [ring for _, ring in made]
    stretches = sum(len(again(ring).stretches) for ring in rings)
    assert stretches > 3 * len(rings)
    assert sum(ring.dropped for ring in rings) > 500


# ---- another version


BUGS = {
    "commit rule": (
        f"{RAFT}.replication:update_commit",
        "state.reached(state.log.persisted_index,",
        "state.reached(state.log.last_index,",
    ),
    "vote rule": (
        f"{RAFT}.election:may_vote_for",
        "return free and state.log.is_up_to_date(request.last_index, request.last_term)",
        "return True",
    ),
    "one vote in a term": (
        f"{RAFT}.election:on_vote_request",
        "state.vote = request.source",
        "pass",
    ),
    "answers wait for the disk": (
        f"{RAFT}.replication:_accept",
        "state.after_persist.append",
        "state.now.append",
    ),
    "a step back of the timer": (
        f"{RAFT}.state:RaftState.restart_election_timer",
        "self.rng.randrange(ticks, 2 * ticks)",
        "self.rng.randrange(ticks, 3 * ticks - 1)",
    ),
}


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug != "a step back of the timer"])
def test_a_bug_is_found_in_what_was_recorded_before_it(lived: StepsRead, bug: str) -> None:
    with planted((Edit(*BUGS[bug]),)):
        first = first_difference(lived)
    assert first is not None
    assert first.path.startswith(("outcome", "state"))
    assert (first.number > 0, bool(first.given), first.recorded != first.now) == (True, True, True)


def test_chance_that_is_drawn_otherwise_is_named() -> None:
    trio = Trio()
    a_life(trio)
    lived = again(trio.ring)
    where, old, _ = BUGS["a step back of the timer"]
    with planted((Edit(where, old, "self.rng.randrange(ticks, ticks + 1)"),)):
        (first,) = differences(lived)
    assert "was drawn" in first.now
    with planted((Edit(where, old, "ticks"),)):
        (first,) = differences(lived)
    assert first.path == "chance"


def test_a_state_that_drifts_without_a_word_is_found() -> None:
    """Nothing of it comes out, but the next stretch begins with another state."""
    trio = Trio(256 * 1024)
    trio.lead()
    while len(trio.ring.held().stretches) < 3:
        trio.core.tick()
        trio.write(b"x")
    lived = again(trio.ring)
    bug = Edit(f"{RAFT}.state:Patience.tick", "self._calm_ticks += 1", "self._calm_ticks += 2")
    with planted((bug,)):
        found = differences(lived)
    assert found[0].path.endswith("Patience._calm_ticks")


def test_a_process_whose_steps_are_lost_in_between_is_not_said_to_drift() -> None:
    trio = Trio(256 * 1024)
    trio.lead()
    while len(trio.ring.held().stretches) < 3:
        trio.core.tick()
        trio.write(b"x")
    lived = again(trio.ring)
    first, _, third = lived.stretches[:3]
    assert differences(StepsRead(lived.heading, [first, third])) == []


# ---- what is in it


def test_no_command_is_in_it() -> None:
    trio = Trio()
    a_life(trio)
    follower = Trio()
    entry = make_entry(EntryKind.COMMAND, Term(1), Index(1), SECRET)
    follower.core.ready(0)
    follower.core.step(
        Append(VOTERS[1], VOTERS[0], Term(1), Index(0), Term(0), Index(0), 0, 0, (entry,))
    )
    follower.core.ready(0)
    for ring in (trio.ring, follower.ring):
        assert SECRET not in file_of(ring)
        assert b"hunter2" not in file_of(ring)
        for stretch, _ in ring.held().stretches:
            assert not any(SECRET in value for value in reached(stretch.steps))
    again(follower.ring)


def reached(root: Any) -> list[bytes]:
    """All bytes that an object holds on to, at whatever depth."""
    seen, todo, found = {id(root)}, [root], []
    while todo:
        one = todo.pop()
        if isinstance(one, bytes):
            found.append(one)
        if isinstance(one, Entry):
            found.append(one.encoded)
        for inner in gc.get_referents(one):
            if id(inner) not in seen and not isinstance(inner, type):
                seen.add(id(inner))
                todo.append(inner)
    return found


def test_the_redactor_of_bundles_finds_nothing_in_it(rings: list[StepRing]) -> None:
    for ring in rings:
        text = file_of(ring, "orders-controller-2").decode()
        redactor = Redactor()
        assert redactor.text("x", text) == text
        assert redactor.found() == []


# ---- bounds


def test_a_ring_is_as_large_as_it_says() -> None:
    limit = 1024 * 1024
    trio = Trio(limit)
    trio.lead()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        command = b"x" * 50
        while trio.ring.dropped < 500:
            trio.core.tick()
            trio.write(command, command)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    logs = 3 * trio.core.last_index * 260
    assert trio.ring.size <= limit
    assert held - logs < 1.5 * limit
    again(trio.ring)


def test_what_is_beyond_the_bound_is_counted() -> None:
    trio = Trio(256 * 1024)
    trio.lead()
    for _ in range(200):
        trio.write(b"x")
    stretches = trio.ring.held().stretches
    assert trio.ring.dropped > 100
    assert trio.ring.size <= 256 * 1024
    assert stretches[0][0].number == trio.ring.dropped + 1
    last, count = stretches[-1]
    assert last.number + count - 1 == trio.ring.dropped + trio.ring.entries


def test_a_log_that_is_too_long_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "SIZES_MAX", 10)
    trio = Trio()
    trio.lead()
    for _ in range(20):
        trio.write(b"x")
    before = len(trio.ring.held().stretches)
    trio.ring._bytes_max = 0
    trio.write(b"x")
    assert before == 1
    assert trio.ring.held().stretches == ()
    assert trio.ring.dropped > 0


def test_recording_that_fails_ends_and_the_core_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    trio = Trio()
    trio.lead()
    before = trio.ring.entries

    def broken(ready: Any) -> Any:
        raise ValueError("cannot be told")

    monkeypatch.setattr(told, "ready_told", broken)
    trio.write(b"x")
    assert trio.ring.ended == "ValueError: cannot be told"
    monkeypatch.undo()
    trio.write(b"x")
    assert trio.core.commit_index == trio.core.last_index == 3
    assert trio.ring.entries <= before + 3
    assert trio.core._chance.drawn in (None, [])
    assert differences(steps_of(file_of(trio.ring), "file")) == []


def test_refusals_are_steps_and_reach_the_caller() -> None:
    trio = Trio()
    trio.core.ready(0)
    with pytest.raises(NotLeader):
        trio.core.propose([b"x"])
    (stretch,) = again(trio.ring).stretches
    assert stretch.steps[-1][3]["Raised"]["error"] == "NotLeader"


def test_the_shape_of_a_log_follows_cuts_and_drops() -> None:
    def entries(first: int, *terms: int) -> list[Entry]:
        return [
            make_entry(EntryKind.COMMAND, Term(term), Index(first + n), b"x" * n)
            for n, term in enumerate(terms)
        ]

    shape = LogShape(4, entries(5, 1, 1, 2))
    early = shape.now()
    shape.extend(entries(8, 2, 3))
    assert (early.count, shape.now().count, shape.last_index) == (3, 5, 9)
    assert shape.now().sizes is early.sizes, "shared as long as it only grows"
    shape.extend(entries(7, 4))
    assert shape.now().runs == ((5, 1), (7, 4))
    assert early.sizes[: early.count].tolist() == [17, 18, 19]
    shape.drop(5)
    assert (shape.now().first_index, shape.now().runs) == (6, ((6, 1), (7, 4)))
    shape.drop(7)
    assert (shape.now().count, shape.last_index) == (0, 7)
    shape.extend(entries(8, 4))
    assert (shape.now().count, shape.now().runs[-1][1]) == (1, 4)


# ---- files that are none


def small() -> bytes:
    trio = Trio()
    a_life(trio)
    return file_of(trio.ring)


def refused(data: bytes) -> str:
    with pytest.raises(NotStepsError) as caught:
        list(retaken(MACHINE, steps_of(data, "raft/c-0.jsonl"), "raft/c-0.jsonl"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: b"", "holds no steps"),
        (lambda data: b"\xff\xfe\n", "holds no steps"),
        (lambda data: data.replace(b'"format":1', b'"format":9', 1), "has format 9"),
        (lambda data: data[: len(data) // 2], "is cut off"),
        (lambda data: data.rsplit(b"\n", 2)[0], "is cut off"),
        (lambda data: data.replace(b'["tick"]', b'["tock"]', 1), "knows no input tock"),
        (lambda data: data.replace(b'["tick"]', b"[]", 1), "is no step"),
        (lambda data: data.replace(b'["tick"]', b"[", 1), "line "),
        (lambda data: data.replace(b'"Patience"', b'"Fury"'), "knows no Fury"),
        (lambda data: data.replace(b'"blank":', b'"plank":'), ""),
        (lambda data: data.replace(b'"runs":[', b'"runs":[[7,"x"],'), ""),
        (lambda data: data.replace(b'"log":0', b'"log":3'), "log of step"),
        (lambda data: data.replace(b'"inflight_max":64', b'"inflight_max":99999999'), "99999999"),
        (
            lambda data: data.replace(b'["tick"]', b'["tick",' + b"[" * 700 + b"]" * 700 + b"]", 1),
            "",
        ),
        (lambda data: data.replace(b'"held":0', b'"held":99999999999'), "cannot wait"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_file_is_refused_in_a_sentence(spoil: Callable[[bytes], bytes], says: str) -> None:
    data = small()
    spoilt = spoil(data)
    assert spoilt != data
    assert says in refused(spoilt)


def test_rotten_bytes_are_refused_or_differ_and_nothing_else() -> None:
    data, rng = bytearray(small()), Random(7)
    for _ in range(300):
        spoilt = bytearray(data)
        spoilt[rng.randrange(len(data))] = rng.randrange(32, 127)
        with contextlib.suppress(NotStepsError):
            assert all(one.number > 0 for one in differences(steps_of(bytes(spoilt), "file")))
