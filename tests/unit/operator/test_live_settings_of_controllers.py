"""Settings that controllers apply while running: no quorum is rolled, nothing claimed unseen."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.builders import controller_objects
from gantry_operator.builders.config import NEWEST_LIVE_OF_CONTROLLERS
from gantry_operator.models import ControllerGroup, ControllerGroupStatus
from gantry_operator.plan import plan
from gantry_operator.plan.actions import ApplyObject, CheckAgain, RenewFiles, WriteStatus
from gantry_operator.plan.foresight import foresee
from gantry_operator.plan.observed import ControllerObserved
from gantry_operator.plan.supposed import after
from gantry_protocol.admin import QuorumView
from gantry_protocol.admin_client.outcomes import Unreachable
from gantry_protocol.process.config import fingerprint
from gantry_protocol.settings.controller import LIVE, LIVE_SINCE, ControllerTuning
from unit.operator.world import (
    IMAGE,
    NOW,
    changed,
    controller_world,
    controllers,
    live,
    peers,
    quorum,
)

DEBUG = {"log_level": "debug"}
LATER = NOW + dt.timedelta(minutes=5)


def made(group: ControllerGroup, *, word: str = NEWEST_LIVE_OF_CONTROLLERS) -> list[dict[str, Any]]:
    return controller_objects(group, image=IMAGE, live=word)


def wish(**spec: Any) -> ControllerGroup:
    return controllers(**spec)


def file_of(group: ControllerGroup) -> str:
    (found,) = [one for one in made(group) if one["kind"] == "ConfigMap"]
    return str(found["data"][names.CONFIG_KEY])


def print_of(group: ControllerGroup) -> str:
    return fingerprint(file_of(group).encode())


def telling(*prints: str, **facts: Any) -> QuorumView:
    told = zip(peers(0, 0, 0), prints, strict=True)
    return quorum(peers=[one.model_copy(update={"settings": text} | facts) for one, text in told])


def wishing(before: ControllerGroup, after_it: ControllerGroup, **facts: Any) -> ControllerObserved:
    """A world made of one wish, in which there is another now."""
    known = facts.pop("quorum", None) or telling(*[print_of(before)] * 3)
    seen = controller_world(before, quorum=known, objects=live(made(before)), **facts)
    return changed(seen, group=after_it, meta=after_it.metadata)


def applied(seen: ControllerObserved) -> list[dict[str, Any]]:
    return [one.manifest for one in plan(seen, NOW) if isinstance(one, ApplyObject)]


def template(manifests: list[dict[str, Any]]) -> Any:
    return manifests[-1]["spec"]["template"]


def written(seen: ControllerObserved, now: dt.datetime = NOW) -> ControllerObserved:
    for action in plan(seen, now):
        if isinstance(action, WriteStatus):
            previous = ControllerGroupStatus.model_validate(action.status)
            seen = changed(seen, live_status=action.status, previous=previous)
    return seen


def put(seen: ControllerObserved) -> ControllerObserved:
    """The world after objects were applied; controllers have read nothing yet."""
    said = seen.quorum
    for action in plan(seen, NOW):
        if isinstance(action, ApplyObject):
            seen = after(seen, action, lambda _new, _live: False)  # type: ignore[assignment]
    return changed(seen, quorum=said)


def progressing(seen: ControllerObserved, name: str = "Progressing") -> tuple[str, str, str]:
    (found,) = [one for one in seen.live_status["conditions"] if one["type"] == name]
    return found["status"], found["reason"], found["message"]


def test_every_live_setting_is_one_of_a_controller() -> None:
    assert ControllerTuning.model_fields.keys() > LIVE == LIVE_SINCE[NEWEST_LIVE_OF_CONTROLLERS]


@pytest.mark.parametrize("key", sorted(ControllerTuning.model_fields))
def test_what_is_live_is_no_part_of_the_template_and_all_else_is(key: str) -> None:
    before, after_it = made(controllers()), made(wish(config={key: "1"}))
    assert (template(before) == template(after_it)) is (key in LIVE)
    older = [made(group, word="") for group in (controllers(), wish(config={key: "1"}))]
    assert template(older[0]) != template(older[1]), "an older image has it by a roll"


def test_a_live_change_applies_the_file_alone_and_rolls_nothing() -> None:
    seen = wishing(controllers(), wish(config=DEBUG))
    assert [one["kind"] for one in applied(seen)] == ["ConfigMap"]


@pytest.mark.parametrize("spec", [{}, {"config": DEBUG}], ids=["bare", "config"])
def test_an_upgrade_of_the_operator_rolls_no_quorum(spec: dict[str, Any]) -> None:
    group = wish(**spec)
    seen = controller_world(group, objects=live(made(group, word="")))
    assert applied(seen) == []
    # A change is a roll, and with the next image it learns to do without.
    other = changed(seen, group=wish(config={"log_level": "warning"}))
    (config, workload) = applied(other)
    assert (config["kind"], workload["kind"]) == ("ConfigMap", "StatefulSet")
    assert names.ANNOTATION_LIVE not in workload["metadata"].get("annotations", {})
    (new,) = applied(changed(seen, image="gantry:2"))
    word = new["metadata"]["annotations"][names.ANNOTATION_LIVE]
    assert word == NEWEST_LIVE_OF_CONTROLLERS


def test_a_change_is_under_way_until_every_controller_has_said_that_it_has_it() -> None:
    before, after_it = controllers(), wish(config=DEBUG)
    old, new = print_of(before), print_of(after_it)
    seen = written(put(written(wishing(before, after_it))))
    all_of_them = "gantry-controller-0, gantry-controller-1, gantry-controller-2"
    assert progressing(seen) == (
        "True",
        "ApplyingSettings",
        f"Changed settings are applied while running; still to come: {all_of_them}.",
    )
    assert any(isinstance(one, CheckAgain) and one.after_s <= 2 for one in plan(seen, NOW))
    seen = written(changed(seen, quorum=telling(new, old, new)), LATER)
    assert "still to come: gantry-controller-1." in progressing(seen)[2]
    # Who says nothing any more has not said that it has them.
    seen = written(changed(seen, quorum=telling(new, new, "")), LATER)
    assert "still to come: gantry-controller-2." in progressing(seen)[2]
    seen = written(changed(seen, quorum=telling(new, new, new)), LATER)
    assert progressing(seen)[1] == "Settled"


def test_controllers_of_whom_nothing_is_known_are_waited_for_by_nobody() -> None:
    silent = telling("", "", "")
    seen = written(put(wishing(controllers(), wish(config=DEBUG), quorum=silent)))
    assert progressing(seen)[1] == "Settled"
    gone = changed(seen, quorum=Unreachable("nobody answers"))
    assert progressing(written(gone))[1] != "ApplyingSettings"


def test_kubelets_are_asked_once_to_renew_the_files_of_a_pod() -> None:
    before, after_it = controllers(), wish(config=DEBUG)
    old, new = print_of(before), print_of(after_it)

    def renewed(world: ControllerObserved) -> list[str]:
        return [one.name for one in plan(world, NOW) if isinstance(one, RenewFiles)]

    seen = wishing(before, after_it)
    assert renewed(seen) == [], "the new file is not there yet"
    there = changed(seen, objects=live(made(after_it)), quorum=telling(old, new, ""))
    assert renewed(there) == ["gantry-controller-0"], "one has it, of one nobody knows"
    for action in plan(there, NOW):
        there = after(there, action, lambda _new, _live: False)  # type: ignore[assignment]
    assert there.pods[0].files == new
    assert renewed(there) == []


def test_what_a_controller_refuses_is_told_in_its_words() -> None:
    unchecked = {names.ANNOTATION_UNCHECKED: "true"}
    after_it = ControllerGroup.parse(
        {
            "metadata": {"name": "gantry", "namespace": "mq", "uid": "cg-uid", "generation": 1}
            | {"annotations": unchecked},
            "spec": {"config": {"log_level": "loud"}},
        }
    )
    said = telling(*[print_of(controllers())] * 3, settings_refused="log_level: no such level.")
    seen = written(put(wishing(controllers(), after_it, quorum=said)))
    status, reason, message = progressing(seen)
    assert (status, reason) == ("False", "SettingsRefused")
    assert "gantry-controller-0 refuses the changed settings" in message
    assert "log_level: no such level. Change them." in message
    assert progressing(seen, "Ready")[:2] == ("False", "SettingsRefused")


def test_a_wrong_value_is_refused_before_any_controller_hears_of_it() -> None:
    seen = wishing(controllers(), wish(config={"tracing_endpoint": "collector:4318"}))
    assert applied(seen) == []
    assert "spec.config.tracing_endpoint: " in progressing(written(seen), "Accepted")[2]


def test_a_live_change_is_foreseen_without_a_restart() -> None:
    config = DEBUG | {"tracing_endpoint": "http://collector:4318"}
    seen = wishing(controllers(), wish(config=config))
    found = foresee(seen, NOW, lambda world, now: plan(world, now, announces=False))
    assert [one.message for one in found.steps] == [
        "Change settings log_level, tracing_endpoint: applied while running, no pod restarts."
    ]
    assert (found.disruptive, found.waits) == ((), "")
    older = changed(seen, objects=live(made(controllers(), word="")))
    planner = lambda world, now: plan(world, now, announces=False)  # noqa: E731
    found = foresee(older, NOW, planner, rolls=lambda new, was: template([new]) != template([was]))
    assert len(found.disruptive) == 3, "an older image has it by a roll"
