"""The name service's answers, byte for byte where clients split them by hand."""

import asyncio
import json

import msgspec
import pytest
from gantry_controller.metadata.events import (
    DeclareFronts,
    DeclareGroup,
    DrainGroup,
    RemoveFronts,
    RetireGroup,
)
from gantry_controller.nameserver import imports
from gantry_controller.nameserver.imports import Imports
from gantry_protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    SyncStateSetBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    encode_body,
    encode_registration,
)
from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.records import masked_crc
from gantry_protocol.types import BrokerId, Epoch
from support.controller_dispatcher import CLUSTER, NAME, Harness, address

ROUTE = "10.96.0.7:10911"


def declare(harness: Harness, route: str | None = ROUTE, uid: str = "u1") -> None:
    harness.apply(
        DeclareGroup(
            cluster=CLUSTER,
            name=NAME,
            uid=uid,
            replicas=2,
            min_in_sync_replicas=1,
            route_address=route,
        )
    )


def start(harness: Harness, route: str | None = ROUTE) -> None:
    """A declared group of two with master 1 and the topic ``Orders``."""
    declare(harness, route)
    for broker_id in (1, 2):
        harness.join(broker_id, incarnation=f"i{broker_id}")
    assert harness.elect(1).code == 0
    create = {"topic": "Orders", "readQueueNums": "4", "writeQueueNums": "8", "perm": "6"}
    assert harness.call(17, {**create, "clusterName": CLUSTER}).code == 0


def route(harness: Harness, topic: str) -> RemotingCommand:
    return harness.call(105, {"topic": topic})


def addresses(harness: Harness, topic: str) -> dict[str, str]:
    (broker,) = msgspec.json.decode(route(harness, topic).body)["brokerDatas"]
    return broker["brokerAddrs"]


def set_in_sync(harness: Harness, epoch: int, *members: int) -> None:
    body = encode_body(SyncStateSetBody([BrokerId(item) for item in members], Epoch(epoch)))
    assert harness.alter(1, 1, body).code == 0


def ask_for_readers(harness: Harness, topic: str, readers: str) -> RemotingCommand:
    change = {"topic": topic, "readQueueNums": "4", "writeQueueNums": "8", "perm": "6"}
    attributes = {"attributes": f"+gantry.readers={readers}", "clusterName": CLUSTER}
    return harness.call(17, {**change, **attributes})


