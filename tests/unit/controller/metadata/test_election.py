"""The election policy: who wins, with which set, and when nobody does."""

import pytest
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import Epoch, Offset
from support.metadata_world import World, incarnation, three_in_sync


class TestFirstElection:
    def test_waits_for_all_members(self) -> None:
        world = World()
        world.declare()
        world.join(1, 2)
        waiting = world.elect(1, live=[1, 2])
        assert waiting.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        assert waiting.remark is not None
        assert "waits for 3 members, 2 are alive" in waiting.remark
        assert not world.group.had_master

    def test_majority_is_enough_when_the_time_is_over(self) -> None:
        world = World()
        world.declare()
        world.join(1, 2)
        assert not world.elect(1, live=[1], waited=True).ok
        assert world.elect(1, live=[1, 2], waited=True).ok

    @pytest.mark.parametrize(("replicas", "enough"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
    def test_majority_of(self, replicas: int, enough: int) -> None:
        world = World()
        world.declare(replicas, 1)
        world.join(*range(1, replicas + 1))
        assert not world.elect(live=range(1, enough), waited=True).ok
        assert world.elect(live=range(1, enough + 1), waited=True).ok

    def test_takes_the_newest_log_and_not_the_asker(self) -> None:
        world = World()
        world.declare()
        world.join(1, 2, 3)
        live = [
            world.live(1, epoch=Epoch(0), max_offset=Offset(900)),
            world.live(2, epoch=Epoch(0), max_offset=Offset(950)),
            world.live(3, epoch=Epoch(-1), max_offset=Offset(999)),
        ]
        assert world.elect(1, live=live).ok
        assert (world.group.master_id, world.group.sync_state_set) == (2, (2,))
        assert (world.group.master_epoch, world.group.sync_state_set_epoch) == (1, 1)

    def test_designation_cannot_pass_over_the_newest_log(self) -> None:
        world = World()
        world.declare(2, 1)
        world.join(1, 2)
        live = [world.live(1, max_offset=Offset(1)), world.live(2, max_offset=Offset(2))]
        assert not world.elect(1, designate=True, live=live).ok
        assert world.elect(2, designate=True, live=live).ok

    def test_members_without_a_registration_do_not_count(self) -> None:
        world = World()
        world.declare(2, 1)
        world.join(1)
        world.apply_id(2)
        assert not world.elect(1, live=[1, 2]).ok

    def test_of_undeclared_group_goes_to_the_first_who_asks_without_liveness(self) -> None:
        world = World(own=False)
        world.join(1, 2)
        assert world.elect(2, live=[]).ok
        assert (world.group.master_id, world.group.sync_state_set) == (2, (2,))

    def test_of_undeclared_group_is_not_for_strangers_or_for_the_controller(self) -> None:
        """Upstream's first election accepts an id that nobody registered."""
        world = World(own=False)
        world.join(1)
        assert world.elect(9, live=[]).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        assert world.elect(live=[1]).code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE


class TestInTheSet:
    def test_unknown_group(self) -> None:
        unknown = World().elect(1, live=[])
        assert unknown.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert unknown.remark == "Broker hasn't been registered"

    def test_set_is_inherited_by_those_alive(self) -> None:
        world = three_in_sync()
        assert world.elect(live=[2, 3]).ok
        assert (world.group.master_id, world.group.sync_state_set) == (2, (2, 3))

    def test_nobody_outside_the_set_wins_however_far_it_got(self) -> None:
        world = three_in_sync()
        world.alter([1, 2], live=[1, 2, 3])
        ahead = world.live(3, epoch=Epoch(1), max_offset=Offset(10**12))
        assert not world.elect(live=[ahead]).ok
        assert not world.elect(3, live=[ahead]).ok
        assert not world.elect(3, designate=True, live=[2, ahead]).ok
        assert world.elect(live=[2, ahead]).ok
        assert (world.group.master_id, world.group.sync_state_set) == (2, (2,))

    def test_failure_changes_nothing(self) -> None:
        world = three_in_sync()
        before = world.group
        for _ in range(3):
            assert world.elect(live=[]).code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
        assert world.group == before

    def test_stale_epoch_is_fenced(self) -> None:
        world = three_in_sync()
        assert world.elect(2, designate=True, epoch=1, live=[1, 2, 3]).ok
        late = world.elect(3, designate=True, epoch=1, live=[1, 2, 3])
        assert late.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
        assert world.group.master_id == 2

    def test_connected_wins_over_merely_not_timed_out(self) -> None:
        world = three_in_sync()
        gone = world.live(2, epoch=Epoch(1), max_offset=Offset(99), connected=False)
        world.elect(live=[gone, 3])
        assert world.group.master_id == 3
        assert world.group.sync_state_set == (2, 3)

    def test_equal_candidates_go_by_the_lowest_id(self) -> None:
        world = three_in_sync()
        world.elect(live=[3, 2])
        assert world.group.master_id == 2


class TestDraining:
    def test_hand_over_leaves_the_departing_behind(self) -> None:
        world = three_in_sync()
        live = [world.live(1, draining=True), world.live(2), world.live(3)]
        assert world.elect(3, designate=True, epoch=1, live=live).ok
        assert (world.group.master_id, world.group.sync_state_set) == (3, (2, 3))

    def test_draining_member_is_not_eligible(self) -> None:
        world = three_in_sync()
        leaving = world.live(2, epoch=Epoch(1), max_offset=Offset(99), draining=True)
        assert not world.elect(2, designate=True, live=[leaving, 3]).ok
        assert world.elect(live=[leaving, 3]).ok
        assert world.group.master_id == 3

    def test_if_all_drain_one_of_them_may_serve(self) -> None:
        world = three_in_sync()
        live = [world.live(2, draining=True), world.live(3, draining=True)]
        assert world.elect(live=live).ok
        assert (world.group.master_id, world.group.sync_state_set) == (2, (2,))


class TestIncarnations:
    def test_restarted_master_is_not_kept_but_elected_anew(self) -> None:
        world = three_in_sync()
        world.register(1, start=2, last_epoch=1)
        only = world.live(1, epoch=Epoch(1), max_offset=Offset(10))
        assert world.elect(live=[only]).ok
        group = world.group
        assert (group.master_id, group.master_epoch) == (1, 2)
        assert group.master_incarnation == incarnation(1, 2)

    def test_survivor_may_win_over_the_restarted_master(self) -> None:
        world = three_in_sync()
        world.register(1, start=2, last_epoch=1)
        assert world.elect(live=[1, world.live(2, epoch=Epoch(1), max_offset=Offset(11))]).ok
        assert (world.group.master_id, world.group.sync_state_set) == (2, (1, 2))

    def test_evidence_about_an_earlier_process_does_not_count(self) -> None:
        world = three_in_sync()
        earlier = world.live(2, start=1)
        world.register(2, start=2, last_epoch=1)
        assert not world.elect(live=[earlier]).ok
        assert not world.elect(2, designate=True, live=[earlier]).ok

    def test_unsigned_evidence_about_a_broker_that_signs_does_not_count(self) -> None:
        world = three_in_sync()
        world.own = False
        assert not world.elect(live=[2, 3]).ok

    def test_request_of_an_unregistered_process_is_refused(self) -> None:
        world = three_in_sync()
        ghost = world.elect(2, signed=incarnation(2, 7), live=[2, 3])
        assert ghost.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert world.elect(2, signed=incarnation(2), live=[2, 3]).ok

    def test_designation_is_signed_by_the_asker_and_not_by_the_target(self) -> None:
        world = three_in_sync()
        assert world.elect(2, designate=True, signed=incarnation(1), live=[1, 2, 3]).ok


class TestLostSet:
    """An administrator struck every member of the set while others remain."""

    @staticmethod
    def world() -> World:
        world = three_in_sync()
        world.alter([1], live=[1])
        world.clean([1])
        return world

    def test_nobody_is_elected_unasked(self) -> None:
        world = self.world()
        assert not world.elect(live=[2, 3]).ok
        assert not world.elect(2, live=[2, 3]).ok
        assert world.group.clean

    def test_designation_by_name_goes_on_and_is_remembered(self) -> None:
        world = self.world()
        assert world.elect(3, designate=True, live=[2, 3]).ok
        assert (world.group.master_id, world.group.sync_state_set) == (3, (3,))
        assert not world.group.clean
        world.alter([2, 3], live=[2, 3])
        world.elect(live=[2])
        assert not world.group.clean

    def test_dead_member_cannot_be_designated(self) -> None:
        assert not self.world().elect(3, designate=True, live=[2]).ok
