"""The files of a chaos run: one page of all scenarios, the same as Markdown and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_chaos import run
from gantry_chaos.report import summary
from gantry_chaos.report.page import render_all
from gantry_protocol.process.files import atomic_write, make_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gantry_chaos.report.page import ReportPage

TITLE = "Gantry chaos"


def write(report: Path, facts: Mapping[str, str], pages: Sequence[ReportPage]) -> None:
    """Write `report` (HTML), its twins `.md` and `.json`, and the last scenario's own files."""
    make_directory(report.parent)
    if pages:
        run.store(pages[-1], report.parent / pages[-1].title)
    atomic_write(report, render_all(TITLE, facts, pages).encode())
    markdown = summary.markdown(TITLE, facts, pages)
    atomic_write(report.with_suffix(".md"), markdown.encode())
    document = msgspec.json.format(msgspec.json.encode(summary.document(facts, pages)), indent=1)
    atomic_write(report.with_suffix(".json"), document + b"\n")
