"""Every code as a Java broker or mqadmin sends it, and the exact answer.

The requests are golden vectors of the 5.3.3 classes; bodies are compared as bytes where Java reads
them unchecked.
"""

import json

import pytest
from gantry_controller.metadata.events import DeclareGroup, FenceMember, encode_event
from gantry_controller.remoting.replies import role_change
from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import BrokerId
from support.controller_dispatcher import CLUSTER, NAME, Harness, address

GROUP = {"clusterName": CLUSTER, "brokerName": NAME}


async def three_in_sync(harness: Harness) -> None:
    for broker_id in (1, 2, 3):
        harness.join(broker_id)
        harness.heartbeat(broker_id)
    assert harness.elect(1).code == 0
    body = b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":1}'
    assert harness.alter(1, 1, body).code == 0


class TestHeartbeat:
    async def test_golden_vector_of_java(self, harness: Harness) -> None:
        golden = {
            "brokerId": "1",
            "electionPriority": "2147483647",
            "confirmOffset": "90",
            "heartbeatTimeoutMills": "10000",
            "clusterName": CLUSTER,
            "brokerAddr": "127.0.0.1:10911",
            "epoch": "2",
            "maxOffset": "100",
            "brokerName": NAME,
        }
        answer = harness.call(904, golden, connection=5)
        assert (answer.code, answer.remark) == (0, "Heart beat success")
        row = harness.row(1)
        assert (row.beat.epoch, row.beat.max_offset, row.beat.confirm_offset) == (2, 100, 90)
        assert (row.beat.timeout_s, row.connection) == (10.0, 5)

    async def test_without_an_id(self, harness: Harness) -> None:
        answer = harness.call(904, {**GROUP, "brokerAddr": "h:1"})
        assert answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST
        assert answer.remark == "Heart beat with empty brokerId"

    async def test_extension_fields(self, harness: Harness) -> None:
        harness.heartbeat(1, draining="true", incarnation="ab", podUid="p", logStart="7")
        row = harness.row(1)
        assert (row.beat.draining, row.beat.incarnation, row.beat.pod_uid) == (True, "ab", "p")

    async def test_defaults_and_bounds(self, harness: Harness) -> None:
        harness.call(904, {**GROUP, "brokerAddr": "h:1", "brokerId": "1"})
        harness.call(
            904, {**GROUP, "brokerAddr": "h:1", "brokerId": "2", "heartbeatTimeoutMills": "-5"}
        )
        first = harness.row(1).beat
        assert (first.epoch, first.max_offset, first.timeout_s) == (-1, -1, 10.0)
        assert harness.row(2).beat.timeout_s == 0.1

    async def test_is_taken_by_a_node_that_does_not_lead(self, harness: Harness) -> None:
        harness.quorum.follow(2)
        harness.heartbeat(1)
        assert harness.row(1).connected
        assert harness.forwarder.passed_on == []


class TestIds:
    async def test_next_id_of_an_unknown_group_is_one_and_reserves_nothing(
        self, harness: Harness
    ) -> None:
        for _ in range(2):
            answer = harness.call(1012, GROUP)
            assert (answer.code, answer.ext) == (0, {**GROUP, "nextBrokerId": "1"})

    async def test_application_echoes_on_success_and_failure(self, harness: Harness) -> None:
        ext = {**GROUP, "appliedBrokerId": "1", "registerCheckCode": "127.0.0.1:10911;17"}
        assert (harness.call(1013, ext).code, harness.call(1013, ext).ext) == (0, GROUP)
        loser = harness.call(1013, {**ext, "registerCheckCode": "127.0.0.9:10911;18"})
        assert (loser.code, loser.ext) == (ResponseCode.CONTROLLER_BROKER_ID_INVALID, GROUP)
        assert loser.remark == f"Fail to apply brokerId: 1 in broker-set: {NAME}"
        assert harness.call(1012, GROUP).ext == {**GROUP, "nextBrokerId": "2"}
        assert harness.group.members[0].address == "127.0.0.1:10911"

    async def test_next_id_is_a_linearizable_read(self, harness: Harness) -> None:
        harness.quorum.holding = True
        answers = harness.ask(1012, GROUP)
        assert answers == []
        harness.quorum.release()
        assert answers[0].code == 0
        assert harness.quorum.reads == 1


