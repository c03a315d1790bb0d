"""Users in the replicated state: kept, bounded, and never so that a cluster is locked."""

from __future__ import annotations

import pytest
from gantry_controller.metadata import snapshot, users
from gantry_controller.metadata.events import (
    CreateUser,
    DeleteRules,
    DeleteUser,
    Event,
    PutRules,
    SetAccess,
    UpdateUser,
)
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.users import access_of, users_of
from gantry_protocol.access.rules import Rule, make_rule
from gantry_protocol.codes import ResponseCode
from support.metadata_world import World

CLUSTER, SECRET = "c", "secret-of-ada"
INVALID, NO_USER = ResponseCode.INVALID_PARAMETER, ResponseCode.USER_NOT_EXIST


def create(name: str = "ada", kind: str = "Normal", **named: str) -> CreateUser:
    said = {"cluster": CLUSTER, "secret": SECRET, "status": "enable", **named}
    return CreateUser(user=name, kind=kind, **said)


def put(*rules: Rule, name: str = "ada") -> PutRules:
    return PutRules(cluster=CLUSTER, user=name, rules=rules)


def switch(*, on: bool) -> SetAccess:
    return SetAccess(cluster=CLUSTER, enabled=on)


@pytest.fixture
def world() -> World:
    return World()


def refused(result: Result, code: ResponseCode = INVALID) -> str:
    assert result.code == code
    assert not result.changed
    return result.remark or ""


def test_a_user_is_made_changed_and_gone(world: World) -> None:
    assert world.apply(create()).changed
    assert world.apply(UpdateUser(cluster=CLUSTER, user="ada", status="disable")).changed
    (user,) = users_of(world.state, CLUSTER).values()
    assert (user.secret, user.kind, user.is_enabled) == (SECRET, "Normal", False)
    assert world.apply(UpdateUser(cluster=CLUSTER, user="ada", secret="another-one")).changed
    assert users_of(world.state, CLUSTER)["ada"].secret == "another-one"
    assert world.apply(DeleteUser(cluster=CLUSTER, user="ada")).changed
    assert users_of(world.state, CLUSTER) == {}


def test_the_same_said_again_is_success_and_changes_nothing(world: World) -> None:
    """Tools say it to each broker of a cluster."""
    rule = make_rule("Topic:t", ["Pub"])
    events: list[Event] = [
        create(),
        put(rule),
        UpdateUser(cluster=CLUSTER, user="ada", kind="Super"),
        switch(on=True),
        switch(on=False),
        DeleteRules(cluster=CLUSTER, user="ada", policy="Custom", resource="Topic:t"),
        DeleteUser(cluster=CLUSTER, user="ada"),
    ]
    for event in events:
        assert world.apply(event).changed, event
        before = access_of(world.state, CLUSTER)
        again = world.apply(event)
        assert again.ok, event
        assert not again.changed, event
        assert access_of(world.state, CLUSTER) == before


def test_another_user_of_the_same_name_is_refused(world: World) -> None:
    world.apply(create())
    assert "update it" in refused(world.apply(create(secret="another-secret")))
    assert SECRET not in refused(world.apply(create(kind="Super")))


def test_each_change_has_an_index_that_brokers_compare(world: World) -> None:
    world.apply(create("root", "Super"))
    seen = {access_of(world.state, CLUSTER).changed}
    for event in (create(), put(make_rule("*", ["Get"])), switch(on=True), switch(on=False)):
        world.apply(event)
        seen.add(access_of(world.state, CLUSTER).changed)
    assert len(seen) == 5
    assert access_of(world.state, "other").changed == 0


def test_rules_come_beside_others_replace_their_like_and_go_with_the_user(world: World) -> None:
    first, second = make_rule("Topic:a", ["Pub"]), make_rule("Topic:b", ["Pub"])
    later = make_rule("Topic:a", ["Sub"], decision="Deny")
    world.apply(create())
    world.apply(put(first, second))
    world.apply(put(later))
    assert users_of(world.state, CLUSTER)["ada"].rules == (later, second)
    world.apply(DeleteRules(cluster=CLUSTER, user="ada", policy="Custom", resource="topic:a"))
    assert users_of(world.state, CLUSTER)["ada"].rules == (second,)
    world.apply(DeleteUser(cluster=CLUSTER, user="ada"))
    world.apply(create())
    assert users_of(world.state, CLUSTER)["ada"].rules == ()


