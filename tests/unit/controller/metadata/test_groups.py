"""Ids, registrations, declarations and removals."""

import pytest
from gantry_controller.metadata.events import CreateTopic, DeleteTopic, ForgetMember, RemoveGroup
from gantry_controller.metadata.groups import MEMBERS_MAX
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId
from msgspec.structs import replace
from support.metadata_world import CLUSTER, NAME, World, address, incarnation, three_in_sync


def remove(world: World, uid: str = "u1") -> ResponseCode:
    return world.apply(RemoveGroup(cluster=CLUSTER, name=NAME, uid=uid)).code


class TestApplyBrokerId:
    def test_only_id_one_founds_an_unknown_group(self) -> None:
        world = World()
        refused = world.apply_id(2)
        assert refused.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        assert refused.remark == (
            f"Broker-set: {NAME} hasn't been registered in controller, "
            "but broker try to apply brokerId: 2"
        )
        assert world.apply_id(1).ok
        assert world.group.next_broker_id == 2

    def test_same_check_code_may_ask_again(self) -> None:
        world = World()
        world.apply_id(1, "h:1;77")
        again = world.apply_id(1, "h:1;77")
        assert (again.ok, again.changed, world.group.next_broker_id) == (True, False, 2)

    def test_loser_of_a_race_is_refused(self) -> None:
        world = World()
        world.apply_id(1, "h:1;77")
        lost = world.apply_id(1, "g:1;78")
        assert lost.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        assert lost.remark == f"Fail to apply brokerId: 1 in broker-set: {NAME}"
        assert [member.check_code for member in world.group.members] == ["h:1;77"]

    def test_address_is_the_text_before_the_first_semicolon(self) -> None:
        world = World()
        world.apply_id(1, "10.0.0.9:10911;1700;x")
        assert world.group.members[0].address == "10.0.0.9:10911"

    def test_cleaned_id_is_never_issued_again(self) -> None:
        world = three_in_sync()
        world.clean([2])
        assert world.apply_id(2, "new;1").code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        assert world.apply_id(4, "new;1").ok

    @pytest.mark.parametrize("broker_id", [0, -1, 2**53])
    def test_id_out_of_range(self, broker_id: int) -> None:
        world = World()
        world.apply_id(1)
        code = world.apply_id(broker_id, "x;1").code
        assert code == ResponseCode.CONTROLLER_BROKER_ID_INVALID

    def test_group_of_ghosts_must_be_cleaned(self) -> None:
        world = World()
        for broker_id in range(1, MEMBERS_MAX + 1):
            assert world.apply_id(broker_id, f"h:1;{broker_id}").ok
        full = world.apply_id(MEMBERS_MAX + 1, "h:1;0")
        assert full.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        assert full.remark is not None
        assert "clean" in full.remark


class TestRegister:
    def test_unknown_group_and_unknown_id(self) -> None:
        world = World()
        group = world.register(1)
        assert group.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert group.remark == f"Broker-set: {NAME} hasn't been registered in controller"
        world.apply_id(1)
        member = world.register(2)
        assert member.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert member.remark == f"BrokerId: 2 hasn't been registered in broker-set: {NAME}"

    def test_records_process_and_addresses(self) -> None:
        world = World()
        world.apply_id(1, "old:1;5")
        world.register(1)
        member = world.group.members[0]
        assert member.address == address(1)
        assert member.ha_address == "127.0.0.1:10912"
        assert (member.incarnation, member.pod_uid) == (incarnation(1), "pod-1")

    def test_repeated_registration_of_one_process_changes_nothing(self) -> None:
        world = World()
        world.join(1)
        again = world.register(1)
        assert (again.ok, again.changed) == (True, False)

    def test_each_start_of_a_broker_without_nonces_is_a_new_incarnation(self) -> None:
        world = World(own=False)
        world.join(1)
        first = world.group.members[0].incarnation
        world.register(1)
        assert world.group.members[0].incarnation not in ("", first)

    def test_broker_newer_than_the_controller_is_turned_away(self) -> None:
        world = three_in_sync()
        before = world.group
        behind = world.register(1, start=2, last_epoch=9)
        assert behind.code == ResponseCode.CONTROLLER_INVALID_REQUEST
        assert behind.remark is not None
        assert behind.remark.startswith("ControllerBehind: ")
        assert world.group == before

    def test_new_process_of_the_master_ends_its_mastership(self) -> None:
        world = three_in_sync()
        assert world.group.master_is_current
        world.register(1, start=2, last_epoch=1)
        assert world.group.master_id == 1
        assert not world.group.master_is_current