class TestRegister:
    async def test_without_a_master_names_none_and_has_a_body(self, harness: Harness) -> None:
        answer = harness.join(1)
        assert answer.code == 0
        assert answer.ext is not None
        assert not [key for key in answer.ext if key.startswith("master")]
        assert answer.ext.keys() >= {"clusterName", "brokerName"}
        assert "syncStateSetEpoch" not in answer.ext
        assert answer.body == b'{"syncStateSet":[],"syncStateSetEpoch":0}'

    async def test_names_the_master_in_all_four_fields(self, harness: Harness) -> None:
        await three_in_sync(harness)
        answer = harness.register(2)
        assert answer.ext is not None
        assert answer.ext.items() >= {
            ("masterBrokerId", "1"),
            ("masterAddress", address(1)),
            ("masterEpoch", "1"),
            ("syncStateSetEpoch", "2"),
        }
        assert answer.body == b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":2}'

    async def test_restarted_master_is_not_told_that_it_is_one(self, harness: Harness) -> None:
        await three_in_sync(harness)
        answer = harness.register(1)
        assert answer.code == 0
        assert answer.ext is not None
        assert not [key for key in answer.ext if key.startswith("master")]
        assert answer.body == b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":2}'

    async def test_unknown_group_echoes(self, harness: Harness) -> None:
        answer = harness.register(1)
        assert answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert answer.ext == GROUP

    async def test_extension_fields(self, harness: Harness) -> None:
        harness.apply(
            DeclareGroup(cluster=CLUSTER, name=NAME, uid="u1", replicas=1, min_in_sync_replicas=1)
        )
        answer = harness.join(1, incarnation="ab", podUid="p1", haPort="10912", maxOffset="77")
        assert answer.ext is not None
        assert answer.ext.items() >= {
            ("replicas", "1"),
            ("minInSyncReplicas", "1"),
            ("topicsVersion", "0"),
            ("groupUid", "u1"),
        }
        member = harness.group.members[0]
        assert (member.incarnation, member.pod_uid) == ("ab", "p1")
        assert member.ha_address == "127.0.0.1:10912"
        row = harness.row(1)
        assert (row.beat.max_offset, row.connection) == (77, 1)

    async def test_controller_behind(self, harness: Harness) -> None:
        harness.join(1)
        answer = harness.register(1, incarnation="x", lastEpoch="5")
        assert answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST
        assert answer.remark is not None
        assert "ControllerBehind" in answer.remark

    async def test_an_id_is_of_one_volume(self, harness: Harness) -> None:
        """A broker that does not say for what its volume was given the id is believed."""
        code = harness.join(1, incarnation="ab") and harness.group.members[0].check_code
        answer = harness.register(1, incarnation="cd", registerCheckCode=f"{code}0")
        assert answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert answer.ext == GROUP
        assert answer.remark is not None
        assert "another volume" in answer.remark
        assert harness.group.members[0].incarnation == "ab"
        assert harness.register(1, incarnation="cd", registerCheckCode=code).code == 0
        assert harness.register(1, incarnation="ef").code == 0
        assert harness.group.members[0].incarnation == "ef"

    async def test_address_is_replaced(self, harness: Harness) -> None:
        harness.join(1)
        harness.register(1, brokerAddress="10.9.9.9:10911")
        assert harness.group.members[0].address == "10.9.9.9:10911"


