"""The Deployment controller's decisions by tables."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.apiserver.errors import StatusError
from gantry_local.controllers.deployment import HASH_LABEL, bounds, plan
from unit.local.test_registry import World

NEW, OLD = "new", "old"
GENTLE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def pod(letters: str) -> dict[str, Any]:
    """`n` is of the present template, `o` of an older one; then `r` Ready, `s` starting, `t`
    terminating, `f` finished."""
    revision = {"n": NEW, "o": OLD}[letters[0]]
    meta: dict[str, Any] = {"name": letters, "labels": {HASH_LABEL: revision}}
    if "t" in letters:
        meta["deletionTimestamp"] = "now"
    ready = "True" if "r" in letters else "False"
    phase = "Failed" if "f" in letters else "Running"
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": meta, "status": {"phase": phase, "conditions": conditions}}


def steps(pods: str, *, replicas: int = 2, strategy: Any = GENTLE) -> tuple[list[str], int]:
    spec = {"replicas": replicas} | ({} if strategy is None else {"strategy": strategy})
    found = plan(spec, [pod(letters) for letters in pods.split()], NEW)
    return [gone["metadata"]["name"] for gone in found.delete], found.create


@pytest.mark.parametrize(
    ("pods", "gone", "create"),
    [
        pytest.param("", [], 2, id="from-nothing"),
        pytest.param("nr nr", [], 0, id="as-it-is-to-be"),
        pytest.param("or or", [], 1, id="one-more-first"),
        pytest.param("or or ns", [], 0, id="it-is-not-ready"),
        pytest.param("or or nr", ["or"], 0, id="it-is"),
        pytest.param("or ort nr", [], 1, id="the-next"),
        pytest.param("or nr ns", [], 0, id="not-ready"),
        pytest.param("or nr nr", ["or"], 0, id="the-last"),
        pytest.param("os or", [], 1, id="one-serves-nobody"),
        pytest.param("os or nr", ["os"], 0, id="that-one-goes-first"),
        pytest.param("nr nr nr ns", ["ns", "nr"], 0, id="fewer"),
        pytest.param("nr nf", ["nf"], 1, id="finished"),
        pytest.param("nr nst", [], 1, id="terminating-counts-for-nothing"),
    ],
)
def test_one_more_before_one_less(pods: str, gone: list[str], create: int) -> None:
    found, count = steps(pods)
    assert (found, count) == (gone, create)


def test_no_step_of_a_roll_leaves_fewer_ready_than_wanted() -> None:
    """From old to new, with pods that become Ready one step after they were made."""
    pods = ["or"] * 3
    for _ in range(30):
        found = plan({"replicas": 3, "strategy": GENTLE}, [pod(p) for p in pods], NEW)
        for gone in found.delete:
            pods.remove(gone["metadata"]["name"])
        assert sum("r" in p for p in pods) >= 3
        assert len(pods) + found.create <= 4
        pods = [p.replace("s", "r") for p in pods] + ["ns"] * found.create
    assert pods == ["nr"] * 3


@pytest.mark.parametrize(
    ("pods", "gone", "create"),
    [("or or", ["or", "or"], 0), ("ort nr", [], 0), ("", [], 2), ("nr nr nr", ["nr"], 0)],
)
def test_recreate_ends_all_old_ones_first(pods: str, gone: list[str], create: int) -> None:
    assert steps(pods, strategy={"type": "Recreate"}) == (gone, create)


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "wanted"),
    [
        (4, "25%", "25%", (1, 1)),
        (3, "25%", "25%", (1, 0)),
        (2, 0, 0, (0, 1)),
        (9, 2, "50%", (2, 4)),
    ],
)
def test_percentages(replicas: int, surge: Any, unavailable: Any, wanted: tuple[int, int]) -> None:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    assert bounds({"replicas": replicas, "strategy": {"rollingUpdate": rolling}}) == wanted


def deployment(**spec: Any) -> dict[str, Any]:
    labels = {"app": "front"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "f", "image": "x"}]},
    }
    wanted = {"selector": {"matchLabels": labels}, "template": template} | spec
    return {"metadata": {"name": "front"}, "spec": wanted}


def test_defaults_of_a_deployment() -> None:
    made = World().create("deployments", deployment(), "apps")
    rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
    assert made["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert made["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    "strategy",
    [
        {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}},
        {"type": "Other"},
    ],
)
def test_strategies_that_are_none(strategy: Any) -> None:
    with pytest.raises(StatusError, match="strategy"):
        World().create("deployments", deployment(strategy=strategy), "apps")


def scaler(**spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "front"}
    wanted = {"scaleTargetRef": target, "maxReplicas": 5} | spec
    return {"metadata": {"name": "front"}, "spec": wanted}


def test_an_autoscaler_is_kept() -> None:
    made = World().create("horizontalpodautoscalers", scaler(), "autoscaling")
    assert made["spec"]["minReplicas"] == 1


@pytest.mark.parametrize("spec", [{"minReplicas": 0}, {"minReplicas": 6}])
def test_autoscalers_that_are_refused(spec: Any) -> None:
    with pytest.raises(StatusError, match="Replicas"):
        World().create("horizontalpodautoscalers", scaler(**spec), "autoscaling")