class TestDeclare:
    def test_is_idempotent(self) -> None:
        world = World()
        assert world.declare().changed
        assert not world.declare().changed

    def test_change_keeps_members_and_master(self) -> None:
        world = three_in_sync()
        before = world.group
        world.declare(5, 3, route="10.0.0.1:10911")
        group = world.group
        assert group.declaration is not None
        assert group.declaration.replicas == 5
        assert (group.members, group.master_epoch) == (before.members, before.master_epoch)

    def test_successor_adopts_a_retained_group(self) -> None:
        world = three_in_sync()
        assert world.declare(uid="u2").ok
        assert world.group.master_epoch == 1
        assert remove(world, "u1") == ResponseCode.CONTROLLER_INVALID_REQUEST
        assert not world.group.removed

    @pytest.mark.parametrize(("replicas", "minimum"), [(2, 3), (1, 0)])
    def test_impossible_minimum(self, replicas: int, minimum: int) -> None:
        world = World()
        refused = world.declare(replicas, minimum)
        assert refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST
        assert not world.state.groups


class TestRemove:
    def test_leaves_epochs_and_ids_behind(self) -> None:
        world = three_in_sync()
        world.elect(live=[2, 3])
        assert remove(world) == ResponseCode.SUCCESS
        tombstone = world.group
        assert tombstone.removed
        assert (tombstone.master_epoch, tombstone.next_broker_id) == (2, 4)
        assert tombstone.sync_state_set_epoch == 4
        assert world.state.find(CLUSTER, NAME) is None
        assert world.state.find(None, NAME) is None

    def test_is_idempotent(self) -> None:
        world = three_in_sync()
        remove(world)
        assert remove(world) == ResponseCode.SUCCESS
        assert remove(World()) == ResponseCode.SUCCESS

    def test_late_declaration_of_the_removed_owner_is_refused(self) -> None:
        world = three_in_sync()
        remove(world)
        assert world.declare(uid="u1").code == ResponseCode.CONTROLLER_INVALID_REQUEST
        assert world.group.removed

    def test_next_life_begins_above_the_old_one(self) -> None:
        world = three_in_sync()
        remove(world)
        world.declare(1, 1, uid="u2")
        assert not world.group.had_master
        assert world.apply_id(1).code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        world.join(4)
        assert world.elect(4, live=[4]).ok
        assert (world.group.master_epoch, world.group.sync_state_set_epoch) == (2, 4)
        assert world.group.clean

    def test_java_broker_may_found_it_anew_with_the_next_id(self) -> None:
        world = three_in_sync(own=False)
        world.clean(living=True)
        assert world.apply_id(1, "x;1").code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        assert world.apply_id(4, "x;1").ok
        assert world.group.base_epoch == 1


class TestRetire:
    def test_keeps_everything_as_it_was(self) -> None:
        world = three_in_sync()
        before = world.group
        assert world.retire().changed
        assert world.group.retired
        assert replace(world.group, retired=False, changed_index=before.changed_index) == before

    def test_is_idempotent_and_for_the_owner_only(self) -> None:
        world = three_in_sync()
        assert world.retire("u2").code == ResponseCode.CONTROLLER_INVALID_REQUEST
        assert not world.group.retired
        world.retire()
        assert not world.retire().changed

    @pytest.mark.parametrize("uid", ["u1", "u2"])
    def test_a_declaration_brings_it_back(self, uid: str) -> None:
        """Also the same owner's: somebody may have taken it for gone by mistake."""
        world = three_in_sync()
        before = world.group
        world.retire()
        assert world.declare(uid=uid).changed
        assert not world.group.retired
        assert world.group.members == before.members
        assert world.group.sync_state_set == before.sync_state_set
        assert world.group.master_epoch == before.master_epoch

    def test_its_brokers_may_still_end_in_order(self) -> None:
        world = three_in_sync()
        world.retire()
        assert world.elect(2, live=[2, 3], designate=True).ok
        assert world.alter([2, 3], live=[2, 3]).ok or world.group.sync_state_set == (2, 3)

    def test_a_removal_ends_it(self) -> None:
        world = three_in_sync()
        world.retire()
        assert remove(world) == ResponseCode.SUCCESS
        assert world.group.removed
        assert not world.group.retired

    def test_topics_for_all_groups_pass_it_by_and_deletions_do_not(self) -> None:
        world = three_in_sync()
        config = Topic(4, 4, 6)
        create = CreateTopic(cluster=CLUSTER, name=NAME, topic="old", config=config)
        assert world.apply(create).ok
        world.retire()
        refused = world.apply(CreateTopic(cluster=CLUSTER, name="", topic="new", config=config))
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert not world.state.is_served("old")
        world.apply(DeleteTopic(cluster="", name="", topic="old"))
        assert not world.state.topic_table((CLUSTER, NAME)).topics


