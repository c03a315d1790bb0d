"""The watchman on a clock that the test turns: timers, knocks and proposals."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from gantry_controller.liveness import watchman
from gantry_controller.liveness.core.probes import GAP_S, Knock
from gantry_controller.liveness.core.table import Heartbeat
from gantry_controller.liveness.master_traces import MasterTraces
from gantry_controller.liveness.watchman import Watchman
from gantry_controller.metadata.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CreateTopic,
    DeclareGroup,
    DrainGroup,
    ElectMaster,
    LiveMember,
    MapQueues,
    RegisterBroker,
    RetireGroup,
    encode_event,
)
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.tracing.export import SpanExport
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.controller_dispatcher import CLUSTER, NAME, Harness, address

pytestmark = pytest.mark.looptime


@asynccontextmanager
async def three_in_sync() -> AsyncIterator[Harness]:
    """A declared group of three in sync, each broker on a connection of its id.

    No fixture: fixtures run on the real clock.
    """
    harness = Harness()
    harness.apply(
        DeclareGroup(cluster=CLUSTER, name=NAME, uid="u", replicas=3, min_in_sync_replicas=2)
    )
    for broker_id in (1, 2, 3):
        harness.join(broker_id, incarnation=f"i{broker_id}")
        beat(harness, broker_id)
    harness.watchman.start()
    await asyncio.sleep(0.01)
    assert harness.group.master_id == 1
    harness.alter(1, 1, b'{"syncStateSet":[1,2,3],"syncStateSetEpoch":1}')
    assert harness.group.sync_state_set == (1, 2, 3)
    yield harness
    await harness.close()


def beat(harness: Harness, broker_id: int, connection: int | None = None) -> None:
    harness.heartbeat(
        broker_id,
        connection=connection,
        incarnation=f"i{broker_id}",
        heartbeatTimeoutMills="2500",
    )


async def go_on(harness: Harness, seconds: float, *broker_ids: int) -> None:
    """Time passes while these brokers send heartbeats."""
    for _ in range(round(seconds / 0.5)):
        for broker_id in broker_ids:
            beat(harness, broker_id)
        await asyncio.sleep(0.5)


async def test_first_election_comes_by_itself() -> None:
    async with three_in_sync() as harness:
        assert harness.watchman.elections == {"first election": 1}


@pytest.mark.parametrize("all_know", [True, False], ids=["nobody is older", "one is older"])
@pytest.mark.parametrize("asked", [True, False], ids=["asked by a broker", "by itself"])
async def test_a_new_group_has_topics_in_the_first_route(asked: bool, all_know: bool) -> None:
    async with three_in_sync() as harness:
        harness.watchman.may_raise = lambda: all_know
        topic = Topic(4, 4, 6)
        harness.apply(CreateTopic(cluster=CLUSTER, name=NAME, topic="t", config=topic))
        new = {"cluster": CLUSTER, "name": "new"}
        one = BrokerId(1)
        if not asked:
            harness.apply(DeclareGroup(**new, uid="v", replicas=1, min_in_sync_replicas=1))
        harness.apply(ApplyBrokerId(**new, broker_id=one, check_code="new;1"))
        harness.apply(RegisterBroker(**new, broker_id=one, address="new:1", incarnation="n"))
        harness.watchman.heard((CLUSTER, "new"), Heartbeat(one, 2.5, "n"), 9)
        if asked:
            group = harness.machine.group(CLUSTER, "new")
            assert group is not None
            election = ElectMaster(**new, requester=one, live=(LiveMember(one, "n"),))
            assert harness.watchman.before_election(group, election) == ""
            harness.apply(election)
        await asyncio.sleep(5)
        group = harness.machine.group(CLUSTER, "new")
        assert group is not None
        assert group.had_master
        topics = harness.machine.state.topic_table((CLUSTER, "new")).topics
        assert list(topics) == (["t"] if all_know else [])


def register(harness: Harness, name: str) -> BrokerId:
    """The only member of a group that is declared."""
    group, one = {"cluster": CLUSTER, "name": name}, BrokerId(1)
    for event in (
        DeclareGroup(**group, uid="v", replicas=1, min_in_sync_replicas=1),
        ApplyBrokerId(**group, broker_id=one, check_code=f"{name};1"),
        RegisterBroker(**group, broker_id=one, address=f"{name}:1", incarnation="n"),
    ):
        harness.apply(event)
    return one


async def test_a_new_group_has_the_topic_that_is_being_made_while_it_is_elected() -> None:
    async with three_in_sync() as harness:
        one = register(harness, "new")
        harness.quorum.holding = True  # what comes is in the log, and not applied yet
        topic = CreateTopic(cluster=CLUSTER, name=NAME, topic="t", config=Topic(4, 4, 6))
        harness.quorum.propose(encode_event(topic), lambda _: None)
        harness.watchman.heard((CLUSTER, "new"), Heartbeat(one, 2.5, "n"), 9)
        await asyncio.sleep(1)
        harness.quorum.holding = False
        harness.quorum.release()
        group = harness.machine.group(CLUSTER, "new")
        assert group is not None
        assert group.had_master
        assert list(harness.machine.state.topic_table((CLUSTER, "new")).topics) == ["t"]


@pytest.mark.parametrize("leads", [True, False])
async def test_queues_leave_a_drained_group_without_a_further_request(leads: bool) -> None:
    async with three_in_sync() as harness:
        one = register(harness, "other")
        other = {"cluster": CLUSTER, "name": "other"}
        for event in (
            ElectMaster(**other, live=(LiveMember(one, "n"),), first_wait_over=True),
            MapQueues(cluster=CLUSTER, topic="t", queues=4),
        ):
            assert harness.apply(event).ok
        harness.watchman.role_changed(leading=leads)
        assert harness.apply(DrainGroup(cluster=CLUSTER, name=NAME)).ok
        await asyncio.sleep(0.25)
        goals = {queue.goal for queue in harness.machine.state.queue_maps[CLUSTER, "t"].queues}
        assert goals == ({"other"} if leads else {NAME, "other"})


async def test_closed_and_refused_takes_a_tenth_of_a_second() -> None:
    async with three_in_sync() as harness:
        harness.watchman.connection_closed(1)
        await asyncio.sleep(GAP_S / 2)
        assert harness.group.master_id == 1
        await asyncio.sleep(GAP_S)
        assert (harness.group.master_id, harness.group.master_epoch) == (2, 2)
        assert harness.knocks == [address(1), address(1)]
        assert harness.watchman.elections["refused"] == 1


async def test_a_failover_is_traced_from_the_last_word_to_the_majority() -> None:
    async with three_in_sync() as harness:
        export = SpanExport("http://nowhere", {}, "1")
        harness.watchman.traces = MasterTraces(export)
        for _ in range(2):  # the second trace has nothing of the first
            gone = harness.group.master_id
            harness.watchman.connection_closed(gone)
            await asyncio.sleep(2 * GAP_S)
            assert harness.group.master_id != gone
        names = [span.name for span in export._queue]
        assert names == ["failover", "notice", "decide", "commit"] * 2
        epochs = [span.attributes["gantry.master_epoch"] for span in export._queue]
        assert epochs == [2] * 4 + [3] * 4


async def test_a_change_that_somebody_asks_for_has_no_part_of_an_earlier_failover() -> None:
    async with three_in_sync() as harness:
        export = SpanExport("http://nowhere", {}, "1")
        harness.watchman.traces = MasterTraces(export)
        harness.watchman.connection_closed(1)
        await asyncio.sleep(2 * GAP_S)
        three = LiveMember(BrokerId(3), "i3")
        asked = {"cluster": CLUSTER, "name": NAME, "requester": three.broker_id, "designate": True}
        harness.apply(ElectMaster(**asked, live=(three,)))
        assert harness.group.master_id == 3
        names = [span.name for span in export._queue]
        assert names == ["failover", "notice", "decide", "commit", "hand-over"]


async def test_a_node_that_does_not_lead_traces_nothing() -> None:
    async with three_in_sync() as harness:
        export = SpanExport("http://nowhere", {}, "1")
        harness.watchman.traces = MasterTraces(export)
        harness.watchman.role_changed(leading=False)
        two = LiveMember(BrokerId(2), "i2")
        asked = {"cluster": CLUSTER, "name": NAME, "requester": two.broker_id, "designate": True}
        harness.apply(ElectMaster(**asked, live=(two,)))
        assert harness.group.master_id == 2
        assert not export._queue


async def test_closed_but_reachable_waits_for_the_time_out() -> None:
    async with three_in_sync() as harness:
        harness.knock = Knock.OTHER
        harness.watchman.connection_closed(1)
        await go_on(harness, 2.0, 2, 3)
        assert harness.group.master_id == 1
        assert 5 <= len(harness.knocks) <= 20
        await go_on(harness, 1.0, 2, 3)
        assert harness.group.master_id == 2
        assert harness.watchman.elections["silent"] == 1


async def test_reconnected_broker_is_left_alone() -> None:
    async with three_in_sync() as harness:
        harness.watchman.connection_closed(1)
        await asyncio.sleep(GAP_S / 2)
        beat(harness, 1, connection=11)
        await go_on(harness, 5.0, 2, 3)
        assert harness.group.master_id == 2, "the time-out of the new connection's row"
        assert "refused" not in harness.watchman.elections


async def test_living_group_costs_no_events() -> None:
    async with three_in_sync() as harness:
        index = harness.quorum.index
        await go_on(harness, 60.0, 1, 2, 3)
        assert harness.quorum.index == index


async def test_operators_word() -> None:
    async with three_in_sync() as harness:
        harness.register(1, incarnation="i1", podUid="pod-1")
        harness.watchman.pod_is_gone(harness.group, "pod-1")
        await asyncio.sleep(0.01)
        assert harness.group.master_id == 2
        assert harness.watchman.elections["pod gone"] == 1


async def test_new_leader_knocks_where_connections_had_closed_before() -> None:
    async with three_in_sync() as harness:
        harness.watchman.role_changed(leading=False)
        harness.watchman.connection_closed(1)
        await asyncio.sleep(1.0)
        assert harness.knocks == []
        harness.watchman.role_changed(leading=True)
        await asyncio.sleep(3 * GAP_S)
        assert harness.group.master_id == 2


async def test_stalled_process_blames_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async with three_in_sync() as harness:
        loop = asyncio.get_running_loop()
        plain_time = loop.time
        stopped_s = 0.0
        monkeypatch.setattr(loop, "time", lambda: plain_time() + stopped_s)
        await go_on(harness, 1.0, 1, 2, 3)
        stopped_s = 30.0  # SIGSTOP, and now SIGCONT: time has passed and nothing has run
        await go_on(harness, 2.0, 2, 3)
        await asyncio.sleep(0.4)  # more than was left of its time-out when the process stopped
        assert harness.group.master_id == 1
        await go_on(harness, 0.5, 2, 3)
        assert harness.group.master_id == 2


async def test_watchers_hear_of_a_replica_that_fell_silent() -> None:
    """It calls for no election, so nothing in the log tells of it."""
    async with three_in_sync() as harness:
        await go_on(harness, 1.0, 1, 2, 3)
        harness.watchman.liveness_changes()
        await go_on(harness, 3.0, 1, 2)
        assert harness.watchman.liveness_changes() == {(CLUSTER, NAME)}
        assert harness.watchman.brokers_heard() == 2
        assert harness.group.master_id == 1


async def test_a_group_of_which_nobody_is_heard_is_unserved() -> None:
    """Nobody can be elected, so its master stays on record; whoever watches has to hear of it."""
    async with three_in_sync() as harness:
        assert harness.watchman.groups_unserved == 0
        await go_on(harness, 1.0, 2, 3)
        await asyncio.sleep(3.0)
        assert harness.watchman.groups_unserved == 1
        assert harness.machine.state.headless_count == 0
        harness.apply(RetireGroup(cluster=CLUSTER, name=NAME, uid="u"))
        assert harness.watchman.groups_unserved == 0


async def test_knocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is being opened costs a descriptor, and a thousand may close at once."""
    monkeypatch.setattr(watchman, "KNOCKS_MAX", 1)
    async with three_in_sync() as harness:
        answer = asyncio.Event()

        async def knocker(address: str) -> Knock:
            harness.knocks.append(address)
            await answer.wait()
            return Knock.OTHER

        monkeypatch.setattr(harness.watchman, "_knocker", knocker)
        for broker_id in (1, 2, 3):
            harness.watchman.connection_closed(broker_id)
        await asyncio.sleep(1.0)
        assert len(harness.knocks) == 1
        answer.set()
        await asyncio.sleep(GAP_S)
        assert len(set(harness.knocks)) > 1


