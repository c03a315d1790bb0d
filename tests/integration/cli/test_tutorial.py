"""docs/tutorial.md does what it says: each command runs, and prints what is shown below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """An environment with ``gantry``, a state of its own, and a directory with the examples."""
    program = tmp_path / "bin" / "gantry"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gantry_cli "$@"\n')
    program.chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{program.parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "GANTRY_LOCAL_DIR": str(tmp_path / "state")}


def run(script: str, place: dict[str, str], cwd: Path) -> str:
    """What the commands print; each must succeed."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=place,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}"
    return done.stdout


def missing(shown: str, printed: str) -> list[str]:
    """Lines that are shown and were not printed, in this order; … stands for anything."""
    lines = iter(printed.splitlines())
    patterns = [
        (line, ".*".join(re.escape(" ".join(part.split())) for part in line.split("…")))
        for line in shown.splitlines()
    ]
    return [
        line
        for line, pattern in patterns
        if not any(
            re.search(pattern.replace(r"\ .*", r"\ ?.*"), " ".join(one.split())) for one in lines
        )
    ]


def test_the_tutorial_does_what_it_says(place: dict[str, str], tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    blocks = BLOCK.findall(text)
    assert text.count("\n```\n") == len(blocks), "a block is neither sh nor text"
    printed = ""
    try:
        for kind, block in blocks:
            if kind == "sh":
                printed = run(block, place, tmp_path)
            else:
                assert missing(block, printed) == [], printed
    finally:
        run("gantry local down --purge || true", place, tmp_path)


@pytest.mark.parametrize(
    ("shown", "left"),
    [
        ("one\nthree\n", []),
        ("three\none\n", ["one"]),
        ("tw…\n", []),
        ("o…e\n", []),
        ("four\n", ["four"]),
    ],
)
def test_what_is_shown_is_looked_for_in_its_order(shown: str, left: list[str]) -> None:
    assert missing(shown, "one\ntwo\nthree  \n") == left
