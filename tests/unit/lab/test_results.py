"""Benchmark lines: the fields that are agreed on, smallest, median and largest."""

from __future__ import annotations

import msgspec
from gantry_lab.bench.results import line, rows


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


def test_rows_are_in_the_order_of_the_headings() -> None:
    assert rows([line("b", "c", "gap_ms", "ms", [1.0])]) == [
        ("b", "c", "gap_ms", "ms", 1.0, 1.0, 1.0, 1)
    ]