class TestRoute:
    async def test_is_compact_with_quoted_ids(self, harness: Harness) -> None:
        start(harness)
        answer = route(harness, "Orders")
        assert answer.code == 0
        assert answer.body == (
            b'{"brokerDatas":[{"brokerAddrs":{"0":"10.96.0.7:10911"},"brokerName":"broker-a",'
            b'"cluster":"c"}],"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,'
            b'"writeQueueNums":8,"topicSysFlag":0}],"filterServerTable":{}}'
        )

    async def test_names_the_readers_once_a_topic_asks_for_some(self, harness: Harness) -> None:
        """In the route of every topic: clients keep one list of addresses for a broker."""
        start(harness)
        set_in_sync(harness, 1, 1, 2)
        assert addresses(harness, "Orders") == {"0": ROUTE}
        ask_for_readers(harness, "Orders", "2")
        for topic in ("Orders", "TBW102"):
            assert addresses(harness, topic) == {"0": ROUTE, "2": address(2)}
        ask_for_readers(harness, "Orders", "1")
        assert addresses(harness, "Orders") == {"0": ROUTE}

    async def test_names_no_reader_that_is_not_in_sync(self, harness: Harness) -> None:
        start(harness)
        ask_for_readers(harness, "Orders", "2")
        assert addresses(harness, "Orders") == {"0": ROUTE}
        set_in_sync(harness, 1, 1, 2)
        assert addresses(harness, "Orders") == {"0": ROUTE, "2": address(2)}
        set_in_sync(harness, 2, 1)
        assert addresses(harness, "Orders") == {"0": ROUTE}

    async def test_forgets_readers_with_their_last_topic(self, harness: Harness) -> None:
        start(harness)
        set_in_sync(harness, 1, 1, 2)
        create = {"topic": "Other", "readQueueNums": "4", "writeQueueNums": "8", "perm": "6"}
        assert harness.call(17, {**create, "clusterName": CLUSTER}).code == 0
        ask_for_readers(harness, "Other", "1;3=2")
        assert addresses(harness, "Orders") == {"0": ROUTE, "2": address(2)}
        assert harness.call(215, {"topic": "Other", "clusterName": CLUSTER}).code == 0
        assert addresses(harness, "Orders") == {"0": ROUTE}

    async def test_names_no_readers_behind_fronts(self, harness: Harness) -> None:
        start(harness)
        set_in_sync(harness, 1, 1, 2)
        ask_for_readers(harness, "Orders", "2")
        harness.apply(DeclareFronts(CLUSTER, "f", "front.example", 30000, 4))
        assert addresses(harness, "Orders") == {"0": "front.example:30000"}

    async def test_more_readers_than_members_are_refused(self, harness: Harness) -> None:
        start(harness)
        answer = ask_for_readers(harness, "Orders", "3")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark == (
            "Topic Orders: 3 members are to serve its reads, and broker-a has 2; ask for fewer, or"
            " add replicas first"
        )

    async def test_readers_wait_for_the_last_controller(self, harness: Harness) -> None:
        """One of an older version would refuse what the others apply."""
        start(harness)
        harness.watchman.may_raise = lambda: False
        answer = ask_for_readers(harness, "Orders", "2")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark == (
            "Not all controllers know gantry.readers yet: finish their roll-out first"
        )

    async def test_unknown_topic(self, harness: Harness) -> None:
        start(harness)
        answer = route(harness, "nowhere")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark is not None
        assert answer.remark.startswith(
            "No topic route info in name server for the topic: nowhere\nSee https://"
        )

    async def test_one_name_in_two_clusters_is_refused(self, harness: Harness) -> None:
        """A client keeps addresses by name alone: it would send to the other cluster's broker."""
        start(harness)
        report = {"brokerName": NAME, "brokerAddr": "h:1", "clusterName": "d", "brokerId": "0"}
        table = {
            name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
            for name in ("Orders", "Other")
        }
        body = {"topicConfigSerializeWrapper": {"topicConfigTable": table}}
        assert harness.call(103, report, json.dumps(body).encode()).code == 0
        answer = route(harness, "Orders")
        assert answer.code == ResponseCode.SYSTEM_ERROR  # clients keep the route they have
        assert "of several clusters" in str(answer.remark)
        assert route(harness, "Other").code == 0

    async def test_is_the_masters_address_where_none_is_declared(self, harness: Harness) -> None:
        start(harness, None)
        data = json.loads(route(harness, "Orders").body)
        assert data["brokerDatas"][0]["brokerAddrs"] == {"0": address(1)}

    async def test_declared_address_outlives_the_master(self, harness: Harness) -> None:
        start(harness)
        golden = {
            "brokerName": NAME,
            "clusterName": CLUSTER,
            "brokerControllerIdsToClean": "1",
            "isCleanLivingBroker": "false",
        }
        harness.die(1)
        assert harness.call(1011, golden).code == 0
        assert harness.group.master is None
        assert route(harness, "Orders").code == 0

    async def test_is_the_groups_port_where_fronts_are_declared(self, harness: Harness) -> None:
        """Before a declared address, and through a failover; not elsewhere."""
        start(harness)
        other = DeclareGroup(cluster=CLUSTER, name="a", uid="u", replicas=1, min_in_sync_replicas=1)
        harness.apply(other)
        fronts = DeclareFronts(
            cluster=CLUSTER, name="f", address="10.96.0.9", first_port=10950, ports=2
        )
        harness.apply(fronts)
        brokers = {"brokerName": NAME, "cluster": CLUSTER}
        at_front = {**brokers, "brokerAddrs": {"0": "10.96.0.9:10951"}}
        for topic in ("Orders", "TBW102"):
            assert json.loads(route(harness, topic).body)["brokerDatas"] == [at_front], topic
        assert b"10.96.0" not in harness.call(106).body, "administrators speak to the brokers"
        harness.die(1)
        clean = {"clusterName": CLUSTER, "brokerName": NAME, "brokerControllerIdsToClean": "1"}
        assert harness.call(1011, clean).code == 0
        assert harness.group.master is None
        assert json.loads(route(harness, "Orders").body)["brokerDatas"] == [at_front]
        harness.apply(msgspec.structs.replace(fronts, address="2001:db8::7", ports=1))
        own = {**brokers, "brokerAddrs": {"0": ROUTE}}
        assert json.loads(route(harness, "Orders").body)["brokerDatas"] == [own], "beyond the ports"
        harness.apply(msgspec.structs.replace(fronts, address="2001:db8::7"))
        (data,) = json.loads(route(harness, "Orders").body)["brokerDatas"]
        assert data["brokerAddrs"] == {"0": "[2001:db8::7]:10951"}
        harness.apply(RemoveFronts(cluster=CLUSTER, name="f"))
        assert json.loads(route(harness, "Orders").body)["brokerDatas"] == [own]

    async def test_old_brokers_keep_their_addresses_beside_fronts(self, harness: Harness) -> None:
        start(harness)
        report = {"brokerName": "old", "brokerAddr": "h:1", "clusterName": CLUSTER, "brokerId": "0"}
        topic = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        table = {name: {**topic, "topicName": name} for name in ("Other", "More")}
        body = {"topicConfigSerializeWrapper": {"topicConfigTable": table}}
        assert harness.call(103, report, json.dumps(body).encode()).code == 0
        harness.apply(
            DeclareFronts(cluster=CLUSTER, name="f", address="f", first_port=10950, ports=9)
        )
        (data,) = json.loads(route(harness, "Other").body)["brokerDatas"]
        assert data["brokerAddrs"] == {"0": "h:1"}

    async def test_group_that_never_had_a_master_has_none(self, harness: Harness) -> None:
        declare(harness)
        assert route(harness, "TBW102").code == ResponseCode.TOPIC_NOT_EXIST
        harness.apply(
            DeclareFronts(cluster=CLUSTER, name="f", address="f", first_port=10950, ports=9)
        )
        assert route(harness, "TBW102").code == ResponseCode.TOPIC_NOT_EXIST

    async def test_template_topic_leads_to_every_group_of_ours(self, harness: Harness) -> None:
        start(harness)
        (queue,) = json.loads(route(harness, "TBW102").body)["queueDatas"]
        assert (queue["perm"], queue["readQueueNums"], queue["writeQueueNums"]) == (7, 8, 8)

    @pytest.mark.parametrize("name", [CLUSTER, NAME])
    async def test_names_of_clusters_and_groups_have_one(self, harness: Harness, name: str) -> None:
        """RocketMQ's proxy looks a cluster's brokers up so, and the one that a receipt names."""
        start(harness)
        data = json.loads(route(harness, name).body)
        (broker,), (queue,) = data["brokerDatas"], data["queueDatas"]
        assert (broker["cluster"], broker["brokerName"]) == (CLUSTER, NAME)
        assert queue["perm"] == 4, "nobody sends there"

    @pytest.mark.parametrize("name", [CLUSTER, NAME])
    async def test_replies_to_a_cluster_or_a_group_have_a_topic(
        self, harness: Harness, name: str
    ) -> None:
        start(harness)
        data = json.loads(route(harness, f"{name}_REPLY_TOPIC").body)
        (broker,), (queue,) = data["brokerDatas"], data["queueDatas"]
        assert (broker["cluster"], broker["brokerName"]) == (CLUSTER, NAME)
        assert (queue["perm"], queue["writeQueueNums"]) == (6, 1)

    async def test_replies_to_a_group_that_is_drained_have_a_topic(self, harness: Harness) -> None:
        """Whoever waits for them is connected there."""
        start(harness)
        named = {"clusterName": CLUSTER, "brokerName": "second"}
        code = f"{address(1)};17"
        assert harness.call(1013, {**named, "appliedBrokerId": "1", "registerCheckCode": code})
        assert harness.register(1, **named).code == harness.elect(1, **named).code == 0
        harness.apply(DrainGroup(cluster=CLUSTER, name=NAME, at_ms=1))
        perms = {
            topic: queue["perm"]
            for topic in ("Orders", f"{NAME}_REPLY_TOPIC")
            for queue in json.loads(route(harness, topic).body)["queueDatas"]
            if queue["brokerName"] == NAME
        }
        assert perms == {"Orders": 4, f"{NAME}_REPLY_TOPIC": 6}

    async def test_names_of_other_clusters_lead_nowhere(self, harness: Harness) -> None:
        start(harness)
        for name in (CLUSTER[:-1], CLUSTER + "0", NAME[:-1]):
            assert route(harness, f"{name}_REPLY_TOPIC").code == ResponseCode.TOPIC_NOT_EXIST
            assert route(harness, name).code == ResponseCode.TOPIC_NOT_EXIST

    async def test_a_topic_of_a_cluster_s_name_is_at_the_groups_that_have_it(
        self, harness: Harness
    ) -> None:
        start(harness)
        named = {"clusterName": CLUSTER, "brokerName": "second"}
        code = f"{address(1)};17"
        assert harness.call(1013, {**named, "appliedBrokerId": "1", "registerCheckCode": code})
        assert harness.register(1, **named).code == harness.elect(1, **named).code == 0
        create = {"topic": CLUSTER, "readQueueNums": "4", "writeQueueNums": "8", "perm": "6"}
        of_one = {"clusterName": CLUSTER, "brokerName": NAME}
        assert harness.call(17, {**create, **of_one}).code == 0
        (queue,) = json.loads(route(harness, CLUSTER).body)["queueDatas"]
        assert (queue["brokerName"], queue["perm"], queue["writeQueueNums"]) == (NAME, 6, 8)

    async def test_a_cluster_s_name_leads_to_old_brokers_and_ours(self, harness: Harness) -> None:
        """Those report it among their topics."""
        start(harness)
        told = registration(CLUSTER, "old")
        assert report(harness, 0, "h", told, clusterName=CLUSTER).code == 0
        data = json.loads(route(harness, CLUSTER).body)
        assert {item["brokerName"] for item in data["brokerDatas"]} == {NAME, "old"}

    async def test_traced_messages_have_a_topic_before_the_first(self, harness: Harness) -> None:
        start(harness)
        data = json.loads(route(harness, "RMQ_SYS_TRACE_TOPIC").body)
        assert data["brokerDatas"][0]["brokerName"] == NAME
        (queue,) = data["queueDatas"]
        assert (queue["perm"], queue["readQueueNums"], queue["writeQueueNums"]) == (6, 1, 1)

    async def test_a_retired_group_is_in_no_route_and_no_list(self, harness: Harness) -> None:
        start(harness)
        harness.apply(RetireGroup(cluster=CLUSTER, name=NAME, uid="u1"))
        for topic in ("Orders", "TBW102", CLUSTER, NAME):
            assert route(harness, topic).code == ResponseCode.TOPIC_NOT_EXIST
        info = json.loads(harness.call(106).body)
        assert info == {"brokerAddrTable": {}, "clusterAddrTable": {}}
        assert json.loads(harness.call(206).body)["topicList"] == []
        assert json.loads(harness.call(224, {"cluster": CLUSTER}).body)["topicList"] == []
        declare(harness, uid="u2")
        assert route(harness, "Orders").code == 0

    async def test_is_a_linearizable_read(self, harness: Harness) -> None:
        start(harness)
        reads = harness.quorum.reads
        route(harness, "Orders")
        assert harness.quorum.reads == reads + 1


