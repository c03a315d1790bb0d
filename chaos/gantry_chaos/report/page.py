"""One self-contained HTML page about one run or several: verdicts, faults, time lines. Pure.

The rule protected here: the page needs nothing but itself (no script, no font, no request), and
nothing in a history can become markup.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import msgspec

from gantry_chaos.report import series
from gantry_chaos.report.svg import Axis, Band, Picture

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gantry_chaos.checkers.availability import Outage
    from gantry_chaos.checkers.verdicts import Verdict
    from gantry_chaos.history.observations import Observation
    from gantry_chaos.history.operations import History
    from gantry_chaos.plan.engine import Band as Fault

STYLE = """
:root{--ink:#1c2430;--soft:#667085;--line:#e4e7ec;--paper:#fff;--panel:#f8fafc;--good:#157f4f;
--bad:#c8321f;--warn:#b7791f;--blue:#2563eb;--band:#f59e0b}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#98a2b3;--line:#2c3442;--paper:#12161d;
--panel:#1a202a;--good:#4ade80;--bad:#f87171;--warn:#fbbf24;--blue:#7aa2ff;--band:#f59e0b}}
body{font:14px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:1152px;margin:24px auto;padding:0 16px}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 8px}
.meta{color:var(--soft);margin:0 0 16px}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:6px 10px;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600}td.number{text-align:right;font-variant-numeric:tabular-nums}
.pass{color:var(--good);font-weight:600}.fail{color:var(--bad);font-weight:600}
ul{margin:4px 0;padding-left:18px}code{font-size:12px;color:var(--soft)}
figure{margin:0;background:var(--panel);border:1px solid var(--line);border-radius:8px;
overflow-x:auto}
svg{display:block;min-width:900px;width:100%;font:11px system-ui,sans-serif}
.grid{stroke:var(--line)}.tick{fill:var(--soft)}.lane{fill:var(--ink);font-weight:600}
.band{fill:var(--band);opacity:.16}.fault{fill:var(--warn);font-weight:600}
.success{fill:var(--good);opacity:.45}.failure{fill:var(--bad)}.unknown{fill:var(--blue)}
.curve{fill:none;stroke-width:1.5;stroke:var(--blue)}
.p50{stroke:var(--ink)}.p99{stroke:var(--warn)}.rate{stroke:var(--good)}
.bar{fill:var(--line)}.bar.master,.bar.leader{fill:var(--blue);opacity:.75}
.bar.gone{fill:var(--bad);opacity:.4}.label{fill:var(--ink)}
.c0{stroke:#2563eb}.c1{stroke:#d97706}.c2{stroke:#059669}.c3{stroke:#db2777}.c4{stroke:#7c3aed}
.c5{stroke:#64748b}
.name{stroke:none}.name.c0{fill:#2563eb}.name.c1{fill:#d97706}.name.c2{fill:#059669}
.name.c3{fill:#db2777}.name.c4{fill:#7c3aed}.name.c5{fill:#64748b}
section{border-top:2px solid var(--line);margin-top:40px;padding-top:8px}a{color:var(--blue)}
"""
LEGEND = (
    "Dots are sends: green acknowledged, blue unknown, red refused; lines: the median (dark) and "
    "the 99th percentile (amber). Shaded: a fault is on. Hover for details."
)


class ReportPage(msgspec.Struct, frozen=True):
    """The subject of a page.

    Attributes:
        title: name of the scenario.
        facts: seed, version, cluster and the like, in order.
        faults: as they were, with times in seconds on the clock of the history.
        op: the operation that is drawn.
        commits: what each fault cost those who commit metadata; empty: nobody did.
        trouble: why the scenario could not be played to its end; empty: it was.
    """

    title: str
    facts: dict[str, str]
    history: History
    faults: tuple[Fault, ...]
    observations: tuple[Observation, ...]
    verdicts: tuple[Verdict, ...]
    outages: tuple[Outage, ...]
    op: str = "enqueue"
    commits: tuple[Outage, ...] = ()
    trouble: str = ""

    @property
    def passed(self) -> bool:
        """Every checker passed, there was at least one, and every fault bit."""
        return bool(self.verdicts) and not self.broken and not self.unproved

    @property
    def broken(self) -> bool:
        """A checker found something."""
        return not all(verdict.passed for verdict in self.verdicts)

    @property
    def unproved(self) -> bool:
        """It was not played to its end, struck nobody, or a fault did not bite."""
        return bool(self.trouble) or not self.faults or any(fault.invalid for fault in self.faults)


def render(page: ReportPage) -> str:
    """The page of one run."""
    summary = _result(page.passed, "passed", "failed")
    return _document(page.title, f"<h1>{escape(page.title)}: {summary}</h1>{_section(page)}")


def render_all(title: str, facts: Mapping[str, str], pages: Sequence[ReportPage]) -> str:
    """The page of several runs: a table of all, then each of them."""
    passed = bool(pages) and all(page.passed for page in pages)
    rows = [
        [
            f'<a href="#run{number}">{escape(page.title)}</a>',
            _result(page.passed, "passed", "failed"),
            str(len(page.faults)),
            _worst(page.outages),
            _worst(page.commits),
            escape(page.trouble) or _complaints(page),
        ]
        for number, page in enumerate(pages)
    ]
    heads = ("Scenario", "Verdict", "Faults", "Write gap, worst", "Commit gap, worst", "Why not")
    sections = [
        f'<section id="run{number}"><h1>{escape(page.title)}: '
        f"{_result(page.passed, 'passed', 'failed')}</h1>{_section(page)}</section>"
        for number, page in enumerate(pages)
    ]
    return _document(
        title,
        f"<h1>{escape(title)}: {_result(passed, 'passed', 'failed')}</h1>"
        f'<p class="meta">{_facts(facts)}</p>{_table(heads, rows)}{"".join(sections)}',
    )


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{body}"
        "</body></html>\n"
    )


def _section(page: ReportPage) -> str:
    axis = _axis(page)
    trouble = f'<p class="fail">{escape(page.trouble)}</p>' if page.trouble else ""
    return (
        f'<p class="meta">{_facts(page.facts)}</p>{trouble}'
        f"<h2>Verdicts</h2>{_verdicts(page.verdicts)}"
        f"<h2>Faults</h2>{_faults(page, axis)}"
        f"<h2>Time line</h2><figure>{_picture(page, axis)}</figure>"
        f'<p class="meta">{escape(LEGEND)}</p>'
    )


def _facts(facts: Mapping[str, str]) -> str:
    return escape(" · ".join(f"{name} {text}" for name, text in facts.items()))


def _complaints(page: ReportPage) -> str:
    """Which checkers failed, and which faults are not proved."""
    found = [verdict.checker for verdict in page.verdicts if not verdict.passed]
    found += [f"{fault.fault} is not proved" for fault in page.faults if fault.invalid]
    return escape(", ".join(found)) or "–"


def _worst(outages: Sequence[Outage]) -> str:
    if not outages:
        return "–"
    known = [outage.worst_ms for outage in outages if outage.worst_ms is not None]
    return _ms(max(known)) if len(known) == len(outages) else "never resumed"


def _axis(page: ReportPage) -> Axis:
    times = [operation.called_ms for operation in page.history.operations]
    times += [
        operation.returned_ms
        for operation in page.history.operations
        if operation.returned_ms is not None
    ]
    times += [observation.at_ms for observation in page.observations]
    times += [round(at_s * 1000) for fault in page.faults for at_s in (fault.start_s, fault.end_s)]
    return Axis(min(times, default=0), max(times, default=1))


def _picture(page: ReportPage, axis: Axis) -> str:
    bands = [
        Band(
            fault.fault,
            round(fault.start_s * 1000),
            round(fault.end_s * 1000),
            f"{fault.fault}: {', '.join(fault.targets)}",
        )
        for fault in page.faults
    ]
    operations = page.history.operations
    steps = series.steps(operations, page.op, axis.start_ms, axis.end_ms)
    picture = Picture(axis, bands)
    picture.scatter(series.points(operations, page.op), steps)
    picture.rate(steps)
    picture.bars(series.bars(page.observations, axis.end_ms))
    picture.curves(series.curves(page.observations))
    return picture.render(f"Time line of {page.title}")


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = [
        [
            escape(verdict.checker),
            _result(verdict.passed, "passed", "failed"),
            "<br>".join(
                f"<code>{escape(name)}</code> {escape(_figure(value))}"
                for name, value in verdict.figures.items()
            ),
            _violations(verdict),
        ]
        for verdict in verdicts
    ]
    return _table(("Checker", "Verdict", "Figures", "What is wrong"), rows)


def _violations(one: Verdict) -> str:
    if not one.violations:
        return "nothing"
    more = one.violation_count - len(one.violations)
    told = [*one.violations, *([f"… and {more} more."] if more else [])]
    return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in told)}</ul>"


def _faults(page: ReportPage, axis: Axis) -> str:
    costs = {outage.fault: outage for outage in page.outages}
    commits = {item.fault: item for item in page.commits}
    rows = []
    for fault in page.faults:
        cost = costs.get(fault.fault)
        commit = commits.get(fault.fault)
        rows.append(
            [
                escape(fault.fault),
                escape(", ".join(fault.targets)),
                f"{fault.start_s - axis.start_ms / 1000:.1f} s",
                f"{fault.end_s - fault.start_s:.1f} s",
                _result(not fault.invalid, "it bit", "not proved: " + escape(fault.invalid)),
                _ms(cost.worst_ms, "never resumed") if cost else "–",
                _ms(cost.median_ms) if cost else "–",
                _ms(cost.rto_ms) if cost else "–",
                _ms(commit.worst_ms, "never resumed") if commit else "–",
                " / ".join(_share(item) for item in (cost.before, cost.during, cost.after))
                if cost
                else "–",
            ]
        )
    heads = ("Fault", "Targets", "At", "For", "Proof", "Write gap, worst client", "Median client")
    more = ("RTO as OpenChaos", "Commit gap", "Success before / during / after")
    return _table((*heads, *more), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are markup already."""
    head = "".join(f"<th>{escape(item)}</th>" for item in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _result(passed: bool, good: str, bad: str) -> str:
    return f'<span class="{"pass" if passed else "fail"}">{good if passed else bad}</span>'


def _figure(value: float | str | bool | None) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,}"
        case _:
            return value


def _ms(value: float | None, missing: str = "–") -> str:
    return missing if value is None else f"{value:,.0f} ms"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
