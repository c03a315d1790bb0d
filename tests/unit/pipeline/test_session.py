"""What is said before Spark starts, and when it failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_pipeline import doctor, session
from gantry_pipeline.session import NoSparkError


def a_java(directory: Path, version: str) -> None:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "number"), [("17.0.15", 17), ("21", 21), ("25.0.1", 25)], ids=str
)
def test_a_java_that_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, number: int
) -> None:
    a_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert session.java() == (str(tmp_path / "bin" / "java"), number)


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2"])
def test_a_java_that_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    a_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoSparkError, match=r"is Java (8|11): install Java 17 or newer \(Debian:"):
        session.java()


def test_no_java_is_one_sentence_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSparkError, match="Spark needs Java, and there is none: install Java 17"):
        session.java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoSparkError, match=r"JAVA_HOME leads to .*, which does not run"):
        session.java()
    found = {one.name: one for one in doctor.checks()}
    assert not found["Java"].ok
    assert "install Java 17" in found["Java"].advice
    assert found["pyspark"].ok


def test_the_heap_leaves_room_for_workers() -> None:
    assert [session.heap_mib(mib) for mib in (1000, 8192, 100_000)] == [1024, 2048, 8192]


TRACE = """An error occurred while calling o52.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed
  File "/x/source/rows.py", line 60, in pack_rows
    check_against(data, place, pack.entry, pack.v)
{ours}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(x.scala:1)
"""


@pytest.mark.parametrize(
    ("ours", "kind", "code"),
    [
        (
            "gantry_protocol.tier.damage.DamagedObject: a/pack/1 is damaged at byte 4: x.",
            session.TierRefusedError,
            1,
        ),
        (
            "gantry_pipeline.source.objects.StoreError: man/1 cannot be read: Timeout.",
            session.SparkFailedError,
            75,
        ),
    ],
    ids=["damage", "store"],
)
def test_of_a_failed_job_only_our_sentence_is_told(
    ours: str, kind: type[Exception], code: int, tmp_path: Path
) -> None:
    error = session.told(TRACE.format(ours=ours), tmp_path / "spark.log")
    assert type(error) is kind
    assert str(error) == ours.partition(": ")[2]
    assert error.exit_code == code


def test_of_sparks_own_failure_the_first_line_and_the_log_are_told(tmp_path: Path) -> None:
    error = session.told("\n  Out of memory \nat x\nat y", tmp_path / "spark.log")
    assert str(error) == f"Spark failed (Out of memory); its log is {tmp_path / 'spark.log'}."