class TestLists:
    async def test_cluster_info_has_pod_addresses(self, harness: Harness) -> None:
        start(harness)
        assert json.loads(harness.call(106).body) == {
            "brokerAddrTable": {
                NAME: {
                    "brokerAddrs": {"0": address(1), "2": address(2)},
                    "brokerName": NAME,
                    "cluster": CLUSTER,
                }
            },
            "clusterAddrTable": {CLUSTER: [NAME]},
        }

    async def test_member_group(self, harness: Harness) -> None:
        start(harness)
        ext = {"clusterName": CLUSTER, "brokerName": NAME}
        assert json.loads(harness.call(901, ext).body) == {
            "brokerMemberGroup": {
                "brokerAddrs": {"0": address(1), "2": address(2)},
                "brokerName": NAME,
                "cluster": CLUSTER,
            }
        }

    async def test_topics(self, harness: Harness) -> None:
        assert json.loads(harness.call(206).body) == {"topicList": []}
        start(harness)
        assert json.loads(harness.call(206).body) == {
            "topicList": ["Orders", "RMQ_SYS_TRACE_TOPIC", "TBW102"]
        }
        assert json.loads(harness.call(224, {"cluster": CLUSTER}).body) == {"topicList": ["Orders"]}
        assert json.loads(harness.call(224, {"cluster": "x"}).body) == {"topicList": []}

    async def test_system_topics(self, harness: Harness) -> None:
        start(harness)
        body = json.loads(harness.call(304).body)
        assert body == {"topicList": [CLUSTER, NAME], "brokerAddr": address(1)}

    async def test_delete_topic(self, harness: Harness) -> None:
        start(harness)
        assert harness.call(216, {"topic": "Orders", "clusterName": CLUSTER}).code == 0
        assert route(harness, "Orders").code == ResponseCode.TOPIC_NOT_EXIST


