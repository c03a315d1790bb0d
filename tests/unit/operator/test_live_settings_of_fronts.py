"""Settings that fronts apply while running: no front is replaced, and nothing is claimed."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from gantry_broker.front import FrontSettings
from gantry_operator import names
from gantry_operator.builders import config, front_objects
from gantry_operator.builders.config import NEWEST_LIVE_OF_FRONTS
from gantry_operator.models import FrontGroup, FrontGroupStatus
from gantry_operator.plan import plan
from gantry_operator.plan.actions import ApplyObject, RenewFiles, WriteStatus
from gantry_operator.plan.foresight import Foresight, foresee
from gantry_operator.plan.observed import FrontObserved
from gantry_operator.plan.supposed import after
from gantry_protocol.process.config import fingerprint
from gantry_protocol.settings.front import LIVE, LIVE_SINCE
from msgspec.structs import replace
from unit.operator.world import IMAGE, NOW, changed, controllers, front_world, fronts, live

TRACED = {"tracing": {"endpoint": "http://collector:4318", "ratio": "0.5"}}
AGE = {"connectionAgeSeconds": 7}
LEVEL = {"logLevel": "debug"}


def made(group: FrontGroup, *, word: str = NEWEST_LIVE_OF_FRONTS) -> list[dict[str, Any]]:
    return front_objects(group, controllers(), image=IMAGE, live=word)


def file_of(manifests: list[dict[str, Any]]) -> str:
    (found,) = [one for one in manifests if one["kind"] == "ConfigMap"]
    return str(found["data"][names.CONFIG_KEY])


def template(manifests: list[dict[str, Any]]) -> Any:
    (found,) = [one for one in manifests if one["kind"] == "Deployment"]
    return found["spec"]["template"]


def wishing(group: FrontGroup, *, word: str = NEWEST_LIVE_OF_FRONTS) -> FrontObserved:
    """A world made of no wish in particular, in which there is one now."""
    seen = front_world(objects=live(made(fronts(), word=word)))
    return written(changed(seen, group=group, meta=group.metadata))


def applied(seen: FrontObserved) -> list[dict[str, Any]]:
    return [one.manifest for one in plan(seen, NOW) if isinstance(one, ApplyObject)]


def written(seen: FrontObserved) -> FrontObserved:
    for action in plan(seen, NOW):
        if isinstance(action, WriteStatus):
            previous = FrontGroupStatus.model_validate(action.status)
            seen = replace(seen, live_status=action.status, previous=previous)
    return seen


def foreseen(seen: FrontObserved) -> Foresight:
    return foresee(seen, NOW, lambda world, now: plan(world, now, announces=False))


def test_every_live_setting_is_one_of_a_front() -> None:
    assert FrontSettings.model_fields.keys() > LIVE == LIVE_SINCE[NEWEST_LIVE_OF_FRONTS]


@pytest.mark.parametrize("spec", [TRACED, AGE, LEVEL], ids=["tracing", "age", "level"])
def test_a_live_change_applies_the_file_alone_and_replaces_no_front(spec: dict[str, Any]) -> None:
    group = fronts(**spec)
    assert template(made(fronts())) == template(made(group))
    assert [one["kind"] for one in applied(wishing(group))] == ["ConfigMap"]
    older = [made(one, word="") for one in (fronts(), group)]
    assert template(older[0]) != template(older[1]), "an older image has it by other pods"


def test_the_file_has_what_fronts_apply_and_says_whose_it_is() -> None:
    text = file_of(made(fronts(**TRACED, **AGE, **LEVEL)))
    assert text.startswith("# Written by the Gantry operator from the FrontGroup.\n")
    assert tomllib.loads(text) == {
        "connection_age_s": "7",
        "log_level": "debug",
        "tracing_endpoint": "http://collector:4318",
        "tracing_ratio": "0.5",
    }
    assert tomllib.loads(text).keys() == LIVE


def test_all_else_replaces_fronts() -> None:
    assert template(made(fronts())) != template(made(fronts(ports=17)))


@pytest.mark.parametrize("spec", [{}, TRACED], ids=["bare", "traced"])
def test_an_upgrade_of_the_operator_replaces_no_front(spec: dict[str, Any]) -> None:
    group = fronts(**spec)
    seen = front_world(group, objects=live(made(group, word="")))
    assert applied(seen) == []
    # A change replaces the pods, and with the next image they learn to do without.
    other = changed(seen, group=fronts(**AGE))
    (deployment,) = applied(other)
    assert names.ANNOTATION_LIVE not in deployment["metadata"]["annotations"]
    assert template([deployment]) == template(made(fronts(**AGE), word=""))
    file, deployment = applied(changed(seen, image="gantry:2"))
    assert (file["kind"], deployment["kind"]) == ("ConfigMap", "Deployment")
    word = deployment["metadata"]["annotations"][names.ANNOTATION_LIVE]
    assert word == NEWEST_LIVE_OF_FRONTS


def test_an_image_of_the_groups_own_counts_as_well() -> None:
    group = fronts(image="mine:1")
    objects = live(front_objects(group, controllers(), image=IMAGE, live=""))
    assert applied(front_world(group, objects=objects)) == []


def test_an_image_that_applies_less_has_the_rest_by_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would say that it has the file, and apply nothing of it."""
    later = {"known": LIVE - {"connection_age_s"}, "age": LIVE}
    monkeypatch.setitem(config.LIVE_SINCE, names.FRONT, later)
    plain, traced, aged = (fronts(**spec) for spec in ({}, TRACED, AGE))
    assert template(made(plain, word="known")) == template(made(traced, word="known"))
    (found,) = template(made(aged, word="known"))["spec"]["containers"]
    assert {"name": "GANTRY_CONNECTION_AGE_S", "value": "7"} in found["env"]
    assert "connection_age_s" not in file_of(made(aged, word="known"))
    assert "connection_age_s" in file_of(made(aged, word="of a newer operator"))


