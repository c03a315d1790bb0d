"""`gantry_lab simulate`: what it prints, how it ends, and that a seed is a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from gantry_lab import simulation
from gantry_lab.commands.simulate import simulate
from gantry_protocol.errors import ConfigError, GantryError
from sim.kernel.world import Violation
from sim.raft.invariants import Invariants


def trace(seed: int) -> str:
    result = CliRunner().invoke(simulate, ["--seed", str(seed), "--trace"])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_equal_seeds_print_equal_traces() -> None:
    assert trace(0) == trace(0)
    assert trace(0) != trace(4)


def test_json_is_one_object_per_seed_and_one_about_all() -> None:
    result = CliRunner().invoke(simulate, ["--seeds", "2", "--jobs", "1", "--json"])
    first, second, total = map(json.loads, result.stdout.splitlines())
    assert (first["seed"], first["violation"], second["seed"]) == (0, None, 1)
    assert len(first["trace_hash"]) == 32
    assert (total["seeds"], total["failed"]) == (2, [])


def test_a_pattern_plays_each_world_that_it_fits() -> None:
    asked = ["--seeds", "1", "--seed", "5", "--jobs", "1", "--json", "--world", "raft-s[np]*s"]
    result = CliRunner().invoke(simulate, asked)
    *played, total = map(json.loads, result.stdout.splitlines())
    worlds = ["raft-snapshots", "raft-splits"]
    assert [(one["world"], one["seed"]) for one in played] == [(world, 5) for world in worlds]
    assert total["worlds"] == worlds


def test_a_broken_rule_ends_with_the_seed_and_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_self: Invariants, _index: int) -> None:
        raise Violation("planted by this test")

    monkeypatch.setattr(Invariants, "acknowledged", broken)
    result = CliRunner().invoke(simulate, ["--seed", "3", "--seeds", "1"])
    assert isinstance(result.exception, GantryError)
    assert "python -m gantry_lab simulate --world raft --seed 3 --trace" in str(result.exception)
    assert "planted by this test" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--world", "flat"], "there is no world flat; there are: raft"),
        (["--trace", "--seeds", "2"], "for one seed of one world"),
        (["--trace", "--world", "raft*"], "for one seed of one world"),
        (["--trace", "--json"], "leave --json out"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_worlds_are_listed() -> None:
    result = CliRunner().invoke(simulate, ["--worlds"])
    assert {"raft", "product", "product-tier"} <= {
        line.split()[0] for line in result.stdout.splitlines()
    }


def test_without_a_checkout_one_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(simulation, "__file__", str(tmp_path / "a" / "b" / "simulation.py"))
    with pytest.raises(ConfigError, match="tests/sim of a checkout"):
        simulation.find_tests()