def registration(*topics: str, state_version: int = 0) -> RegisterBrokerBody:
    table = {topic: TopicConfig(topic, 4, 4) for topic in topics}
    version = DataVersion(counter=3, state_version=state_version)
    return RegisterBrokerBody(TopicConfigSerializeWrapper(table, version))


def report(
    harness: Harness,
    broker_id: int,
    host: str,
    body: RegisterBrokerBody,
    *,
    connection: int = 1,
    **ext: str,
) -> RemotingCommand:
    fields = {
        "brokerName": "old",
        "brokerAddr": f"{host}:10911",
        "haServerAddr": f"{host}:10912",
        "clusterName": "C",
        "brokerId": str(broker_id),
        "heartbeatTimeoutMillis": "15000",
        **ext,
    }
    compressed = fields.get("compressed") == "true"
    data = encode_registration(body) if compressed else encode_body(body)
    return harness.call(103, fields, data, connection=connection)


class TestImport:
    async def test_route_shows_brokers_as_they_reported_themselves(self, harness: Harness) -> None:
        assert report(harness, 0, "h", registration("t", "TBW102")).ext == {}
        answer = report(harness, 1, "g", registration("t", "TBW102"), compressed="true")
        assert answer.ext == {"haServerAddr": "h:10912", "masterAddr": "h:10911"}
        data = json.loads(route(harness, "t").body)
        assert data["brokerDatas"][0]["brokerAddrs"] == {"0": "h:10911", "1": "g:10911"}
        assert data["queueDatas"][0]["readQueueNums"] == 4
        assert route(harness, "TBW102").code == 0

    async def test_replica_is_sent_to_the_elected_master(self, harness: Harness) -> None:
        """Not to its predecessor, which is the master by its own last word."""
        of_group = {"brokerName": NAME, "clusterName": CLUSTER}
        for broker_id in (1, 2, 3):
            harness.join(broker_id)
            harness.heartbeat(broker_id)
        assert harness.elect(1).code == 0
        all_in_sync = encode_body(
            SyncStateSetBody([BrokerId(1), BrokerId(2), BrokerId(3)], Epoch(1))
        )
        assert harness.alter(1, 1, all_in_sync).code == 0
        body = registration("t", "TBW102")
        for reported_id, broker_id in ((0, 1), (2, 2), (3, 3)):
            answer = report(
                harness,
                reported_id,
                f"h{broker_id}",
                body,
                brokerAddr=address(broker_id),
                **of_group,
            )
        assert answer.ext == {"haServerAddr": "h1:10912", "masterAddr": address(1)}

        assert harness.elect(2, designateElect="true").code == 0
        answer = report(harness, 3, "h3", body, brokerAddr=address(3), **of_group)
        assert answer.ext == {"haServerAddr": "h2:10912", "masterAddr": address(2)}

    async def test_repeated_report_is_not_logged(self, harness: Harness) -> None:
        report(harness, 0, "h", registration("t", "u"))
        index = harness.quorum.index
        for _ in range(3):
            assert report(harness, 0, "h", registration("t", "u")).code == 0
        assert harness.quorum.index == index
        report(harness, 0, "h", registration("v"))
        assert harness.quorum.index == index + 1

    async def test_repeated_report_is_answered_after_a_read(self, harness: Harness) -> None:
        """A deposed leader may remember what its successor has forgotten."""
        report(harness, 0, "h", registration("t", "u"))
        reads = harness.quorum.reads
        assert report(harness, 0, "h", registration("t", "u")).code == 0
        assert harness.quorum.reads == reads + 1

    async def test_replica_does_not_report_topics(self, harness: Harness) -> None:
        report(harness, 0, "h", registration("t", "u"))
        report(harness, 1, "g", registration("t", "u", "stale"))
        assert route(harness, "stale").code == ResponseCode.TOPIC_NOT_EXIST

    async def test_deposed_master_is_ignored(self, harness: Harness) -> None:
        report(harness, 0, "h", registration("t", "u", state_version=1))
        report(harness, 0, "g", registration("t", "u", state_version=2))
        report(harness, 0, "h", registration("t", "u", state_version=1))
        data = json.loads(route(harness, "t").body)
        assert data["brokerDatas"][0]["brokerAddrs"] == {"0": "g:10911"}

    async def test_first_report_of_one_topic_is_an_increment(self, harness: Harness) -> None:
        answer = report(harness, 0, "h", registration("t"))
        assert (answer.code, answer.remark) == (1, "register broker failed")

    async def test_checksum(self, harness: Harness) -> None:
        body = registration("t", "u")
        good = str(masked_crc(encode_body(body)))
        assert report(harness, 0, "h", body, bodyCrc32=good).code == 0
        bad = report(harness, 0, "h", body, bodyCrc32="5")
        assert (bad.code, bad.remark) == (1, "crc32 not match")

    async def test_closed_connection_and_unregistration(self, harness: Harness) -> None:
        report(harness, 0, "h", registration("t", "u"), connection=7)
        report(harness, 1, "g", registration(), connection=8)
        harness.imports.connection_closed(7)
        assert [one.address for one in harness.machine.state.imports["C", "old"]] == ["g:10911"]
        ext = {
            "brokerName": "old",
            "brokerAddr": "g:10911",
            "clusterName": "C",
            "brokerId": "1",
        }
        assert harness.call(104, ext).code == 0
        assert route(harness, "t").code == ResponseCode.TOPIC_NOT_EXIST

    @pytest.mark.looptime
    async def test_silence_ends_it_and_a_heartbeat_keeps_it(self, harness: Harness) -> None:
        harness.imports.start()
        report(harness, 0, "h", registration("t", "u"))
        report(harness, 0, "x", registration("t", "u"), brokerName="silent")
        beat = {"clusterName": "C", "brokerName": "old", "brokerAddr": "h:10911"}
        for _ in range(4):
            await asyncio.sleep(8)
            assert harness.call(904, beat).code == 0
        assert list(harness.machine.state.imports) == [("C", "old")]

    async def test_a_follower_forgets_nobody(self, harness: Harness) -> None:
        """Its own connection to the broker says nothing about the leader's."""
        report(harness, 0, "h", registration("t", "u"))
        proposed: list[bytes] = []
        following = Imports(harness.machine, lambda event, _: proposed.append(event), lambda: False)
        following.reported(("C", "old"), "h:10911", None, 7)
        following.connection_closed(7)
        assert (following.heard, proposed) == (0, [])

    async def test_brokers_beyond_the_bound_are_refused(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(imports, "IMPORTS_MAX", 1)
        assert report(harness, 0, "h", registration("t", "u")).code == 0
        answer = report(harness, 0, "x", registration("t", "u"), brokerName="beyond")
        assert (answer.code, answer.remark) == (1, "register broker failed")
        assert report(harness, 0, "h", registration("t", "u")).code == 0
        assert (harness.imports.refused, harness.imports.heard) == (1, 1)

    @pytest.mark.looptime
    async def test_new_leader_gives_everybody_the_whole_time(self, harness: Harness) -> None:
        harness.imports.start()
        report(harness, 0, "h", registration("t", "u"))
        await asyncio.sleep(14)
        harness.imports.role_changed(leading=True)
        await asyncio.sleep(100)
        assert ("C", "old") in harness.machine.state.imports
        await asyncio.sleep(30)
        assert harness.machine.state.imports == {}


@pytest.mark.parametrize("code", [311, 312, 313])
async def test_there_are_no_units(harness: Harness, code: int) -> None:
    assert harness.call(code).body == b'{"topicList":[]}'


async def test_whoever_asks_whether_to_report_is_told_to(harness: Harness) -> None:
    named = {"clusterName": "C", "brokerAddr": "h:1", "brokerName": "b", "brokerId": "0"}
    assert harness.call(322, named, b'{"counter":1}').ext == {"changed": "true"}
