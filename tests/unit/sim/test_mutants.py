"""The rules of the mutation gate, ``make mutants``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from sim.mutants.catalogue import MUTANTS
from sim.mutants.gate import share
from sim.mutants.mutant import Alive, Mutant, Script, Seeds, UnitTests
from sim.mutants.planting import Edit, StaleMutant, planted

if TYPE_CHECKING:
    from collections.abc import Iterator

PRODUCT = {
    *("gantry_broker", "gantry_controller", "gantry_operator", "gantry_pipeline", "gantry_proxy"),
    *("gantry_cli", "gantry_protocol"),
}
BESIDE = ("gantry_local.real.", "gantry_local.kubelet.serving:", "gantry_local.state:")
"""Of the local cluster, which stands for Kubernetes in the simulator: what does not run there."""


@pytest.fixture(scope="module", autouse=True)
def _profile() -> Iterator[None]:
    yield
    settings.load_profile("gantry")  # a killer's session has loaded another


def test_names_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_each_bug_is_planted_once() -> None:
    found: dict[tuple[Edit, ...], str] = {}
    assert [
        (mutant.name, first)
        for mutant in MUTANTS
        if (first := found.setdefault(mutant.edits, mutant.name)) != mutant.name
    ] == []


def test_mutants_are_of_product_code() -> None:
    """A bug in a simulator's double would only prove that the simulator looks at its double."""
    edits = [(mutant.name, edit.where) for mutant in MUTANTS for edit in mutant.edits]
    foreign = [one for one in edits if one[1].partition(".")[0] not in PRODUCT]
    assert [one for one in foreign if not one[1].startswith(BESIDE)] == []


def test_shares_are_all_of_them() -> None:
    """So as many commits as there are shares plant each bug."""
    mutants = list(MUTANTS)
    shares = [share(mutants, 8, turn) for turn in range(16, 24)]
    assert sorted(mutant.name for one in shares for mutant in one) == sorted(
        mutant.name for mutant in mutants
    )
    assert share(mutants, 1, 5) == mutants


def test_mutants_fit_the_code() -> None:
    assert [error for mutant in MUTANTS if (error := _misfit(mutant))] == []


def _misfit(mutant: Mutant) -> str:
    try:
        with planted(mutant.edits):
            return ""
    except (StaleMutant, ImportError) as error:
        return f"{mutant.name}: {error}"


def harmless(killer: Seeds | Script | UnitTests) -> Mutant:
    same = Edit("gantry_controller.raft.quorum:quorum_size", "members // 2", "members // 2 + 0")
    return Mutant("harmless", "gate", "breaks nothing", (same,), killer)


@pytest.mark.parametrize(
    "killer",
    [
        Seeds("raft", 2),
        Script(lambda: None),
        UnitTests("unit/controller/raft/test_log.py"),
    ],
    ids=["seeds", "script", "tests"],
)
def test_a_mutant_that_nothing_finds_lives(killer: Seeds | Script | UnitTests) -> None:
    with pytest.raises(Alive, match="with it"):
        harmless(killer).kill()


@pytest.mark.parametrize(
    "edit",
    [
        Edit("gantry_controller.raft.quorum:no_such_function", "a", "b"),
        Edit("gantry_controller.raft.quorum:quorum_size", "no such text", "b"),
        Edit("gantry_controller.raft.quorum:quorum_size", "members", "b"),
        Edit("gantry_controller.raft.quorum:quorum_size", "return", "return return"),
    ],
    ids=["function", "text", "ambiguous", "syntax"],
)
def test_a_mutant_that_does_not_fit_says_so(edit: Edit) -> None:
    with pytest.raises(StaleMutant), edit.planted():
        pass


def test_the_code_is_honest_again_afterwards() -> None:
    from gantry_controller.raft.quorum import quorum_size

    edit = Edit("gantry_controller.raft.quorum:quorum_size", "+ 1", "+ 2")
    with edit.planted():
        assert quorum_size(3) == 3
    assert quorum_size(3) == 2