async def test_failed_proposals_are_repeated_with_a_pause() -> None:
    async with three_in_sync() as harness:
        harness.quorum.outcome = RuntimeError("lost")
        harness.watchman.connection_closed(1)
        await asyncio.sleep(1.0)
        tries = harness.watchman.elections["refused"]
        assert 3 <= tries <= 6
        harness.quorum.outcome = None
        await asyncio.sleep(0.5)
        assert harness.group.master_id == 2


async def test_stop_leaves_nothing_behind() -> None:
    harness = Harness()
    hang = asyncio.Event()

    async def knocker(_: str) -> Knock:
        await hang.wait()
        return Knock.OTHER

    stopped = Watchman(
        harness.machine, harness.quorum.propose, default_timeout_s=2.5, knocker=knocker
    )
    harness.watchman = stopped
    stopped.role_changed(leading=True)
    stopped.start()
    await stopped.stop()
    await harness.close()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_watchers_hear_of_the_tier_when_it_fares_otherwise_not_when_it_grows() -> None:
    async with three_in_sync() as harness:

        def tier(**ext: str) -> bool:
            harness.heartbeat(1, incarnation="i1", heartbeatTimeoutMills="2500", **ext)
            return bool(harness.watchman.liveness_changes())

        tier()
        assert not tier()
        assert tier(tierState="claiming", tierEpoch="1")
        well = {"tierState": "uploading", "tierEpoch": "1", "tierVersion": "2", "tierLagMs": "0"}
        assert tier(**well, tierCommittedOffset="10")
        assert not tier(**well | {"tierVersion": "3", "tierLagMs": "9"}, tierCommittedOffset="20")
        assert tier(**well, tierCommittedOffset="20", tierReason="503")
        assert not tier(**well, tierCommittedOffset="20", tierReason="504")
        assert tier(**well | {"tierEpoch": "2"}, tierCommittedOffset="20", tierReason="504")