class TestForget:
    def world(self) -> World:
        """Brokers 1 and 2 are in sync; 3 is not."""
        world = three_in_sync()
        assert world.alter([1, 2], live=[1, 2]).ok
        return world

    def test_the_dead_outside_the_set_goes_and_nobody_else_gets_its_id(self) -> None:
        world = self.world()
        assert world.forget(3, live=[1, 2]).changed
        assert [one.broker_id for one in world.group.members] == [1, 2]
        assert world.group.sync_state_set == (1, 2)
        assert world.apply_id(3, "new;1").code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        assert not world.forget(3, live=[1, 2]).changed, "asked again"

    @pytest.mark.parametrize(
        ("broker_id", "live", "words"),
        [
            pytest.param(3, [1, 2, 3], "is alive", id="alive"),
            pytest.param(2, [1], "sync-state set", id="in-the-set"),
            pytest.param(1, [2], "sync-state set", id="master"),
            pytest.param(3, [], "only copy", id="nobody-of-the-set-lives"),
        ],
    )
    def test_who_is_kept(self, broker_id: int, live: list[int], words: str) -> None:
        world = self.world()
        refused = world.forget(broker_id, live=live)
        assert refused.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        assert words in (refused.remark or "")
        assert len(world.group.members) == 3

    def test_a_process_that_came_since_is_kept(self) -> None:
        world = self.world()
        world.register(3, start=2)
        assert "registered since" in (world.forget(3, live=[1, 2]).remark or "")

    def test_nobody_is_struck_from_an_unknown_group(self) -> None:
        code = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        world = World()
        event = ForgetMember(cluster=CLUSTER, name=NAME, broker_id=BrokerId(1))
        assert world.apply(event).code == code


class TestClean:
    def test_master_struck_out_is_no_longer_recorded(self) -> None:
        world = three_in_sync()
        assert world.clean([1]).ok
        group = world.group
        assert (group.master_id, group.sync_state_set) == (None, (2, 3))
        assert (group.master_epoch, group.sync_state_set_epoch) == (1, 3)
        assert [member.broker_id for member in group.members] == [2, 3]

    def test_unknown_ids_change_nothing(self) -> None:
        world = three_in_sync()
        result = world.clean([7])
        assert (result.ok, result.changed) == (True, False)

    def test_struck_set_does_not_forget_the_other_brokers(self) -> None:
        """Upstream drops the set's table only, and the next application rebuilds the group."""
        world = three_in_sync()
        world.alter([1], live=[1])
        world.clean([1])
        assert [member.broker_id for member in world.group.members] == [2, 3]
        assert world.apply_id(4).ok
        assert [member.broker_id for member in world.group.members] == [2, 3, 4]

    def test_declared_group_survives_the_loss_of_all_members(self) -> None:
        world = three_in_sync()
        assert world.clean([1, 2, 3]).ok
        group = world.group
        assert not group.removed
        assert group.declaration is not None
        assert not group.had_master
        assert (group.master_epoch, group.next_broker_id) == (1, 4)

    def test_evidence_about_an_earlier_process_does_not_protect_the_dead(self) -> None:
        world = three_in_sync()
        evidence = world.alive([3])
        world.register(3, start=2, last_epoch=1)
        assert world.clean([3], live=[]).ok
        assert evidence[0].incarnation == incarnation(3)


class TestLookUp:
    def test_without_cluster_only_a_unique_name_is_found(self) -> None:
        world = three_in_sync()
        assert world.state.find(None, NAME) == world.group
        assert world.state.find("", NAME) == world.group
        world.state.put(type(world.group)("other", NAME))
        assert world.state.find(None, NAME) is None
        assert world.state.find("other", NAME) is not None

    def test_name_is_unique_again_after_a_removal(self) -> None:
        world = three_in_sync()
        world.state.put(type(world.group)("other", NAME))
        remove(world)
        found = world.state.find(None, NAME)
        assert found is not None
        assert found.cluster == "other"
