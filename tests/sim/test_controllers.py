"""Seeds of the controllers' world, and bugs planted in it that must not survive."""

from __future__ import annotations

from functools import cache

import pytest
from gantry_controller.metadata import election, groups, mastership
from gantry_controller.metadata.election import Decision
from gantry_controller.metadata.events import ElectMaster, LiveMember, RegisterBroker
from gantry_controller.metadata.state import BrokerGroup, Floor, MetadataState
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId
from msgspec.structs import replace
from sim.controller_world import ControllerWorld
from sim.controllers import SimController
from sim.kernel.world import MS, SECOND

SEEDS = range(40)
SEEDS_PER_BUG = 60


def run(seed: int, seconds: float = 15) -> ControllerWorld:
    world = ControllerWorld(seed)
    world.run_seed(seconds)
    return world


def calm(seed: int) -> ControllerWorld:
    """Without faults, come to rest."""
    world = ControllerWorld(seed, swarm=False)
    world.boot()
    world.require_progress()
    return world


@cache
def outcome(seed: int) -> tuple[int, dict[str, int]]:
    """Elections and rare events of a seed; a seed is run once, whoever asks."""
    world = run(seed)
    group = world.group()
    return 0 if group is None else group.master_epoch, world.world.counters


@pytest.mark.parametrize("seed", SEEDS)
def test_rules_of_mastership_hold(seed: int) -> None:
    outcome(seed)


def test_equal_seeds_are_equal_runs() -> None:
    assert run(7, 5).world.trace_hash == run(7, 5).world.trace_hash


def test_the_seeds_reach_what_they_are_for() -> None:
    outcomes = [outcome(seed) for seed in SEEDS]
    assert sum(epochs for epochs, _ in outcomes) > 2 * len(SEEDS)
    assert {name for _, counters in outcomes for name in counters} >= {
        "election.first election",
        "election.refused",
        "election.replaced",
        "election.silent",
        "fault.drain",
        "fault.pause",
        "fault.power_cut_all",
        "raft.quorum-lost",
    }


def elected_after(world: ControllerWorld, within_ms: int) -> bool:
    group = world.group()
    epoch = 0 if group is None else group.master_epoch

    def higher() -> bool:
        now = world.group()
        return now is not None and now.master_epoch > epoch

    return world.world.run(for_us=within_ms * MS, until=higher)


@pytest.mark.parametrize("seed", range(5))
def test_killed_master_is_replaced_in_a_fifth_of_a_second(seed: int) -> None:
    world = calm(seed)
    group = world.group()
    assert group is not None
    assert group.master is not None
    world.network.machines[group.master.address].kill()
    assert elected_after(world, 200)


@pytest.mark.parametrize("seed", range(5))
def test_master_without_power_is_replaced_after_its_time_out(seed: int) -> None:
    world = calm(seed)
    group = world.group()
    assert group is not None
    assert group.master is not None
    world.network.isolate(group.master.address)
    assert not elected_after(world, 2_000)
    assert elected_after(world, 1_000)


@pytest.mark.parametrize("seed", range(5))
def test_master_and_leader_killed_together(seed: int) -> None:
    world = calm(seed)
    leader, group = world.leader(), world.group()
    assert leader is not None
    assert group is not None
    assert group.master is not None
    world.network.machines[leader.host.name].kill()
    world.network.machines[group.master.address].kill()
    epoch = group.master_epoch

    def replaced() -> bool:
        now = world.group()
        return now is not None and now.master_epoch > epoch

    assert world.world.run(for_us=2 * SECOND, until=replaced)


# ---- planted bugs


def first_violation(seeds: int = SEEDS_PER_BUG) -> str:
    """What the seeds find first; empty if they find nothing."""
    for seed in range(seeds):
        try:
            run(seed)
        except AssertionError as violation:
            return str(violation)
    return ""


def test_election_outside_the_set_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = election._election_in_the_set

    def unclean(
        group: BrokerGroup,
        request: ElectMaster,
        live: dict[BrokerId, LiveMember],
        floor: Floor | None,
    ) -> Decision:
        everybody = tuple(sorted(live)) or group.sync_state_set
        return plain(replace(group, sync_state_set=everybody), request, live, floor)

    monkeypatch.setattr(election, "_election_in_the_set", unclean)
    assert "inside:" in first_violation()


def test_unchecked_set_epoch_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = mastership._refuse_alteration

    def unchecked(group, event, new_set):  # type: ignore[no-untyped-def]  # as the original
        refusal = plain(group, event, new_set)
        if refusal is not None and refusal[0] in (
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ):
            return None
        return refusal

    monkeypatch.setattr(mastership, "_refuse_alteration", unchecked)
    assert "cas:" in first_violation()


def test_apply_that_differs_between_replicas_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = groups.register_broker

    def different(state: MetadataState, event: RegisterBroker):  # type: ignore[no-untyped-def]  # as the original
        return plain(state, replace(event, pod_uid=str(id(state))))

    monkeypatch.setattr("gantry_controller.metadata.apply.register_broker", different)
    assert "equal:" in first_violation()


def test_reads_without_the_quorum_die(monkeypatch: pytest.MonkeyPatch) -> None:
    def local(_self, done):  # type: ignore[no-untyped-def]  # as the original
        done()

    def anybody(self, link, request):  # type: ignore[no-untyped-def]  # as the original
        if request.event is None:
            self._serve(request, lambda reply: self._tcp.send(link, reply))
        else:
            plain(self, link, request)

    plain = SimController._serve_or_pass_on
    monkeypatch.setattr(SimController, "read", local)
    monkeypatch.setattr(SimController, "_serve_or_pass_on", anybody)
    assert "fresh:" in first_violation()


def test_mastership_that_outlives_its_process_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        BrokerGroup, "master_is_current", property(lambda group: group.master is not None)
    )
    assert "progress" in first_violation()
