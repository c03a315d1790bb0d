"""From evidence to suspicion, as a table; and what must hold in any order of events."""

from collections.abc import Callable

import pytest
from gantry_controller.liveness.core.rules import (
    UNHEARD_S,
    Clock,
    Suspicion,
    alive_of,
    is_alive,
    live_members,
    master_suspicion,
    suspicion,
)
from gantry_controller.liveness.core.table import Heartbeat, HeartbeatTable
from gantry_controller.metadata.events import LiveMember
from gantry_controller.metadata.state import BrokerGroup, Member
from gantry_protocol.types import BrokerId, Epoch, Offset
from hypothesis import given
from hypothesis import strategies as st

KEY = ("c", "b")
ONE = BrokerId(1)
TIMEOUT_S = 2.5
MEMBER = Member(ONE, "h:1", "h:1;1", incarnation="a", registrations=1, pod_uid="pod")
JAVA = Member(ONE, "h:1", "h:1;1", incarnation="#2", registrations=2)


def group_of(*members: Member, master: bool = True) -> BrokerGroup:
    return BrokerGroup(
        *KEY,
        members=members,
        next_broker_id=BrokerId(9),
        master_id=members[0].broker_id if master else None,
        master_incarnation=members[0].incarnation if master else "",
        master_epoch=Epoch(3),
        sync_state_set=(members[0].broker_id,),
    )


def beat(table: HeartbeatTable, at_s: float, incarnation: str = "a", connection: int = 1) -> bool:
    heartbeat = Heartbeat(broker_id=ONE, timeout_s=TIMEOUT_S, incarnation=incarnation)
    return table.heard(KEY, heartbeat, now_s=at_s, connection=connection)


def clock(now_s: float, since_s: float = 0.0) -> Clock:
    return Clock(now_s=now_s, watching_since_s=since_s, default_timeout_s=TIMEOUT_S)


def close_and_refuse(table: HeartbeatTable) -> None:
    beat(table, 10.0)
    table.closed(1)
    table.refuse((*KEY, ONE), 1)


def close(table: HeartbeatTable) -> None:
    beat(table, 10.0)
    table.closed(1)


def pod_gone(table: HeartbeatTable) -> None:
    beat(table, 10.0)
    table.pod_is_gone("pod", 10.1)


def pod_gone_but_heard(table: HeartbeatTable) -> None:
    pod_gone(table)
    beat(table, 10.2)


def other_pod_gone(table: HeartbeatTable) -> None:
    beat(table, 10.0)
    table.pod_is_gone("earlier pod", 10.1)


def never_heard_pod_gone(table: HeartbeatTable) -> None:
    table.pod_is_gone("pod", 10.1)


def another_process_beats(table: HeartbeatTable) -> None:
    beat(table, 10.0, incarnation="b")


def just_registered(table: HeartbeatTable) -> None:
    table.registered(KEY, ONE, 10.0)
    beat(table, 9.0, incarnation="z")


def nothing(_: HeartbeatTable) -> None:
    pass


CASES = [
    pytest.param(lambda t: beat(t, 10.0), 12.5, 0.0, None, True, id="heard, up to the time-out"),
    pytest.param(
        lambda t: beat(t, 10.0), 12.51, 0.0, Suspicion.SILENT, False, id="heard, after the time-out"
    ),
    pytest.param(
        lambda t: beat(t, 10.0), 13.0, 11.0, None, False, id="silent, but the leader is new"
    ),
    pytest.param(
        lambda t: beat(t, 10.0), 13.6, 11.0, Suspicion.SILENT, False, id="silent to a new leader"
    ),
    pytest.param(nothing, 18.0, 8.0, None, False, id="never heard, in the grace"),
    pytest.param(nothing, 18.1, 8.0, Suspicion.SILENT, False, id="never heard, after the grace"),
    pytest.param(
        just_registered, 21.0, 11.0, None, False, id="registered before, to a leader that is new"
    ),
    pytest.param(
        just_registered, 21.1, 11.0, Suspicion.SILENT, False, id="registered before, then silent"
    ),
    pytest.param(close, 10.4, 0.0, None, True, id="a closed connection alone proves nothing"),
    pytest.param(
        close_and_refuse, 10.1, 0.0, Suspicion.REFUSED, False, id="closed and refused twice"
    ),
    pytest.param(pod_gone, 10.2, 0.0, Suspicion.POD_GONE, False, id="operator's word"),
    pytest.param(pod_gone_but_heard, 10.3, 0.0, None, True, id="a newer heartbeat overrides it"),
    pytest.param(other_pod_gone, 10.3, 0.0, None, True, id="word about an earlier pod"),
    pytest.param(
        never_heard_pod_gone,
        10.2,
        10.0,
        Suspicion.POD_GONE,
        False,
        id="word about a pod that this node never heard",
    ),
    pytest.param(
        another_process_beats,
        10.1,
        0.0,
        Suspicion.SILENT,
        False,
        id="another process's heartbeats do not keep this one alive",
    ),
    pytest.param(just_registered, 12.5, 0.0, None, False, id="registration counts as a sign"),
    pytest.param(
        just_registered, 12.6, 0.0, Suspicion.SILENT, False, id="registered and never heard since"
    ),
]