def test_rules_need_a_user(world: World) -> None:
    refused(world.apply(put(make_rule("*", ["Get"]))), NO_USER)
    refused(world.apply(DeleteRules(cluster=CLUSTER, user="ada", policy="Custom")), NO_USER)
    refused(world.apply(UpdateUser(cluster=CLUSTER, user="ada", status="disable")), NO_USER)


@pytest.mark.parametrize(
    "event",
    [
        create("a b"),
        create("gantry"),
        create(secret="short"),
        create(kind="Root"),
        create(status="maybe"),
        create(cluster=""),
        create(cluster=256 * "c"),
    ],
)
def test_what_is_no_user_is_refused(world: World, event: CreateUser) -> None:
    remark = refused(world.apply(event))
    assert event.secret not in remark
    assert not world.state.users


def test_everything_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "USERS_MAX", 2)
    monkeypatch.setattr(users, "RULES_MAX", 3)
    monkeypatch.setattr(users, "CLUSTERS_MAX", 2)
    assert world.apply(create("a")).ok
    assert world.apply(create("b")).ok
    refused(world.apply(create("d")))
    two = [make_rule(f"Topic:{n}", ["Pub"]) for n in range(2)]
    assert world.apply(put(*two, name="a")).ok
    refused(world.apply(put(*two, name="b")))
    assert world.apply(put(two[0], name="b")).ok
    assert world.apply(put(two[0], name="a")).ok
    assert world.apply(create(cluster="second")).ok
    refused(world.apply(create(cluster="third")))


def test_access_needs_a_super_user_that_is_enabled(world: World) -> None:
    assert "create one" in refused(world.apply(switch(on=True)))
    world.apply(create("root", "Super", status="disable"))
    world.apply(create())
    refused(world.apply(switch(on=True)))
    world.apply(UpdateUser(cluster=CLUSTER, user="root", status="enable"))
    assert world.apply(switch(on=True)).changed
    assert access_of(world.state, CLUSTER).enabled
    assert not access_of(world.state, "other").enabled


@pytest.mark.parametrize(
    "event",
    [
        DeleteUser(cluster=CLUSTER, user="root"),
        UpdateUser(cluster=CLUSTER, user="root", status="disable"),
        UpdateUser(cluster=CLUSTER, user="root", kind="Normal"),
    ],
)
def test_the_last_super_user_stays_while_access_is_on(
    world: World, event: DeleteUser | UpdateUser
) -> None:
    world.apply(create("root", "Super"))
    world.apply(switch(on=True))
    assert "last super user" in refused(world.apply(event))
    assert world.apply(UpdateUser(cluster=CLUSTER, user="root", secret="a-new-secret")).ok
    world.apply(create("second", "Super"))
    assert world.apply(event).changed
    world.apply(switch(on=False))
    assert world.apply(DeleteUser(cluster=CLUSTER, user="second")).changed


def test_a_snapshot_has_users_and_an_older_one_none(world: World) -> None:
    world.apply(create("root", "Super"))
    world.apply(put(make_rule("Topic:t*", ["Pub"], ["10.0.0.0/8"]), name="root"))
    world.apply(switch(on=True))
    slices = list(snapshot.take(world.state))
    again = snapshot.assemble(slices)
    assert users_of(again, CLUSTER) == users_of(world.state, CLUSTER)
    assert access_of(again, CLUSTER) == access_of(world.state, CLUSTER)
    assert again.digest() == world.state.digest()
    older = [data for data in slices if snapshot.decode(data).field not in ("users", "access")]
    before = snapshot.assemble(older)
    assert users_of(before, CLUSTER) == {}
    assert not access_of(before, CLUSTER).enabled
    assert before.digest() != world.state.digest()


def test_no_event_and_no_state_shows_a_secret(world: World) -> None:
    update = UpdateUser(cluster=CLUSTER, user="ada", secret=SECRET)
    world.apply(create())
    for shown in (repr(create()), repr(update), repr(world.state.users), str([create()])):
        assert SECRET not in shown
