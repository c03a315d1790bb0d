"""Benchmark lines: the fields that are agreed on, smallest, median and largest."""

from __future__ import annotations

import msgspec
import pytest
from gantry_lab.bench.results import line, machine, show
from gantry_lab.bench.senders import BODY_BYTES, body


def test_line_has_the_agreed_fields() -> None:
    one = line("failover", "sigkill", "gap_ms", "ms", [300.04, 100.0, 900.0, 200.0])
    assert list(msgspec.to_builtins(one)) == [
        "bench",
        "case",
        "metric",
        "unit",
        "min",
        "median",
        "max",
        "runs",
        "cpus",
    ]
    assert (one.min, one.median, one.max, one.runs) == (100.0, 250.0, 900.0, 4)
    assert one.cpus >= 1


def test_a_table_has_a_heading_for_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    show([line("b", "c", "gap_ms", "ms", [1.0])], machine())
    headings, values, _ = capsys.readouterr().out.splitlines()
    assert headings.split() == ["BENCH", "CASE", "METRIC", "UNIT", "MIN", "MEDIAN", "MAX", "RUNS"]
    assert values.split() == ["b", "c", "gap_ms", "ms", "1.0", "1.0", "1.0", "1"]


def test_bodies_differ() -> None:
    assert len(body(1)) == len(body(2)) == BODY_BYTES
    assert body(1) != body(2)


def test_figures_say_what_they_were_measured_on() -> None:
    found = machine()
    assert found.cpus >= 1
    assert found.memory_mib > 100
    assert found.load >= 0
