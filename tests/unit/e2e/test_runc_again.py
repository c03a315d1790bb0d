"""The nodes' runc, which creates a container again if a busy machine did not let it be frozen."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

RUNC_AGAIN = Path(__file__).resolve().parents[3] / "e2e" / "cluster" / "runc-again"

# Fails as long as there are lines in `failures`, each of them a text for the log.
RUNC = """#!/bin/bash
here=$(dirname "$0")
printf '%s\\n' "$*" >> "$here/calls"
case "$*" in *delete*) exit 0 ;; esac
text=$(head -n 1 "$here/failures")
[ "$text" ] || exit 0
sed -i 1d "$here/failures"
printf '%s\\n' "$text" >> "$here/log.json"
exit 3
"""
FROZEN = "error setting cgroup config for procHooks process: unable to freeze"


@pytest.fixture
def runc(tmp_path: Path) -> Path:
    found = tmp_path / "runc"
    shutil.copy(RUNC_AGAIN, found)
    (tmp_path / "runc.real").write_text(RUNC)
    (tmp_path / "runc.real").chmod(0o755)
    return found


def run(runc: Path, command: str, *failures: str) -> tuple[int, list[str]]:
    """Exit code, and what the real runc was asked for."""
    (runc.parent / "failures").write_text("".join(f"{line}\n" for line in failures))
    log = str(runc.parent / "log.json")
    args = ("--root", "/run/r", "--log", log, "--log-format", "json", command, "name")
    code = subprocess.run((runc, *args), check=False, timeout=30).returncode
    return code, (runc.parent / "calls").read_text().splitlines()


def test_what_could_not_be_frozen_is_created_again(runc: Path) -> None:
    log = runc.parent / "log.json"
    log.write_text("before\n")
    code, calls = run(runc, "create", FROZEN, FROZEN)
    assert code == 0
    assert [line.split()[-2] for line in calls if "delete" not in line] == ["create"] * 3
    assert calls.count("--root /run/r delete --force name") == 2
    assert log.read_text() == "before\n"


def test_another_failure_counts_at_once(runc: Path) -> None:
    code, calls = run(runc, "create", "no such file", FROZEN)
    assert (code, len(calls)) == (3, 1)
    assert (runc.parent / "log.json").read_text() == "no such file\n"


def test_a_failure_that_stays_is_told(runc: Path) -> None:
    code, calls = run(runc, "create", *[FROZEN] * 9)
    assert (code, sum("create" in line for line in calls)) == (3, 5)
    assert FROZEN in (runc.parent / "log.json").read_text()


def test_other_commands_are_not_repeated(runc: Path) -> None:
    code, calls = run(runc, "start", FROZEN)
    assert (code, len(calls)) == (3, 1)