class TestElect:
    async def test_golden_vector_of_a_broker(self, harness: Harness) -> None:
        harness.join(1)
        harness.join(2)
        golden = {
            "brokerId": "2",
            "invokeTime": "1700000000000",
            "clusterName": CLUSTER,
            "designateElect": "false",
            "brokerName": NAME,
        }
        answer = harness.call(1002, golden)
        assert answer.code == 0
        assert answer.ext is not None
        assert answer.ext.items() >= {
            ("masterBrokerId", "2"),
            ("masterAddress", address(2)),
            ("masterEpoch", "1"),
            ("syncStateSetEpoch", "1"),
        }
        assert json.loads(answer.body) == {
            "brokerMemberGroup": {
                "brokerAddrs": {"1": address(1), "2": address(2)},
                "brokerName": NAME,
                "cluster": CLUSTER,
            },
            "syncStateSet": [2],
        }

    async def test_living_master_is_named_with_a_body(self, harness: Harness) -> None:
        await three_in_sync(harness)
        answer = harness.elect(2)
        assert answer.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        assert answer.ext is not None
        assert answer.ext.items() >= {
            ("masterBrokerId", "1"),
            ("masterAddress", address(1)),
            ("masterEpoch", "1"),
            ("syncStateSetEpoch", "2"),
        }
        assert answer.body == b'{"syncStateSet":[1,2,3]}'

    async def test_unknown_group(self, harness: Harness) -> None:
        answer = harness.elect(1)
        assert answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert (answer.ext, answer.body) == ({}, b"")

    async def test_administrator_without_incarnations(self, harness: Harness) -> None:
        await three_in_sync(harness)
        assert harness.elect(3, designateElect="true").code == 0
        assert (harness.group.master_id, harness.group.sync_state_set) == (3, (1, 2, 3))
        assert harness.elect(9, designateElect="true").code == (
            ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        )

    async def test_hand_over_compares_the_epoch(self, harness: Harness) -> None:
        await three_in_sync(harness)
        ext = {"designateElect": "true", "masterEpoch": "1"}
        assert harness.elect(2, **ext).code == 0
        late = harness.elect(3, **ext)
        assert late.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
        assert late.ext == {}

    async def test_master_that_a_new_leader_has_not_heard_yet_is_kept(
        self, harness: Harness
    ) -> None:
        await three_in_sync(harness)
        harness.watchman.table.pass_time(float("inf"), 100)
        harness.watchman.role_changed(leading=False)
        harness.watchman.role_changed(leading=True)
        harness.heartbeat(2)
        assert harness.elect(2).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        assert harness.group.master_id == 1

    async def test_asking_survivor_needs_no_heartbeat(self, harness: Harness) -> None:
        """1002 may overtake the first heartbeat of a process (seen on the wire)."""
        await three_in_sync(harness)
        assert harness.alter(1, 1, b'{"syncStateSet":[1],"syncStateSetEpoch":2}').code == 0
        harness.watchman.table.pass_time(float("inf"), 100)
        harness.register(1)
        assert harness.elect(1).code == 0
        assert harness.group.master_epoch == 2


class TestAlter:
    async def test_success_and_its_body(self, harness: Harness) -> None:
        await three_in_sync(harness)
        answer = harness.alter(1, 1, b'{"syncStateSet":[2,1],"syncStateSetEpoch":2}')
        assert (answer.code, answer.ext) == (0, {"newSyncStateSetEpoch": "3"})
        assert answer.body == b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}'

    async def test_failure_carries_epoch_zero_and_no_body(self, harness: Harness) -> None:
        await three_in_sync(harness)
        answer = harness.alter(1, 9, b'{"syncStateSet":[1],"syncStateSetEpoch":2}')
        assert answer.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
        assert (answer.ext, answer.body) == ({"newSyncStateSetEpoch": "0"}, b"")

    async def test_dead_member(self, harness: Harness) -> None:
        await three_in_sync(harness)
        harness.alter(1, 1, b'{"syncStateSet":[1],"syncStateSetEpoch":2}')
        harness.watchman.table.pass_time(float("inf"), 100)
        harness.heartbeat(1)
        answer = harness.alter(1, 1, b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}')
        assert answer.code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{}",
            b"{",
            b'{"syncStateSet":"x"}',
            b'{"syncStateSet":[' + b"1," * 2000 + b"1]}",
            b'{"syncStateSet":[99999999999999999999999999]}',
        ],
    )
    async def test_unreadable_body_is_an_error_and_changes_nothing(
        self, harness: Harness, body: bytes
    ) -> None:
        await three_in_sync(harness)
        before = harness.group
        with pytest.raises(Exception, match=r"."):  # the server answers code 1 with the text
            harness.alter(1, 1, body)
        assert harness.group == before
        assert not harness.dispatcher._open


