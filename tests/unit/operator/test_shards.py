"""A BrokerGroup with shards: what is built, and how a resource with many groups is looked after."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_broker.host.settings import BrokerSettings
from gantry_operator import names
from gantry_operator.builders import broker_objects
from gantry_operator.models import BrokerGroup, InvalidSpecError
from gantry_operator.plan import plan
from gantry_operator.plan.actions import (
    ApplyObject,
    CheckAgain,
    Counted,
    Declare,
    DrainGroup,
    EmitEvent,
    EndDrain,
    ForgetGroup,
    LabelPod,
    ReportGone,
    RetireGroup,
    RouteTraffic,
    SetFinalizer,
    WriteStatus,
)
from gantry_operator.plan.observed import ShardView
from gantry_protocol.admin import DrainView, TierView
from gantry_protocol.admin_client.outcomes import NotDeclared, Unreachable
from gantry_protocol.tier.keys import shared_uid
from unit.operator.world import (
    CLUSTER_IP,
    IMAGE,
    NEW,
    NOW,
    OLD,
    broker_world,
    brokers,
    changed,
    controllers,
    live,
    member,
    name_of,
    of_type,
    planned,
    pod,
    settled_status,
    shard_view,
    shard_world,
    step,
    told,
    with_status,
)

BUCKET = {"url": "s3://bucket"}
AGO = (NOW - dt.timedelta(seconds=100)).strftime("%Y-%m-%dT%H:%M:%SZ")


def built(shards: int, **spec: Any) -> dict[tuple[str, str], dict[str, Any]]:
    group = brokers(shards=shards, **spec)
    made = broker_objects(group, controllers(), image=IMAGE, replicas=3, shards=shards)
    return {(one["kind"], one["metadata"]["name"]): one for one in made}


def outdated(*ordinals: int) -> tuple[Any, ...]:
    return tuple(pod(n, role=None, revision=OLD if n in ordinals else NEW) for n in range(3))


# What is built


def environment(statefulset: dict[str, Any]) -> dict[str, str]:
    (container,) = statefulset["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item.get("value", "10.0.0.9") for item in container["env"]}


def test_a_broker_is_told_of_each_shard_at_the_port_where_the_service_leads() -> None:
    objects = built(12)
    env = environment(objects["StatefulSet", "orders-broker"])
    settings = BrokerSettings(
        groups=[env["GANTRY_GROUPS"]],
        remoting_port=int(env["GANTRY_REMOTING_PORT"]),
        store_port=names.BROKER_STORE_PORT,
        controllers=["c:9878"],
    )
    ports = {
        one["port"]: one["targetPort"] for one in objects["Service", "orders"]["spec"]["ports"]
    }
    hosted = {at.name: at.port for at in settings.port_map}
    assert hosted == {names.shard("orders", n): names.FIRST_SHARD_PORT + n for n in range(12)}
    assert ports == {port: port for port in hosted.values()}
    assert {name: names.shard_port(name) for name in hosted} == hosted
    assert "GANTRY_GROUP" not in env


def test_the_most_shards_have_room_at_a_service_and_no_port_twice() -> None:
    objects = built(names.MAX_SHARDS)
    listed = objects["Service", "orders"]["spec"]["ports"]
    assert len({one["port"] for one in listed}) == len({one["name"] for one in listed}) == 100
    taken = (names.BROKER_HA_PORT, names.BROKER_HTTP_PORT, names.BROKER_STORE_PORT)
    assert not set(taken) & {one["port"] for one in listed}


def test_shards_have_neither_doors_nor_a_service_that_follows_one_master() -> None:
    assert set(built(2)) == {
        ("ConfigMap", "orders-broker"),
        ("Service", "orders-broker"),
        ("Service", "orders"),
        ("PodDisruptionBudget", "orders-broker"),
        ("NetworkPolicy", "orders-broker"),
        ("StatefulSet", "orders-broker"),
    }


def test_clients_may_come_in_at_the_ports_of_shards_and_at_no_others() -> None:
    policy = built(12)["NetworkPolicy", "orders-broker"]
    ports = [port for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert ports == [
        {"protocol": "TCP", "port": 11100, "endPort": 11111},
        {"protocol": "TCP", "port": names.BROKER_HA_PORT},
        {"protocol": "TCP", "port": names.BROKER_HTTP_PORT},
    ]


@pytest.mark.parametrize("index", [0, 7, 99])
def test_the_name_of_a_shard_says_whose_it_is(index: int) -> None:
    shard = names.shard("orders-2", index)
    assert names.resource_of(shard) == "orders-2"
    assert names.shard_port(shard) == names.FIRST_SHARD_PORT + index
    assert not names.is_group_name(shard, names.MAX_BROKER_GROUP_NAME), "no resource has its name"


@pytest.mark.parametrize("name", ["orders", "orders-2", "broker_a", "_1", "Orders_1"])
def test_other_groups_are_of_the_resource_of_their_name(name: str) -> None:
    assert names.resource_of(name) == name


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"clients": {"route": "Master"}}, "clients.route Master"),
        ({"switchover": {"id": "a"}}, "switchover moves"),
        (
            {"tier": BUCKET, "pipeline": {"audit": {"schedule": "0 3 * * *"}}},
            "pipeline reads the tier of one",
        ),
        ({"shards": 0}, "shards"),
        ({"shards": names.MAX_SHARDS + 1}, "shards"),
    ],
)
def test_what_shards_cannot_do_is_said(spec: dict[str, Any], words: str) -> None:
    body = {"metadata": {"name": "orders"}, "spec": {"shards": 2} | spec}
    with pytest.raises(InvalidSpecError, match=words):
        BrokerGroup.parse(body)


@pytest.mark.parametrize(("hosted", "wished"), [(None, 2), (2, None)])
def test_a_resource_that_is_changed_all_the_same_is_refused(
    hosted: int | None, wished: int | None
) -> None:
    before = broker_objects(brokers(), controllers(), image=IMAGE, replicas=3, shards=hosted)
    seen = broker_world(brokers(shards=wished), objects=live(before))
    assert told(seen, "Accepted")[:2] == ("False", "ImmutableFieldChanged")
    assert not of_type(planned(seen), ApplyObject, Declare)


# Steady rules


def test_nothing_is_done_where_all_is_well() -> None:
    seen = with_status(shard_world())
    assert planned(seen) == []
    assert told(seen, "Ready")[0] == "True"


def test_each_shard_is_declared_with_an_address_of_its_own() -> None:
    nobody = {n: NotDeclared() for n in range(3)}
    declared = of_type(planned(shard_world(views=nobody)), Declare)
    assert [(one.group, one.declaration.route_address) for one in declared] == [
        (f"orders_{n}", f"{CLUSTER_IP}:{11100 + n}") for n in range(3)
    ]
    assert [one.declaration.uid for one in declared] == [f"bg-uid.orders_{n}" for n in range(3)]
    assert {one.declaration.min_in_sync_replicas for one in declared} == {2}


def test_clients_of_pods_are_sent_to_the_masters_themselves() -> None:
    seen = shard_world(group=brokers(shards=3, clients={"route": "Pod"}))
    assert {one.declaration.route_address for one in of_type(planned(seen), Declare)} == {None}


def test_only_the_shard_that_differs_is_declared_again() -> None:
    other = shard_view(1, min_in_sync_replicas=1)
    declared = of_type(planned(shard_world(views={1: other})), Declare)
    assert [one.group for one in declared] == ["orders_1"]


def test_no_pod_is_called_master_or_replica() -> None:
    assert not of_type(planned(shard_world()), LabelPod)


def dead(broker_id: int) -> Any:
    return member(broker_id, alive=False)


def test_a_pod_gets_no_clients_once_all_its_members_are_lost() -> None:
    lost = {n: shard_view(n, member(1), member(2), dead(3)) for n in range(3)}
    (cut,) = of_type(planned(shard_world(views=lost)), RouteTraffic)
    assert (cut.name, cut.on) == ("orders-broker-2", False)
    lost[1] = shard_view(1)
    assert not of_type(planned(shard_world(views=lost)), RouteTraffic)


def test_a_pod_gets_clients_again_with_the_first_member_that_lives() -> None:
    lost = {n: shard_view(n, member(1), member(2), dead(3)) for n in range(2)}
    pods = (pod(0, role=None), pod(1, role=None), pod(2, role=None, traffic=False))
    (back,) = of_type(planned(shard_world(views=lost, pods=pods)), RouteTraffic)
    assert (back.name, back.on) == ("orders-broker-2", True)


def test_the_controllers_hear_of_each_member_that_ended_with_its_pod() -> None:
    pods = (pod(0, role=None), pod(1, role=None), pod(2, role=None, finished=True, running=False))
    gone = of_type(planned(shard_world(pods=pods)), ReportGone)
    assert [(one.group, one.pod_uid) for one in gone] == [
        (f"orders_{n}", "uid-2") for n in range(3)
    ]


# Rolls


def test_all_masterships_leave_a_pod_before_it_is_replaced() -> None:
    seen = shard_world(6, pods=outdated(0, 1, 2))
    assert name_of(step(seen)) == "elect 1 of orders_2, elect 2 of orders_5"
    assert "Moving masterships: orders_2 to orders-broker-0" in told(seen, "Progressing")[2]
    moved = {2: shard_view(2, master_broker_id=1), 5: shard_view(5, master_broker_id=2)}
    assert name_of(step(shard_world(6, pods=outdated(0, 1, 2), views=moved))) == "delete 2"


def test_masterships_go_where_they_need_not_leave_again() -> None:
    """To the pod that was replaced, although another one has fewer."""
    views = {n: shard_view(n, master_broker_id=m) for n, m in enumerate((1, 2, 2, 3, 3, 3))}
    assert name_of(step(shard_world(6, pods=outdated(0, 1), views=views))) == "elect 3 of orders_0"


def test_a_pod_is_deleted_by_what_was_seen_of_each_shard() -> None:
    views = {n: shard_view(n, master_broker_id=1, master_epoch=4 + n) for n in range(2)}
    deed = step(shard_world(2, pods=outdated(2), views=views))
    assert getattr(deed, "shards", None) == (
        Counted("orders_0", 4, (1, 2, 3)),
        Counted("orders_1", 5, (1, 2, 3)),
    )
    assert getattr(deed, "master_epoch", 0) is None


def behind(index: int, broker_id: int, **facts: Any) -> Any:
    members = [member(n, in_sync=n != broker_id) for n in (1, 2, 3)]
    return shard_view(index, *members, **facts)


def test_a_roll_waits_until_every_shard_is_whole_again() -> None:
    masters = {n: shard_view(n, master_broker_id=1) for n in range(3)}
    late = masters | {1: behind(1, 3, master_broker_id=1)}
    seen = shard_world(pods=outdated(0, 1), views=late)
    assert step(seen) is None
    assert (
        "orders-broker-2 is not in the sync-state set of orders_1 yet"
        in (told(seen, "Progressing")[2])
    )
    assert name_of(step(shard_world(pods=outdated(0, 1), views=masters))) == "delete 1"


def test_a_roll_waits_for_a_shard_that_cannot_spare_the_pod() -> None:
    """Pod 2 lacks something in one shard, and would go first; another one has nobody else."""
    views = {
        0: behind(0, 3, master_broker_id=1),
        1: shard_view(1, member(1, draining=True), member(2), member(3), master_broker_id=3),
        2: shard_view(2, master_broker_id=1),
    }
    seen = shard_world(pods=outdated(0, 1, 2), views=views)
    assert step(seen) is None, "no mastership moves for a pod that has to stay"
    assert told(seen, "Progressing")[2] == (
        "Waiting to replace orders-broker-2: without it 1 replicas of orders_1 would be in sync "
        "and 2 are needed."
    )


def test_what_lacks_something_is_replaced_first() -> None:
    masters = {n: shard_view(n, master_broker_id=2) for n in range(3)}
    late = masters | {1: behind(1, 1, master_broker_id=2)}
    assert name_of(step(shard_world(pods=outdated(0, 1, 2), views=late))) == "delete 0"


def test_a_pod_whose_member_is_not_known_stays() -> None:
    unknown = {1: shard_view(1, member(1), member(2))}
    seen = shard_world(pods=outdated(2), views=unknown)
    assert step(seen) is None
    assert "its member of orders_1" in told(seen, "Progressing")[2]


@pytest.mark.parametrize("known", [NotDeclared(), Unreachable("down")])
def test_no_pod_goes_while_one_shard_cannot_be_seen(known: Any) -> None:
    assert step(shard_world(pods=outdated(0, 1, 2), views={1: known})) is None


def test_replicas_go_once_every_shard_can_spare_them() -> None:
    group = brokers(shards=2, replicas=2)
    masters = {n: shard_view(n, master_broker_id=3) for n in range(2)}
    made = live(broker_objects(group, controllers(), image=IMAGE, replicas=3, shards=2))
    down: dict[str, Any] = {"group": group, "objects": made}
    moving = step(shard_world(2, views=masters, **down))
    assert name_of(moving) == "elect 1 of orders_0, elect 2 of orders_1"
    free = {n: shard_view(n, master_broker_id=1) for n in range(2)}
    assert name_of(step(shard_world(2, views=free, **down))) == "scale 2"
    late = free | {1: behind(1, 2, master_broker_id=1)}
    seen = shard_world(2, views=late, **down)
    assert step(seen) is None
    assert "replicas of orders_1 would be in sync" in told(seen, "Progressing")[2]


# Growth


def grown(*pods: int, views: dict[int, Any]) -> Any:
    """A third shard is added; only these pods host it yet."""
    seen = tuple(
        pod(n, role=None, shards=3 if n in pods else 2, revision=NEW if n in pods else OLD)
        for n in range(3)
    )
    return shard_world(3, views=views, pods=seen)


def test_pods_are_told_of_a_shard_that_is_added_and_it_is_declared() -> None:
    seen = shard_world(3, hosted=2, views={2: NotDeclared()})
    actions = planned(seen)
    (statefulset,) = (
        one.manifest
        for one in of_type(actions, ApplyObject)
        if one.manifest["kind"] == "StatefulSet"
    )
    assert environment(statefulset)["GANTRY_GROUPS"] == "orders_[0-2]"
    assert statefulset["spec"]["template"]["metadata"]["labels"][names.LABEL_SHARDS] == "3"
    (declared,) = of_type(actions, Declare)
    assert (declared.group, declared.declaration.replicas) == ("orders_2", 3)
    assert step(seen) is None


def test_clients_are_led_to_the_service_of_a_shard_once_every_pod_hosts_it() -> None:
    new = {2: shard_view(2, route_address=None)}
    assert not of_type(planned(grown(1, 2, views=new)), Declare)
    (declared,) = of_type(planned(grown(0, 1, 2, views=new)), Declare)
    assert declared.declaration.route_address == f"{CLUSTER_IP}:11102"
    assert not of_type(planned(grown(1, 2, views={})), Declare), "who has it keeps it"


def unborn(*members: Any) -> dict[int, Any]:
    facts: dict[str, Any] = {"master_broker_id": None, "master_epoch": 0, "sync_state_set": []}
    return {2: shard_view(2, *members, route_address=None, **facts)}


def test_a_roll_does_not_wait_for_the_first_master_of_a_shard_that_it_brings() -> None:
    views = unborn(member(3)) | {1: shard_view(1, master_broker_id=1)}
    assert name_of(step(grown(2, views=views))) == "delete 1"


def test_a_pod_that_does_not_host_a_shard_yet_is_free_to_go() -> None:
    """Its first master is there, with one copy, and the pod is to bring another one."""
    one = shard_view(2, member(2), member(3), master_broker_id=2, route_address=None)
    views = {n: shard_view(n, master_broker_id=2) for n in range(2)} | {2: one}
    assert name_of(step(grown(1, 2, views=views))) == "delete 0"
    late = shard_view(2, member(2), member(3, in_sync=False), master_broker_id=2)
    seen = grown(1, 2, views=views | {2: late})
    assert step(seen) is None
    assert "sync-state set of orders_2" in told(seen, "Progressing")[2]


def test_where_no_shard_had_a_master_all_are_waited_for() -> None:
    views = {n: unborn(member(3))[2] for n in range(3)}
    assert step(grown(2, views=views)) is None


# Fewer

BEGAN = int(NOW.timestamp() * 1000) - 100_000


def fewer(views: dict[int, Any], wished: int = 2, **spec: Any) -> Any:
    """Two of four shards are wished."""
    group = brokers(shards=wished, **spec)
    return shard_world(wished, hosted=4, group=group, views=views)


def leaving(index: int, *, unread: int = 0, **facts: Any) -> Any:
    return drained(index, unread=unread, **({"drain_began_ms": BEGAN} | facts))


def hosted_by(seen: Any) -> str | None:
    """The shards that new pods would host; None if nothing is applied."""
    for one in of_type(planned(seen), ApplyObject):
        if one.manifest["kind"] == "StatefulSet":
            return environment(one.manifest)["GANTRY_GROUPS"]
    return None


def test_shards_that_are_not_wished_are_drained_while_pods_host_them() -> None:
    first = fewer({n: shard_view(n, has_others=True) for n in (2, 3)})
    assert deeds(first) == [], "the status says first whose drain it will be"
    seen = with_status(first)
    assert deeds(seen) == [
        DrainGroup(uid=f"bg-uid.orders_{n}", group=f"orders_{n}") for n in (2, 3)
    ]
    assert hosted_by(seen) is None
    assert told(seen, "Progressing")[1:] == ("Draining", "Shard orders_2 is to be drained.")
    assert told(seen, "Accepted")[0] == "True"


def test_a_shard_whose_drain_is_refused_is_named() -> None:
    """Before one that is drained: it waits for people."""
    seen = fewer({2: leaving(2, unread=40), 3: shard_view(3, has_others=True)})
    status, reason, text = told(
        changed(seen, refused_drains={"orders_3": "OLD: too old."}), "Progressing"
    )
    assert (status, reason) == ("False", "DrainRefused")
    assert text.startswith(
        "Before it goes shard orders_3 is to be drained, and that failed: OLD: too"
    )
    assert told(seen, "Progressing")[1] == "Draining"


def test_queues_that_move_are_told_of_their_shard() -> None:
    """Sums would say nothing of queues that move from one shard to another."""
    facts = {1: {"queues": 4, "queues_wished": 6}, 2: {"queues": 6, "queues_wished": 4}}
    seen = shard_world(3, views={n: shard_view(n, **known) for n, known in facts.items()})
    status, reason, text = told(seen, "QueuesMoving")
    assert (status, reason) == ("True", "QueuesMoving")
    assert text == (
        "orders_1: It has 4 queues of mapped topics, and is to have 6. "
        "So 1 more have others than they are to have."
    )


def test_each_goes_when_nothing_is_left_and_pods_change_after_the_last() -> None:
    seen = fewer({2: leaving(2, unread=40), 3: leaving(3)})
    assert deeds(seen) == [RetireGroup(uid="bg-uid.orders_3", group="orders_3")]
    drain = settled_status(seen)["drain"]
    assert (drain["progress"], drain["shards"]) == ("40 left", ["orders_2", "orders_3"])
    assert drain["deadline"] == (NOW - dt.timedelta(seconds=100) + dt.timedelta(hours=72)).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )
    assert "orders_2 is drained: 40 messages" in told(seen, "Progressing")[2]
    done = fewer({2: leaving(2), 3: leaving(3)})
    assert told(done, "Progressing")[2] == "Shard orders_2 goes: nobody is led there again."
    assert of_type(planned(done), CheckAgain)
    assert settled_status(done)["drain"]["message"].startswith("Nothing is left")
    last = fewer({2: leaving(2, unread=40), 3: shard_view(3, retired=True)})
    assert hosted_by(last) == "orders_[0-2]"
    assert not of_type(planned(last), Declare), "what is retired stays so"
    gone = fewer({n: shard_view(n, retired=True) for n in (2, 3)})
    assert hosted_by(gone) == "orders_[0-1]"
    assert "drain" not in settled_status(gone)


def test_a_later_shard_stays_on_the_pods_for_an_earlier_one_and_is_retired_once() -> None:
    seen = fewer({2: shard_view(2, retired=True), 3: leaving(3, unread=1)})
    assert hosted_by(seen) is None
    assert deeds(seen) == []


def test_the_deadline_ends_the_wait() -> None:
    left = {2: leaving(2, unread=40), 3: shard_view(3, retired=True)}
    soon, over = ({"deadlineSeconds": seconds} for seconds in (101, 100))
    assert of_type(planned(fewer(left, drain=soon)), RetireGroup) == []
    late = fewer(left, drain=over)
    assert of_type(planned(late), RetireGroup) == [
        RetireGroup(uid="bg-uid.orders_2", group="orders_2")
    ]
    assert "orders_2 goes with 40 left, which nobody consumed in time." in {
        one.note for one in of_type(planned(late), EmitEvent)
    }


def test_without_a_deadline_nothing_is_drained() -> None:
    serving = {n: shard_view(n, has_others=True) for n in (2, 3)}
    seen = fewer(serving, drain={"deadlineSeconds": 0})
    assert deeds(seen) == [
        RetireGroup(uid=f"bg-uid.orders_{n}", group=f"orders_{n}") for n in (2, 3)
    ]


def test_a_shard_that_never_had_a_master_just_goes() -> None:
    new = shard_view(3, master_broker_id=None, master_epoch=0, sync_state_set=[])
    seen = fewer({2: shard_view(2, retired=True), 3: new})
    assert deeds(seen) == [RetireGroup(uid="bg-uid.orders_3", group="orders_3")]


@pytest.mark.parametrize("known", [NotDeclared(), shard_view(2, uid="another")])
def test_what_is_not_ours_is_not_waited_for(known: Any) -> None:
    assert hosted_by(fewer({2: known, 3: NotDeclared()})) == "orders_[0-1]"


def test_nothing_leaves_on_no_word_of_the_controllers() -> None:
    silent = {n: Unreachable("down") for n in (2, 3)}
    seen = fewer(silent)
    assert deeds(seen) == []
    assert hosted_by(seen) is None
    assert told(seen, "Progressing")[1] == "ControllerUnreachable"


def test_the_last_shards_that_take_messages_are_kept() -> None:
    alone = {n: shard_view(n, has_others=False) for n in (2, 3)}
    seen = fewer(alone)
    assert not of_type(planned(seen), RetireGroup)
    assert "no other group of the cluster takes messages" in told(seen, "Progressing")[2]


def test_a_paused_resource_keeps_its_shards() -> None:
    assert deeds(fewer({2: leaving(2), 3: leaving(3)}, paused=True)) == []


def test_a_shard_that_is_wished_again_takes_messages_again() -> None:
    before = with_status(fewer({2: leaving(2, unread=40), 3: leaving(3, unread=2)}))
    wished = brokers(shards=3)
    back = changed(before, group=wished)
    assert deeds(back) == [EndDrain(group="orders_2")]
    assert settled_status(back)["drain"]["shards"] == ["orders_2", "orders_3"]
    assert deeds(with_status(back)) == deeds(back), "until it has ended"
    kept = ShardView("orders_2", shard_view(2))
    ended = changed(back, shards=(*back.shards[:2], kept, *back.shards[3:]))
    assert settled_status(ended)["drain"]["shards"] == ["orders_3"]
    assert deeds(changed(back, previous=None)) == [], "somebody else drains it"


def test_a_shard_that_is_wished_again_right_after_its_drain_began_takes_messages_again() -> None:
    """No status was written since, and the operator may be another one."""
    before = with_status(fewer({n: shard_view(n, has_others=True) for n in (2, 3)}))
    assert DrainGroup(uid="bg-uid.orders_3", group="orders_3") in deeds(before)
    drained_now = (*before.shards[:3], ShardView("orders_3", leaving(3, unread=2)))
    back = changed(before, group=brokers(shards=4), shards=drained_now)
    assert deeds(back) == [EndDrain(group="orders_3")]
    assert of_type(planned(back), CheckAgain), "until it has ended"
    status = settled_status(back)["drain"]
    assert (status["shards"], status["message"]) == (
        ["orders_3"],
        "Shard orders_3 is wished again and is to take messages again.",
    )
    over = changed(with_status(back), shards=before.shards)
    assert deeds(over) == []
    assert "drain" not in settled_status(over)


def test_a_retired_shard_that_is_wished_again_is_declared_again() -> None:
    seen = fewer({2: shard_view(2, retired=True), 3: shard_view(3, retired=True)}, wished=3)
    (declared,) = of_type(planned(seen), Declare)
    assert declared.group == "orders_2"


def test_the_status_is_about_the_shards_that_stay() -> None:
    status = settled_status(fewer({2: leaving(2), 3: behind(3, 1, has_others=True)}))
    assert status["shards"]["ready"] == "2/2"
    assert status["inSync"] == "3/3"


def test_a_roll_counts_on_a_shard_until_it_is_retired() -> None:
    masters = {n: shard_view(n, master_broker_id=1) for n in range(3)}
    late = leaving(3, unread=1, master_broker_id=1, sync_state_set=[1, 2])
    pods = tuple(pod(n, role=None, shards=4, revision=OLD if n < 2 else NEW) for n in range(3))
    group = brokers(shards=3)
    seen = shard_world(3, hosted=4, group=group, views=masters | {3: late}, pods=pods)
    assert step(seen) is None
    assert "sync-state set of orders_3" in told(seen, "Progressing")[2]
    retired = masters | {3: shard_view(3, retired=True, sync_state_set=[1, 2])}
    seen = shard_world(3, hosted=4, group=group, views=retired, pods=pods)
    assert name_of(step(seen)) == "delete 1"


# Status


def test_the_status_sums_up() -> None:
    status = settled_status(shard_world(4))
    assert status["shards"] == {
        "count": 4,
        "readyCount": 4,
        "ready": "4/4",
        "masters": [
            {"pod": "orders-broker-0", "masters": 2},
            {"pod": "orders-broker-1", "masters": 1},
            {"pod": "orders-broker-2", "masters": 1},
        ],
    }
    assert (status["inSync"], status["inSyncReplicas"]) == ("3/3", [0, 1, 2])
    assert "master" not in status
    assert status["members"] == []


def test_the_worst_shard_is_named() -> None:
    late, leaderless = behind(1, 3), shard_view(2, master_broker_id=None, no_master_reason="why")
    seen = shard_world(4, views={1: late, 2: leaderless})
    status = settled_status(seen)
    assert status["shards"]["ready"] == "2/4"
    assert status["shards"]["worst"]["name"] == "orders_2"
    assert status["shards"]["worst"]["condition"] == "Available"
    assert told(seen, "Available") == (
        "False",
        "ElectionHeldBack",
        "orders_2: Nobody is elected: why.",
    )
    assert told(seen, "FullyReplicated")[2] == "orders_1: 2 of 3 replicas are in sync."
    assert told(seen, "Ready")[2] == told(seen, "Available")[2]
    assert (status["inSync"], status["inSyncReplicas"]) == ("2/3", [0, 1])


def test_it_is_said_how_many_more_are_so() -> None:
    seen = shard_world(4, views={n: behind(n, 3) for n in range(3)})
    assert told(seen, "FullyReplicated")[2].endswith("in sync. So it is with 2 more.")


def test_controllers_that_do_not_answer_leave_the_sum_as_it_was() -> None:
    before = with_status(shard_world(4))
    silent = Unreachable("x")
    shards = (*before.shards[:3], ShardView("orders_3", silent))
    seen = changed(before, shards=shards, view=silent)
    assert told(seen, "Available")[:2] == ("Unknown", "ControllerUnreachable")
    assert settled_status(seen)["shards"]["ready"] == "4/4"


def test_damage_names_the_shard_and_a_full_disk_the_pod_once() -> None:
    bad = {
        n: shard_view(n, member(1, disk_stuck="full"), member(2, log_damage="torn"), member(3))
        for n in range(2)
    }
    seen = shard_world(2, views=bad)
    assert told(seen, "DiskFull")[2] == "orders-broker-0 has no room: full."
    assert (
        "The log of orders-broker-1 in orders_1 is damaged: torn." in (told(seen, "LogDamaged")[2])
    )


def test_a_minimum_that_is_to_rise_names_its_shard() -> None:
    late = shard_view(1, member(1), member(2), member(3, in_sync=False), min_in_sync_replicas=2)
    group = brokers(shards=3, replication={"minInSyncReplicas": 3})
    seen = shard_world(3, group=group, views={1: late})
    assert "orders_1: minInSyncReplicas stays 2" in told(seen, "Progressing")[2]


# The tier

TIER: dict[str, Any] = {"state": "uploading", "epoch": 4, "version": 1, "committed_offset": 100}


def uploading(index: int, **facts: Any) -> Any:
    tier = TierView(**(TIER | facts))
    lead = index % 3 + 1
    members = [member(n, tier=tier if n == lead else None) for n in (1, 2, 3)]
    return shard_view(index, *members)


def tiered(**views: Any) -> Any:
    known = {n: uploading(n) for n in range(3)} | {int(key[1:]): v for key, v in views.items()}
    return shard_world(group=brokers(shards=3, tier=BUCKET), views=known)


def test_a_broker_with_shards_is_told_of_the_tier() -> None:
    env = environment(built(2, tier=BUCKET)["StatefulSet", "orders-broker"])
    settings = BrokerSettings(
        groups=[env["GANTRY_GROUPS"]],
        remoting_port=int(env["GANTRY_REMOTING_PORT"]),
        tier_url=env["GANTRY_TIER_URL"],
        tier_shard=env["GANTRY_TIER_SHARD"],
        controllers=["c:9878"],
    )
    declared = of_type(planned(tiered(_0=NotDeclared())), Declare)
    assert settings.tier_shard is not None
    assert declared[0].declaration.uid == shared_uid(settings.tier_shard, "orders_0")


def test_the_tier_is_healthy_while_every_shard_uploads() -> None:
    assert told(tiered(), "TierHealthy") == (
        "True",
        "Uploading",
        "The master of each of 3 shards uploads.",
    )


def test_the_shard_that_does_not_upload_is_named() -> None:
    late = uploading(1, epoch=3)
    assert told(tiered(_1=late), "TierHealthy")[0] == "Unknown"
    stalled = uploading(2, state="stalled", reason="no bucket")
    assert told(tiered(_1=late, _2=stalled), "TierHealthy") == (
        "False",
        "Stalled",
        "orders_2: orders-broker-2 has not been able to upload for a minute: no bucket.",
    )


def test_the_progress_of_shards_is_a_sum() -> None:
    seen = tiered(_1=uploading(1, lag_ms=7000))
    tier = settled_status(seen)["tier"]
    assert (tier["epoch"], tier["committedOffset"], tier["lagSeconds"]) == (0, 300, 7)
    assert not [one for one in of_type(planned(seen), EmitEvent) if one.reason == "TierClaimed"]


def test_what_was_uploaded_once_stays_so_for_the_place_to_stay_fixed() -> None:
    before = with_status(tiered())
    later = NOW + dt.timedelta(minutes=1)
    nothing = {n: uploading(n, committed_offset=None) for n in range(3)}
    seen = shard_world(
        group=brokers(shards=3, tier=BUCKET), views=nothing, previous=before.previous
    )
    (status,) = [one.status for one in plan(seen, later) if isinstance(one, WriteStatus)]
    assert status["tier"]["committedOffset"] == 300


# Deletion


def deletion(*finalizers: str, views: dict[int, Any], **facts: Any) -> Any:
    head = {"finalizers": finalizers, "deletionTimestamp": AGO}
    return shard_world(3, head=head, views=views, **facts)


def deeds(seen: Any) -> list[Any]:
    return [
        one for one in plan(seen, NOW) if not isinstance(one, WriteStatus | EmitEvent | CheckAgain)
    ]


def drained(index: int, *, unread: int = 0, **facts: Any) -> Any:
    left = DrainView(
        done=unread == 0,
        unread=unread,
        parked=0,
        transactions=0,
        waits_for=f"{unread} messages of t wait" if unread else "",
    )
    members = [member(n, drain=left) for n in (1, 2, 3)]
    return shard_view(index, *members, **({"drain_began_ms": 1, "has_others": True} | facts))


def test_every_shard_is_drained_before_the_resource_goes() -> None:
    serving = {n: shard_view(n, has_others=True) for n in range(3)}
    seen = deletion(names.DRAIN_FINALIZER, views=serving, neighbours=True)
    assert deeds(seen) == [
        DrainGroup(uid=f"bg-uid.orders_{n}", group=f"orders_{n}") for n in range(3)
    ]


def test_the_last_shard_is_waited_for_and_named() -> None:
    some = {0: drained(0), 1: drained(1, unread=40), 2: drained(2, unread=2)}
    seen = deletion(names.DRAIN_FINALIZER, views=some, neighbours=True)
    assert deeds(seen) == []
    drain = settled_status(seen)["drain"]
    assert (drain["progress"], drain["unread"]) == ("42 left", 42)
    assert "Before it goes shard orders_1 is drained: 40 messages of t wait" in drain["message"]
    done = {n: drained(n) for n in range(3)}
    assert deeds(deletion(names.DRAIN_FINALIZER, views=done, neighbours=True)) == [
        *(RetireGroup(uid=f"bg-uid.orders_{n}", group=f"orders_{n}") for n in range(3)),
        SetFinalizer(present=False, finalizers=(), resource_version="7"),
    ]


def test_the_controllers_forget_every_shard_that_they_know() -> None:
    retired = {n: shard_view(n, retired=True) for n in range(3)}
    gone: dict[str, Any] = {"objects": {}, "pods": ()}
    views = retired | {1: NotDeclared(), 2: shard_view(2, retired=True, uid="another")}
    assert deeds(deletion(names.FINALIZER, views=views, **gone)) == [
        ForgetGroup(uid="bg-uid.orders_0", group="orders_0")
    ]
    views[0] = NotDeclared()
    assert deeds(deletion(names.FINALIZER, views=views, **gone)) == [
        SetFinalizer(present=False, finalizers=(), resource_version="7")
    ]
    views[1] = Unreachable("down")
    assert deeds(deletion(names.FINALIZER, views=views, **gone)) == []