async def test_what_a_broker_says_of_its_tier_is_kept_no_longer_than_it_may_be() -> None:
    async with three_in_sync() as harness:
        beat = {"incarnation": "i1", "heartbeatTimeoutMills": "2500"}
        harness.heartbeat(1, **beat, tierState="s" * 99, tierReason="r" * 9_999)
        row = harness.watchman.table.row((CLUSTER, NAME), BrokerId(1))
        assert row is not None
        assert row.beat.tier is not None
        assert (len(row.beat.tier.state), len(row.beat.tier.reason)) == (32, 256)
        harness.heartbeat(1, **beat, tierReason="a reason without a state")
        assert row.beat.tier is None


async def test_nobody_knocks_who_has_ceased_to_lead_or_has_ended() -> None:
    for ends in (False, True):
        async with three_in_sync() as harness:
            harness.watchman.connection_closed(1)
            if ends:
                await harness.watchman.stop()
            else:
                harness.watchman.role_changed(leading=False)
            await asyncio.sleep(1)
            assert harness.knocks == []


async def test_a_refused_copy_that_is_heard_again_is_no_claim_any_more() -> None:
    async with three_in_sync() as harness:
        watch, group = harness.watchman, harness.group
        watch.registration_refused(group, BrokerId(2), Epoch(9), Offset(100))
        assert list(watch.claims(group)) == [2]
        beat(harness, 3)
        assert list(watch.claims(group)) == [2]
        beat(harness, 2)
        assert watch.claims(group) == {}


