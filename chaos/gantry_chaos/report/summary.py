"""Several runs in a few lines: Markdown for people, JSON for programs, and one exit code. Pure.

The rule protected here: what a checker found is never hidden behind a fault that was not proved,
and neither of them behind a run that passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.errors import EXIT_OK, EXIT_TEMPORARY

from gantry_chaos.report.outcome import told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gantry_chaos.checkers.availability import Outage
    from gantry_chaos.report.page import ReportPage

EXIT_BROKEN = 1
HEADINGS = (
    "Scenario",
    "Fault",
    "Write gap, worst client",
    "Commit gap",
    "RTO as OpenChaos",
    "Verdict",
)


def exit_code(pages: Sequence[ReportPage]) -> int:
    """0: all passed; 1: a checker found something; 75: something was not played or not proved."""
    if any(page.broken for page in pages):
        return EXIT_BROKEN
    return EXIT_OK if pages and all(page.passed for page in pages) else EXIT_TEMPORARY


def markdown(title: str, facts: Mapping[str, str], pages: Sequence[ReportPage]) -> str:
    """A table with a row per fault, and below it what each run was told as."""
    rows = [HEADINGS, ("---",) * len(HEADINGS)]
    for page in pages:
        costs = {outage.fault: outage for outage in page.outages}
        commits = {commit.fault: commit for commit in page.commits}
        verdict = "passed" if page.passed else "FAILED"
        rows += [
            (
                page.title,
                f"{fault.fault} on {', '.join(fault.targets)}"
                + (f" (not proved: {fault.invalid})" if fault.invalid else ""),
                _gap(costs.get(fault.fault)),
                _gap(commits.get(fault.fault)),
                _rto(costs.get(fault.fault)),
                verdict,
            )
            for fault in page.faults
        ]
        if not page.faults:
            rows.append((page.title, page.trouble or "–", "–", "–", "–", verdict))
    table = "".join(f"| {' | '.join(_cell(cell) for cell in row)} |\n" for row in rows)
    said = "".join(f"{line}\n" for page in pages for line in told(page))
    about = " · ".join(f"{name} {text}" for name, text in facts.items())
    return f"# {title}\n\n{about}\n\n{table}\n```text\n{said}```\n"


def document(facts: Mapping[str, str], pages: Sequence[ReportPage]) -> dict[str, object]:
    """Everything that is told, as JSON has it."""
    return {
        "exitCode": exit_code(pages),
        "facts": dict(facts),
        "scenarios": [
            {
                "name": page.title,
                "passed": page.passed,
                "trouble": page.trouble or None,
                "facts": page.facts,
                "faults": [
                    {
                        "name": fault.fault,
                        "targets": list(fault.targets),
                        "startS": fault.start_s,
                        "endS": fault.end_s,
                        "notProved": fault.invalid or None,
                    }
                    for fault in page.faults
                ],
                "outages": [_outage(outage) for outage in page.outages],
                "commitOutages": [_outage(commit) for commit in page.commits],
                "verdicts": [
                    {
                        "checker": verdict.checker,
                        "passed": verdict.passed,
                        "figures": verdict.figures,
                        "violations": list(verdict.violations),
                        "violationCount": verdict.violation_count,
                    }
                    for verdict in page.verdicts
                ],
            }
            for page in pages
        ],
    }


def _outage(one: Outage) -> dict[str, object]:
    return {
        "fault": one.fault,
        "worstMs": one.worst_ms,
        "medianMs": one.median_ms,
        "baselineMs": one.baseline_ms,
        "openChaosRtoMs": one.rto_ms,
        "before": one.before,
        "during": one.during,
        "after": one.after,
    }


def _gap(one: Outage | None) -> str:
    if one is None:
        return "–"
    return "never resumed" if one.worst_ms is None else f"{one.worst_ms:,.0f} ms"


def _rto(one: Outage | None) -> str:
    return "–" if one is None or one.rto_ms is None else f"{one.rto_ms:,} ms"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