@pytest.mark.parametrize(("tell", "now_s", "since_s", "expected", "alive"), CASES)
def test_evidence(
    tell: Callable[[HeartbeatTable], object],
    now_s: float,
    since_s: float,
    expected: Suspicion | None,
    alive: bool,
) -> None:
    table = HeartbeatTable()
    tell(table)
    group = group_of(MEMBER)
    assert suspicion(table, group, MEMBER, clock(now_s, since_s)) == expected
    assert is_alive(table, group, MEMBER, clock(now_s, since_s)) is alive
    assert master_suspicion(table, group, clock(now_s, since_s)) == expected


def test_new_process_of_the_master_is_enough() -> None:
    table = HeartbeatTable()
    beat(table, 10.0)
    group = group_of(MEMBER)
    replaced = BrokerGroup(*KEY, members=group.members, master_id=ONE, master_incarnation="earlier")
    assert master_suspicion(table, replaced, clock(10.0)) == Suspicion.REPLACED
    assert master_suspicion(table, group_of(MEMBER, master=False), clock(99.0)) is None


def test_broker_without_nonces_is_heard_unsigned() -> None:
    table = HeartbeatTable()
    beat(table, 10.0, incarnation="")
    assert is_alive(table, group_of(JAVA), JAVA, clock(10.1))
    assert not is_alive(table, group_of(MEMBER), MEMBER, clock(10.1))


def test_evidence_carries_what_was_heard() -> None:
    table = HeartbeatTable()
    heartbeat = Heartbeat(
        broker_id=ONE,
        timeout_s=TIMEOUT_S,
        incarnation="a",
        epoch=Epoch(3),
        max_offset=Offset(100),
        confirm_offset=Offset(90),
        priority=5,
        draining=True,
    )
    table.heard(KEY, heartbeat, now_s=10.0, connection=1)
    (live,) = live_members(table, group_of(MEMBER), clock(10.1))
    assert (live.epoch, live.max_offset, live.confirm_offset) == (3, 100, 90)
    assert (live.priority, live.draining, live.connected) == (5, True, True)
    table.closed(1)
    (live,) = live_members(table, group_of(MEMBER), clock(10.1))
    assert not live.connected


def test_asking_member_is_alive_and_a_stranger_is_not() -> None:
    table = HeartbeatTable()
    group = group_of(MEMBER)
    assert [one.broker_id for one in live_members(table, group, clock(11.0), asking=ONE)] == [1]
    assert live_members(table, group, clock(11.0), asking=BrokerId(2)) == ()
    unregistered = group_of(Member(ONE, "h:1", "h:1;1"))
    assert live_members(table, unregistered, clock(11.0), asking=ONE) == ()


def test_master_that_was_not_heard_yet_is_alive_until_something_speaks_against_it() -> None:
    table = HeartbeatTable()
    group = group_of(MEMBER)
    within, after = clock(19.0, 9.0), clock(9.1 + UNHEARD_S, 9.0)
    assert [one.broker_id for one in live_members(table, group, within)] == [1]
    assert [one.broker_id for one in alive_of(table, group, [ONE], within)] == [1]
    assert live_members(table, group, after) == ()
    assert alive_of(table, group, [ONE], after) == ()
    assert live_members(table, group_of(MEMBER, master=False), within) == ()


def test_evidence_for_a_set_is_about_its_living_members_only() -> None:
    table = HeartbeatTable()
    beat(table, 10.0)
    group = group_of(MEMBER, master=False)
    now = clock(10.1)
    assert alive_of(table, group, [ONE, BrokerId(7)], now) == (LiveMember(ONE, "a"),)
    assert alive_of(table, group, [], now) == ()
    assert alive_of(table, group, [ONE], clock(10.0 + 2 * TIMEOUT_S)) == ()


STEPS = st.lists(
    st.tuples(
        st.floats(0.001, 2.0),
        st.sampled_from(["beat", "old beat", "other", "close", "refuse", "gone", "lead"]),
    ),
    max_size=30,
)


@given(STEPS)
def test_who_was_heard_in_time_is_never_suspected(steps: list[tuple[float, str]]) -> None:
    """Whatever else happened: a beat of the registered process clears it for a whole time-out."""
    table = HeartbeatTable()
    now_s, since_s, connection = 100.0, 100.0, 10
    heard_s = -1000.0  # of the registered process, by the newest connection
    doubt = False  # refused or declared gone since then
    for wait_s, step in steps:
        now_s += wait_s
        if step == "beat":
            connection += 1
            beat(table, now_s, connection=connection)
            heard_s, doubt = now_s, False
        elif step == "old beat":
            if beat(table, now_s, connection=1):
                heard_s, doubt = now_s, False
        elif step == "other":
            connection += 1
            beat(table, now_s, incarnation="b", connection=connection)
            heard_s = -1000.0
        elif step == "close":
            table.closed(connection)
        elif step == "refuse":
            doubt |= table.refuse((*KEY, ONE), connection)
        elif step == "gone":
            table.pod_is_gone("pod", now_s)
            doubt = True
        else:
            since_s = now_s
        found = suspicion(table, group_of(MEMBER), MEMBER, clock(now_s, since_s))
        if now_s - heard_s <= TIMEOUT_S and not doubt:
            assert found is None
        if found == Suspicion.SILENT:
            assert now_s - since_s > TIMEOUT_S
