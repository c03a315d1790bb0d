"""Plots and page: numbers people can read, nothing from the data as markup."""

from __future__ import annotations

import re

import pytest
from gantry_pipeline.jobs.page.html import page, table
from gantry_pipeline.jobs.page.plots import POINTS_MAX, amount, bars, line


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (950, "950 B"), (1234, "1.23 kB"), (5e9, "5 GB"), (0.5, "0.5 B"), (2e13, "20 TB")],
)
def test_amounts(value: float, text: str) -> None:
    assert amount(value, "B") == text


def test_a_line_begins_at_its_first_and_ends_at_its_last_point() -> None:
    text = line([(0, 0), (500, 50), (1000, 100)], unit="B", label="x")
    found = re.search(r'points="([^"]+)"', text)
    assert found is not None
    (x0, y0), _, (x2, y2) = [tuple(map(float, pair.split(","))) for pair in found[1].split()]
    assert (x0, x2) == (76, 844)
    assert y0 > y2 == 14


def test_a_long_line_is_thinned_and_keeps_its_end() -> None:
    points = [(float(at), 1.0) for at in range(10 * POINTS_MAX + 7)]
    text = line(points, unit="", label="x")
    assert text.count("<circle") <= POINTS_MAX + 1
    assert re.search(r'cx="844\.0"', text)


def test_names_are_text() -> None:
    name = '<script>"&'
    for text in (
        bars([(name, 3)], unit="B", label=name),
        table(["T"], [[name]]),
        page(name, name, [(name, "")]),
    ):
        assert "<script>" not in text
    assert "Nothing to plot" in bars([], unit="", label="")
