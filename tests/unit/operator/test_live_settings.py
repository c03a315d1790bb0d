"""Settings that brokers apply while running: no pod restarts, and nothing is claimed unseen."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.builders import broker_objects
from gantry_operator.builders.config import NEWEST_LIVE
from gantry_operator.models import BrokerGroup, BrokerGroupStatus
from gantry_operator.plan import plan
from gantry_operator.plan.actions import ApplyObject, RenewFiles, WriteStatus
from gantry_operator.plan.foresight import foresee
from gantry_operator.plan.observed import BrokerObserved
from gantry_operator.plan.supposed import after
from gantry_protocol.process.config import fingerprint
from gantry_protocol.settings.broker import LIVE, LIVE_SINCE, BrokerTuning, RetentionSettings
from unit.operator.world import (
    IMAGE,
    NOW,
    broker_world,
    brokers,
    changed,
    controllers,
    live,
    member,
    pod,
    view,
)

QUOTAS = {"quotas": '{"perTenant": {"sendsPerSecond": 5}}'}
LATER = NOW + dt.timedelta(minutes=5)


def made(
    group: BrokerGroup, *, knows: bool = True, image: str = IMAGE, word: str = NEWEST_LIVE
) -> list[dict[str, Any]]:
    word = word if knows else ""
    return broker_objects(group, controllers(), image=image, replicas=3, live=word)


def file_of(manifests: Any) -> str:
    (found,) = [one for one in manifests if one["kind"] == "ConfigMap"]
    return str(found["data"][names.CONFIG_KEY])


def print_of(group: BrokerGroup) -> str:
    return fingerprint(file_of(made(group)).encode())


def telling(*prints: str, **facts: Any) -> Any:
    return view(*(member(n + 1, settings=told, **facts) for n, told in enumerate(prints)))


def wishing(before: BrokerGroup, after_it: BrokerGroup, known: Any = None) -> BrokerObserved:
    """A world made of one wish, in which there is another now."""
    said = known or telling(*[print_of(before)] * 3)
    return changed(broker_world(before, known=said), group=after_it, meta=after_it.metadata)


def applied(seen: BrokerObserved) -> list[dict[str, Any]]:
    return [one.manifest for one in plan(seen, NOW) if isinstance(one, ApplyObject)]


def template(manifest: dict[str, Any]) -> str:
    return str(manifest["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


def written(seen: BrokerObserved, now: dt.datetime = NOW) -> BrokerObserved:
    for action in plan(seen, now):
        if isinstance(action, WriteStatus):
            previous = BrokerGroupStatus.model_validate(action.status)
            seen = changed(seen, live_status=action.status, previous=previous)
    return seen


def put(seen: BrokerObserved) -> BrokerObserved:
    """The world after objects were applied; brokers have read nothing yet."""
    said = seen.view
    for action in plan(seen, NOW):
        if isinstance(action, ApplyObject):
            seen = after(seen, action, lambda _new, _live: False)  # type: ignore[assignment]
    return changed(seen, view=said)


def condition(seen: BrokerObserved, name: str = "Progressing") -> tuple[str, str, str]:
    (found,) = [one for one in seen.live_status["conditions"] if one["type"] == name]
    return found["status"], found["reason"], found["message"]


def test_every_live_setting_is_one_of_a_resource() -> None:
    assert BrokerTuning.model_fields.keys() | RetentionSettings.model_fields.keys() >= LIVE
    never = ("port", "name", "tier_url", "heartbeat", "segment", "lock", "repeat")
    assert [key for key in LIVE if any(word in key for word in never)] == []


@pytest.mark.parametrize("key", sorted(LIVE - RetentionSettings.model_fields.keys()))
def test_a_live_key_is_no_part_of_the_template(key: str) -> None:
    before, after_it = made(brokers()), made(brokers(config={key: "1"}))
    assert template(before[-1]) == template(after_it[-1])
    assert file_of(before) != file_of(after_it)
    older = [made(group, knows=False)[-1] for group in (brokers(), brokers(config={key: "1"}))]
    assert template(older[0]) != template(older[1]), "an older image has it by a restart"


@pytest.mark.parametrize("kept", [{"hours": 5}, {"bytes": 1 << 20}, {"whenFull": "Refuse"}])
def test_retention_is_no_part_of_the_template(kept: dict[str, Any]) -> None:
    before, after_it = made(brokers()), made(brokers(retention=kept))
    assert template(before[-1]) == template(after_it[-1])
    assert file_of(before) != file_of(after_it)


def test_other_keys_restart_pods_whatever_changes_with_them() -> None:
    hours = {"hours": 5}
    plain = template(made(brokers())[-1])
    both = template(made(brokers(config=QUOTAS | {"lock_wait_s": "1"}, retention=hours))[-1])
    alone = template(made(brokers(config={"lock_wait_s": "1"}))[-1])
    assert plain != both == alone


@pytest.mark.parametrize(
    "spec", [{}, {"config": QUOTAS}, {"retention": {"hours": 5}}], ids=["bare", "config", "hours"]
)
def test_an_upgrade_of_the_operator_restarts_nothing(spec: dict[str, Any]) -> None:
    """A group that an older operator wrote stays as it is, letter by letter, with its image."""
    group = brokers(**spec)
    older = live(made(group, knows=False))
    seen = broker_world(group, objects=older, known=telling("", "", ""))
    assert [one["kind"] for one in applied(seen)] == []
    # It has a change by a roll, and with the next image it learns to do without.
    other = brokers(**spec | {"config": {"max_batch_messages": "7"}})
    (config, workload) = applied(changed(seen, group=other))
    assert (config["kind"], workload["kind"]) == ("ConfigMap", "StatefulSet")
    assert names.ANNOTATION_LIVE not in workload["metadata"]["annotations"]
    new = [one for one in applied(changed(seen, image="gantry:2")) if one["kind"] == "StatefulSet"]
    assert new[0]["metadata"]["annotations"][names.ANNOTATION_LIVE] == NEWEST_LIVE


TRACED = {"tracing_endpoint": "http://collector:4318", "tracing_ratio": "0.5"}


def test_what_images_apply_only_grows() -> None:
    for before, after_it in pairwise(LIVE_SINCE.values()):
        assert before < after_it
    assert LIVE_SINCE[NEWEST_LIVE] == LIVE


def test_an_image_that_applies_less_has_the_rest_by_a_roll() -> None:
    """It would say that it has the file, and trace nothing."""
    older = live(made(brokers(config=TRACED), word="known"))
    seen = broker_world(brokers(config=TRACED), objects=older)
    assert applied(seen) == [], "an upgrade of the operator restarts nothing"
    off = changed(seen, group=brokers())
    (_, workload) = applied(off)
    assert workload["metadata"]["annotations"][names.ANNOTATION_LIVE] == "known"
    assert template(workload) != template(made(brokers(config=TRACED), word="known")[-1])
    others = changed(seen, group=brokers(config=TRACED | QUOTAS))
    assert [one["kind"] for one in applied(others)] == ["ConfigMap"], "quotas it knows"
    found = foresee(others, NOW, lambda world, now: plan(world, now, announces=False))
    assert "Change settings quotas:" in found.steps[0].message
    # With the next image it learns; from then on tracing is switched by the file alone.
    new = changed(seen, image="gantry:2")
    (workload,) = applied(new)
    assert workload["metadata"]["annotations"][names.ANNOTATION_LIVE] == NEWEST_LIVE
    knows = broker_world(
        brokers(), objects=live(made(brokers(config=TRACED), image="gantry:2")), image="gantry:2"
    )
    assert [one["kind"] for one in applied(knows)] == ["ConfigMap"]


def test_a_word_of_a_newer_operator_names_all_that_this_one_knows() -> None:
    seen = broker_world(brokers(config=TRACED), objects=live(made(brokers(), word="newer")))
    assert [one["kind"] for one in applied(seen)] == ["ConfigMap"]


def test_a_live_change_applies_the_file_alone() -> None:
    for after_it in (brokers(config=QUOTAS), brokers(retention={"hours": 5})):
        assert [one["kind"] for one in applied(wishing(brokers(), after_it))] == ["ConfigMap"]


def test_a_change_is_finished_once_every_broker_says_so() -> None:
    before, after_it = brokers(), brokers({"generation": 2}, config=QUOTAS)
    old, new = print_of(before), print_of(after_it)
    seen = written(put(written(wishing(before, after_it))))
    change = seen.live_status["lastChange"]  # type: ignore[index]
    assert (change["kind"], change["id"], change["steps"]) == ("ApplySettings", "2", 3)
    assert condition(seen)[:2] == ("True", "ApplyingSettings")
    assert "orders-broker-0, orders-broker-1, orders-broker-2" in condition(seen)[2]
    seen = written(changed(seen, view=telling(new, old, new)), LATER)
    assert "still to come: orders-broker-1." in condition(seen)[2]
    # Who says nothing any more has not said that it has them.
    seen = written(changed(seen, view=telling(new, "", new)), LATER)
    assert "still to come: orders-broker-1." in condition(seen)[2]
    assert "finishedAt" not in seen.live_status["lastChange"]  # type: ignore[index]
    dead = view(member(1, settings=new), member(2, settings=new, alive=False), member(3))
    seen = written(changed(seen, view=dead), LATER)
    assert "orders-broker-1, orders-broker-2" in condition(seen)[2]
    seen = written(changed(seen, view=telling(new, new, new)), LATER)
    assert condition(seen)[1] == "Settled"
    assert seen.live_status["lastChange"]["finishedAt"] == "2026-11-21T12:05:00Z"  # type: ignore[index]


def test_brokers_of_whom_nothing_is_known_are_waited_for_by_nobody() -> None:
    """Controllers of an older version pass nothing on; that is no evidence of anything."""
    seen = written(put(wishing(brokers(), brokers(config=QUOTAS), telling("", "", ""))))
    assert condition(seen)[1] == "Settled"
    assert "lastChange" not in seen.live_status  # type: ignore[operator]


def test_kubelets_are_asked_once_to_renew_the_files_of_a_pod() -> None:
    before, after_it = brokers(), brokers(config=QUOTAS)
    old, new = print_of(before), print_of(after_it)
    seen = wishing(before, after_it)

    def renewed(world: BrokerObserved) -> list[str]:
        return [one.name for one in plan(world, NOW) if isinstance(one, RenewFiles)]

    assert renewed(seen) == [], "the new file is not there yet"
    there = changed(
        seen,
        objects=live(made(after_it)),
        view=view(member(1, settings=old), member(2, settings=new), member(3)),
    )
    assert renewed(there) == ["orders-broker-0"], "one has it, of one nobody knows"
    for action in plan(there, NOW):
        there = after(there, action, lambda _new, _live: False)  # type: ignore[assignment]
    assert there.pods[0].files == new
    assert renewed(there) == []
    older = live(made(after_it, knows=False))
    assert renewed(changed(there, objects=older, pods=seen.pods)) == []


def test_what_a_broker_refuses_is_told_in_its_words() -> None:
    """Where the operator was told not to judge, since the image is of another version."""
    unchecked = {names.ANNOTATION_UNCHECKED: "true"}
    after_it = brokers({"annotations": unchecked}, config={"disk_take_percent": "99"})
    words = "disk_take_percent 99 must be below disk_refuse_percent 90."
    said = telling(*[print_of(brokers())] * 3, settings_refused=words)
    seen = written(put(wishing(brokers(), after_it, said)))
    status, reason, message = condition(seen)
    assert (status, reason) == ("False", "SettingsRefused")
    assert "must be below disk_refuse_percent 90. Change them." in message
    assert condition(seen, "Ready")[:2] == ("False", "SettingsRefused")
    assert seen.live_status["summary"] == "Settings not applied"  # type: ignore[index]
    back = written(changed(seen, group=brokers(), view=telling(*[print_of(brokers())] * 3)))
    assert condition(back, "Ready")[0] == "True"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"max_batch_messages": "many"},
            "spec.config.max_batch_messages: a whole number is needed (got 'many')",
        ),
        (
            {"disk_take_percent": "99"},
            "spec.config: disk_take_percent 99 must be below disk_refuse_percent 90; change one",
        ),
        ({"tracing_endpoint": "collector:4318"}, "spec.config.tracing_endpoint: "),
        ({"tracing_ratio": "2"}, "spec.config.tracing_ratio: at most 1 is possible"),
    ],
)
def test_a_wrong_value_is_refused_before_any_broker_hears_of_it(
    config: dict[str, str], words: str
) -> None:
    seen = wishing(brokers(), brokers(config=config))
    assert applied(seen) == []
    assert words in condition(written(seen), "Accepted")[2]


def test_a_live_change_is_foreseen_without_a_restart() -> None:
    seen = wishing(brokers(), brokers(config=QUOTAS, retention={"hours": 5}))
    found = foresee(seen, NOW, lambda world, now: plan(world, now, announces=False))
    assert [step.message for step in found.steps] == [
        "Change settings quotas, retention_hours: applied while running, no pod restarts."
    ]
    assert (found.disruptive, found.waits, found.gap_ms) == ((), "", 0)


def test_a_live_change_waits_for_no_approval_and_the_file_for_a_new_image_does() -> None:
    supervised = {"update": {"strategy": "Supervised"}}
    seen = wishing(brokers(**supervised), brokers(config=QUOTAS, **supervised))
    assert [one["kind"] for one in applied(seen)] == ["ConfigMap"]
    # The present image does not know: until the next one is approved, its file stays as it is.
    group = brokers(retention={"hours": 5}, **supervised)
    seen = broker_world(group, objects=live(made(group, knows=False)), image="gantry:2")
    assert [one["kind"] for one in applied(seen)] == []


def test_a_pod_that_is_made_meanwhile_is_waited_for_only_if_it_says_otherwise() -> None:
    new = print_of(brokers())
    seen = broker_world(
        known=view(member(1, settings=new), member(2, settings=new), member(3)),
        pods=tuple(pod(n) for n in range(3)),
    )
    assert condition(written(seen))[1] == "Settled"