class TestReplicaInfo:
    async def test_unknown(self, harness: Harness) -> None:
        answer = harness.call(1004, {"brokerName": NAME})
        assert answer.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
        assert (answer.remark, answer.ext) == ("Broker metadata is not existed", {})

    async def test_before_the_first_election_epoch_zero_is_there(self, harness: Harness) -> None:
        harness.join(1)
        answer = harness.call(1004, {"brokerName": NAME})
        assert answer.ext is not None
        assert answer.ext["masterEpoch"] == "0"
        assert "masterBrokerId" not in answer.ext
        assert answer.body == b'{"syncStateSet":[],"syncStateSetEpoch":0}'

    async def test_process_that_is_not_the_registered_one_is_told(self, harness: Harness) -> None:
        """A late registration of its predecessor may have come after its own."""
        harness.join(1, incarnation="new")
        harness.register(1, incarnation="old")
        asking = {**GROUP, "brokerId": "1", "incarnation": "new"}
        answer = harness.call(1004, asking)
        assert answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        assert harness.call(1004, {**asking, "incarnation": "old"}).code == 0
        assert harness.call(1004, {**asking, "brokerId": "9"}).code == answer.code
        harness.register(1, incarnation="new")
        assert harness.call(1004, asking).code == 0

    async def test_master_and_extensions(self, harness: Harness) -> None:
        for broker_id in (1, 2):
            harness.join(broker_id, incarnation=f"i{broker_id}", haPort="10912")
        harness.elect(1, incarnation="i1")
        harness.heartbeat(2, incarnation="i2", draining="true")
        answer = harness.call(1004, GROUP)
        assert answer.ext is not None
        assert answer.ext.items() >= {
            ("masterEpoch", "1"),
            ("masterBrokerId", "1"),
            ("masterAddress", address(1)),
            ("masterIncarnation", "i1"),
            ("masterHaAddress", "127.0.0.1:10912"),
            ("drainingIds", "2"),
            ("topicsVersion", "0"),
        }
        assert answer.body == b'{"syncStateSet":[1],"syncStateSetEpoch":1}'


class TestFenced:
    async def test_every_answer_about_the_group_names_who_is_fenced(self, harness: Harness) -> None:
        await three_in_sync(harness)
        group = harness.machine.state.groups[CLUSTER, NAME]
        assert "fencedIds" not in (role_change(group).ext or {}), "Java brokers see nothing new"
        event = FenceMember(
            cluster=CLUSTER,
            name=NAME,
            broker_id=BrokerId(3),
            fenced=True,
            live=harness.watchman.live_members(group),
        )
        result = harness.quorum._apply(encode_event(event))
        assert result.group is not None
        answers = [harness.call(1004, GROUP), harness.register(2), harness.elect(1)]
        answers.append(role_change(result.group))
        assert [(one.ext or {}).get("fencedIds") for one in answers] == 4 * ["3"]


