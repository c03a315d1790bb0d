"""Selectors and modes: who matches, how many are taken, and that a seed repeats the choice."""

from __future__ import annotations

from random import Random

import pytest
from gantry_chaos.errors import SelectionError
from gantry_chaos.manifests.model import PodSelector, Selector
from gantry_chaos.manifests.selection import Pod, matching, select, with_quorum_labels

PODS = [
    Pod("shop", f"store-{n}", f"uid-{n}", labels={"app": "store", "tier": tier}, node=f"n{n % 2}")
    for n, tier in enumerate(["a", "a", "b", "c", "c"])
] + [
    Pod("shop", "web-0", "uid-5", labels={"app": "web"}, annotations={"team": "x"}),
    Pod("other", "store-0", "uid-6", labels={"app": "store"}, phase="Pending"),
]


def names(**fields: object) -> list[str]:
    return [pod.id for pod in matching(Selector.model_validate(fields), PODS, "shop")]


def stores(*numbers: int) -> list[str]:
    return [f"shop/store-{n}" for n in numbers]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [*stores(0, 1, 2, 3, 4), "shop/web-0"]),
        ({"namespaces": ["other"]}, ["other/store-0"]),
        ({"labelSelectors": {"app": "store"}}, stores(0, 1, 2, 3, 4)),
        ({"labelSelectors": {"app": "store", "tier": "b"}}, stores(2)),
        ({"labelSelectors": {"app": ""}}, []),
        ({"annotationSelectors": {"team": "x"}}, ["shop/web-0"]),
        ({"nodes": ["n1"]}, stores(1, 3)),
        ({"namespaces": ["shop", "other"], "podPhaseSelectors": ["Pending"]}, ["other/store-0"]),
        ({"pods": {"shop": ["web-0"]}, "labelSelectors": {"app": "store"}}, ["shop/web-0"]),
        (
            {"expressionSelectors": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]},
            stores(0, 1, 2),
        ),
        (
            {"expressionSelectors": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]},
            [*stores(2, 3, 4), "shop/web-0"],
        ),
        ({"expressionSelectors": [{"key": "tier", "operator": "DoesNotExist"}]}, ["shop/web-0"]),
        ({"expressionSelectors": [{"key": "tier", "operator": "Exists"}]}, stores(0, 1, 2, 3, 4)),
    ],
)
def test_who_matches(fields: dict[str, object], expected: list[str]) -> None:
    assert names(**fields) == expected


def chosen(mode: str, value: str, seed: int) -> list[str]:
    wanted = PodSelector.model_validate(
        {"mode": mode, "value": value, "selector": {"labelSelectors": {"app": "store"}}}
    )
    found = select(wanted, PODS, namespace="shop", random=Random(seed), what="x")
    return [pod.name for pod in found]


@pytest.mark.parametrize(
    ("mode", "value", "sizes"),
    [
        ("one", "", {1}),
        ("all", "", {5}),
        ("fixed", "2", {2}),
        ("fixed", "9", {5}),  # no more than there are
        ("fixed-percent", "21", {2}),  # rounded up
        ("fixed-percent", "100", {5}),
        ("random-max-percent", "50", {1, 2, 3}),
    ],
)
def test_how_many_are_taken(mode: str, value: str, sizes: set[int]) -> None:
    assert {len(chosen(mode, value, seed)) for seed in range(60)} == sizes


def test_a_seed_repeats_the_choice_and_all_get_their_turn() -> None:
    assert chosen("one", "", 7) == chosen("one", "", 7)
    assert {chosen("one", "", seed)[0] for seed in range(60)} == {f"store-{n}" for n in range(5)}


def test_nobody_matching_is_an_error() -> None:
    wanted = PodSelector.model_validate(
        {"mode": "all", "selector": {"labelSelectors": {"app": "none"}}}
    )
    with pytest.raises(
        SelectionError, match=r"^spec.selector of cut matches none of 7 pods \(shop"
    ):
        select(wanted, PODS, namespace="shop", random=Random(1), what="spec.selector of cut")


def test_the_quorum_is_observed_as_a_label() -> None:
    pods = with_quorum_labels(PODS, {"web-0": "leader"})
    wanted = Selector.model_validate({"labelSelectors": {"chaos.gantry.dev/quorum": "leader"}})
    assert [pod.name for pod in matching(wanted, pods, "shop")] == ["web-0"]