def test_kubelets_are_asked_once_to_renew_the_files_of_the_pods_that_are_there() -> None:
    seen = wishing(fronts(**TRACED))
    wished = fingerprint(file_of(made(fronts(**TRACED))).encode())

    def renewed(world: FrontObserved) -> list[tuple[str, str]]:
        found = [one for one in plan(world, NOW) if isinstance(one, RenewFiles)]
        return [(one.name, one.settings) for one in found]

    first, second = seen.pods
    assert renewed(seen) == [(first.name, wished), (second.name, wished)]
    going = (changed(first, terminating=True), changed(second, files=wished))
    assert renewed(replace(seen, pods=going)) == []
    kinds = [type(one).__name__ for one in plan(seen, NOW)]
    assert kinds.index("ApplyObject") < kinds.index("RenewFiles"), "the file is there by then"
    for action in plan(seen, NOW):
        seen = after(seen, action, lambda _new, _live: False)  # type: ignore[assignment]
    assert (renewed(seen), applied(seen)) == ([], [])


def test_fronts_that_are_made_with_their_file_are_not_marked() -> None:
    group = fronts()
    new = front_world(group, objects={})
    assert not [one for one in plan(new, NOW) if isinstance(one, RenewFiles)]


def test_nothing_is_claimed_of_fronts_that_nobody_asks() -> None:
    seen = wishing(fronts(**TRACED))
    for action in plan(seen, NOW):
        seen = after(seen, action, lambda _new, _live: False)  # type: ignore[assignment]
    seen = written(seen)
    assert seen.live_status is not None
    (found,) = [one for one in seen.live_status["conditions"] if one["type"] == "Progressing"]
    assert (found["status"], found["reason"]) == ("False", "Settled")


def test_a_live_change_is_foreseen_without_another_front() -> None:
    found = foreseen(wishing(fronts(**TRACED, **AGE)))
    names_of = "connection_age_s, tracing_endpoint, tracing_ratio"
    assert [one.message for one in found.steps] == [
        f"Change settings {names_of}: applied while running, no pod restarts."
    ]
    assert (found.disruptive, found.waits) == ((), "")
    older = foreseen(wishing(fronts(**TRACED), word=""))
    assert [one.kind for one in older.steps] == ["Apply", "Restart"]