@pytest.mark.parametrize("spreads", [True, False], ids=["on", "off"])
async def test_masters_are_spread_by_who_leads_the_quorum_and_only_if_that_is_wanted(
    spreads: bool,
) -> None:
    harness = Harness()
    own = Watchman(harness.machine, harness.quorum.propose, default_timeout_s=2.5, spreads=spreads)
    names = ("one", "two")
    for name in names:
        of = {"cluster": CLUSTER, "name": name}
        harness.apply(DeclareGroup(**of, uid=name, replicas=2, min_in_sync_replicas=1))
        for number in (1, 2):
            broker_id, host = BrokerId(number), f"127.0.0.{number}"
            harness.apply(ApplyBrokerId(**of, broker_id=broker_id, check_code=f"{host};1"))
            joined = RegisterBroker(
                **of, broker_id=broker_id, address=f"{host}:1", incarnation=host, ha_port=2
            )
            harness.apply(joined)
        live = (LiveMember(BrokerId(1), "127.0.0.1"), LiveMember(BrokerId(2), "127.0.0.2"))
        harness.apply(ElectMaster(**of, live=live))
        both = (BrokerId(1), BrokerId(2))
        harness.apply(
            AlterSyncStateSet(
                **of,
                master_id=BrokerId(1),
                master_epoch=Epoch(1),
                new_set=both,
                expected_set_epoch=1,
                live=live,
            )
        )
    await harness.watchman.stop()

    async def pass_time(seconds: int) -> list[int | None]:
        for _ in range(2 * seconds):
            for key, group in harness.machine.state.groups.items():
                for number in (1, 2):
                    said = Heartbeat(
                        BrokerId(number), 2.5, f"127.0.0.{number}", epoch=group.master_epoch
                    )
                    own.heard(key, said, number)
            await asyncio.sleep(0.5)
        return sorted(group.master_id or 0 for group in harness.machine.state.groups.values())

    own.start()
    assert await pass_time(15) == [1, 1], "it follows"
    own.role_changed(leading=True)
    assert await pass_time(15) == ([1, 2] if spreads else [1, 1])
    assert own.elections == ({"spread masters": 1} if spreads else {})
    assert (own.spread.moved, own.spread.to_move) == (int(spreads), 0)
    await own.stop()
    await harness.close()