class TestAdmin:
    async def test_metadata(self, harness: Harness) -> None:
        harness.quorum.follow(None)
        assert harness.call(1005).ext == {
            "group": "g",
            "isLeader": "true",
            "peers": "n1:h:1;",
            "controllerLeaderId": "n1",
            "controllerLeaderAddress": "h:1",
        }

    async def test_sync_state_data(self, harness: Harness) -> None:
        await three_in_sync(harness)
        harness.alter(1, 1, b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}')
        answer = harness.call(1006, body=b'["broker-a","unknown"]')
        assert json.loads(answer.body) == {
            "replicasInfoTable": {
                NAME: {
                    "masterEpoch": 1,
                    "syncStateSetEpoch": 3,
                    "masterBrokerId": 1,
                    "masterAddress": address(1),
                    "inSyncReplicas": [
                        {
                            "brokerName": NAME,
                            "brokerId": one,
                            "brokerAddress": address(one),
                            "alive": True,
                        }
                        for one in (1, 2)
                    ],
                    "notInSyncReplicas": [
                        {
                            "brokerName": NAME,
                            "brokerId": 3,
                            "brokerAddress": address(3),
                            "alive": True,
                        }
                    ],
                }
            }
        }

    @pytest.mark.parametrize("body", [b"", b"[]"])
    async def test_sync_state_data_of_nothing(self, harness: Harness, body: bytes) -> None:
        answer = harness.call(1006, body=body)
        assert (answer.code, answer.remark) == (1, "not set any response code")

    @pytest.mark.parametrize("key", ["configStorePath", "rocketmqHome", "configBlackList"])
    async def test_update_config_black_list(self, harness: Harness, key: str) -> None:
        answer = harness.call(1009, body=f"{key}=x\n".encode())
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "Can not update config in black list."

    @pytest.mark.parametrize(
        ("body", "told"),
        [
            ("enableElectUncleanMaster=true", "'enableElectUncleanMaster' does not change while"),
            ("notifyBrokerRoleChanged=maybe", "is true or false, not 'maybe'"),
            ("notifyBrokerRoleChanged=false\nrocketmqHome=x", "Can not update config in black"),
            ("notifyBrokerRoleChanged=false\nunknown=1", "what does is: notifyBrokerRoleChanged"),
        ],
    )
    async def test_update_config_takes_all_or_nothing(
        self, harness: Harness, body: str, told: str
    ) -> None:
        answer = harness.call(1009, body=body.encode())
        assert answer.code == ResponseCode.NO_PERMISSION
        assert told in (answer.remark or "")
        assert b"notifyBrokerRoleChanged=true\n" in harness.call(1010).body

    async def test_update_config_is_seen_in_the_listing(self, harness: Harness) -> None:
        assert harness.call(1009, body=b"# mqadmin\nnotifyBrokerRoleChanged=false\n").code == 0
        listed = b"bind=127.0.0.1\nname=controller-0\nnotifyBrokerRoleChanged=false\n"
        assert harness.call(1010).body == listed

    async def test_clean(self, harness: Harness) -> None:
        await three_in_sync(harness)
        golden = {
            "brokerControllerIdsToClean": "1;2",
            "isCleanLivingBroker": "false",
            "invokeTime": "1",
            **GROUP,
        }
        answer = harness.call(1011, golden)
        assert answer.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        assert answer.remark == f"Broker [{NAME},  1] is still alive, clean up failure"
        garbled = harness.call(1011, {**golden, "brokerControllerIdsToClean": "1;x"})
        assert garbled.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        assert garbled.remark is not None
        assert "brokerControllerIdsToClean" in garbled.remark
        every = {**golden, "brokerControllerIdsToClean": "", "isCleanLivingBroker": "true"}
        for living in ("", "1", "1=another;2=another;3=another", "1=#1;2=#1"):
            answer = harness.call(1011, {**every, "gantryLiving": living})
            assert answer.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
            assert "is still alive" in (answer.remark or "")
        named = ";".join(f"{one.broker_id}={one.incarnation}" for one in harness.group.members)
        assert harness.call(1011, {**every, "gantryLiving": named}).code == 0
        assert harness.group.removed

    async def test_who_lives_without_a_master_is_not_struck_with_the_whole_group(
        self, harness: Harness
    ) -> None:
        """A group may be asked to be cleaned as a whole while nobody leads it."""
        for number in (1, 2):
            harness.join(number)
            harness.heartbeat(number)
        before = harness.group
        assert before.master_id is None
        for living in ("false", "true"):
            answer = harness.call(1011, {**GROUP, "isCleanLivingBroker": living})
            assert answer.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        assert harness.group == before

    async def test_a_new_leader_does_not_strike_whom_it_has_not_heard_yet(
        self, harness: Harness
    ) -> None:
        await three_in_sync(harness)
        harness.watchman.table.pass_time(float("inf"), 100)
        harness.watchman.role_changed(leading=False)
        harness.watchman.role_changed(leading=True)
        before = harness.group
        for ids in ("1", "2", "1;2;3"):
            answer = harness.call(1011, {**GROUP, "brokerControllerIdsToClean": ids})
            assert answer.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        assert harness.group == before

    @pytest.mark.parametrize("code", [1007, 1008, 1014, 1015, 1016, 1018, 9999])
    async def test_other_codes(self, harness: Harness, code: int) -> None:
        answer = harness.call(code)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {code} not supported"


class TestTopics:
    async def test_create_list_delete(self, harness: Harness) -> None:
        harness.join(1)
        create = {
            "topic": "Orders",
            "readQueueNums": "4",
            "writeQueueNums": "8",
            "perm": "6",
            **GROUP,
        }
        assert harness.call(17, create).ext == {"topicsVersion": "1"}
        table = json.loads(harness.call(21, GROUP).body)
        assert table["topicsVersion"] == 1
        assert table["topicConfigTable"]["Orders"]["writeQueueNums"] == 8
        assert harness.call(1004, GROUP).ext["topicsVersion"] == "1"  # type: ignore[index]  # is there
        late = {**create, "writeQueueNums": "4", "ifAbsent": "true"}
        assert harness.call(17, late).ext == {"topicsVersion": "1"}
        table = json.loads(harness.call(21, GROUP).body)
        assert table["topicConfigTable"]["Orders"]["writeQueueNums"] == 8
        assert harness.call(215, {"topic": "Orders", **GROUP}).ext == {"topicsVersion": "2"}
        assert json.loads(harness.call(21, GROUP).body)["topicConfigTable"] == {}

    async def test_of_unknown_group(self, harness: Harness) -> None:
        assert harness.call(21, GROUP).code == ResponseCode.SYSTEM_ERROR
