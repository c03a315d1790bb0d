"""From what a run recorded to its page, its lines for a terminal, and OpenChaos's results. Pure.

The rule protected here: a run passes only if every checker that belongs to it passed and every
fault bit; what was not checked is not passed over in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from gantry_chaos.checkers import availability, mastership, queue, register
from gantry_chaos.history.operations import Window, history
from gantry_chaos.report.page import ReportPage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gantry_chaos.checkers.availability import Outage
    from gantry_chaos.checkers.mastership import Expectation
    from gantry_chaos.checkers.verdicts import Verdict
    from gantry_chaos.history.lines import Line
    from gantry_chaos.history.observations import Observation
    from gantry_chaos.plan.engine import Band

COMMIT = "commit"  # the operation of those who change metadata
OPENCHAOS_QUEUE_KEYS = (
    "enqueueInvokeCount",
    "enqueueSuccessCount",
    "dequeueSuccessCount",
    "lostMessageCount",
    "duplicateMessageCount",
    "atMostOnce",
    "atLeastOnce",
    "exactlyOnce",
    "isValid",
)


def judge(
    title: str,
    facts: dict[str, str],
    lines: Iterable[Line],
    observations: Sequence[Observation],
    faults: Sequence[Band],
    *,
    drained: bool,
    limit_ms: float | None = None,
    metadata: bool = True,
    expected: Expectation | None = None,
    more: Sequence[Verdict] = (),
) -> ReportPage:
    """Check a run and put its page together.

    Args:
        title: name of the scenario.
        facts: seed, version, cluster and the like.
        lines: of the history; its times are milliseconds of the monotonic clock.
        observations: on the same clock.
        faults: as the engine reports them, on the same clock.
        drained: consumers have read to the end.
        limit_ms: for the worst write gap; None: it is only told.
        metadata: the history has reads of the controllers' metadata, which are checked.
        expected: whether the mastership has to move or to stay; None: it may do either.
        more: verdicts of other checkers, the tier's for example.

    Raises:
        GantryError: the lines contradict each other.
    """
    found = history(lines, f"the history of {title}")
    windows = tuple(
        Window(fault.fault, round(fault.start_s * 1000), round(fault.end_s * 1000))
        for fault in sorted(faults, key=lambda item: item.start_s)
    )
    cost = availability.outages(found.operations, windows)
    commits: list[Outage] = []
    if any(operation.op == COMMIT for operation in found.operations):
        commits = availability.outages(found.operations, windows, op=COMMIT)
    verdicts = [queue.check(found.operations, drained=drained)]
    if metadata:
        verdicts.append(register.check(found.operations))
    verdicts += [
        register.check_roles(observations),
        availability.check(cost, limit_ms=limit_ms),
        *([availability.check(commits, name="commits")] if commits else []),
        *([mastership.check(observations, windows, expected)] if expected else []),
        *more,
    ]
    return ReportPage(
        title=title,
        facts=facts,
        history=found,
        faults=tuple(sorted(faults, key=lambda item: item.start_s)),
        observations=tuple(observations),
        verdicts=tuple(verdicts),
        outages=tuple(cost),
        commits=tuple(commits),
    )


def told(page: ReportPage) -> list[str]:
    """The outcome for a terminal: one line, then one per verdict, fault and violation."""
    lines = [f"CHAOS {page.title} {_word(page.passed)}"]
    for verdict in page.verdicts:
        figures = ", ".join(f"{name}={value}" for name, value in verdict.figures.items())
        lines.append(f"  {verdict.checker} {_word(verdict.passed)}: {figures}")
        lines += [f"    {sentence}" for sentence in verdict.violations]
    if page.trouble:
        lines.append(f"  {page.trouble}")
    costs = {outage.fault: outage for outage in page.outages}
    commits = {commit.fault: commit.worst_ms for commit in page.commits}
    for fault in page.faults:
        gap_ms = costs[fault.fault].worst_ms if fault.fault in costs else None
        gap = "writes never resumed" if gap_ms is None else f"write gap {gap_ms:.0f} ms"
        if (commit_ms := commits.get(fault.fault)) is not None:
            gap += f", commit gap {commit_ms:.0f} ms"
        struck = ", ".join(fault.targets)
        lines.append(f"  {fault.fault} on {struck}: {gap}; {fault.invalid or 'it bit'}")
    return lines


def openchaos_results(page: ReportPage) -> dict[str, str]:
    """OpenChaos's result files: the middle of each name, and its YAML."""
    results: dict[str, str] = {}
    for verdict in page.verdicts:
        if verdict.checker == queue.NAME:
            known = {key: verdict.figures[key] for key in OPENCHAOS_QUEUE_KEYS}
            results["queue-result"] = yaml.safe_dump(known, sort_keys=False)
    windows = {fault.name: fault for fault in page.history.faults}
    windows |= {
        fault.fault: Window(fault.fault, round(fault.start_s * 1000), round(fault.end_s * 1000))
        for fault in page.faults
    }
    records = [
        {
            "faultName": outage.fault,
            "isUnavailableInFaultInterval": outage.rto_ms is not None,
            "isRecoveryInFaultInterval": outage.rto_ms is not None and outage.worst_ms is not None,
            "rtoTime": outage.rto_ms or 0,
            "startTimestamp": windows[outage.fault].start_ms,
            "endTimestamp": windows[outage.fault].end_ms,
        }
        for outage in page.outages
    ]
    results["rto-result"] = yaml.safe_dump({"results": records}, sort_keys=False)
    return results


def _word(passed: bool) -> str:
    return "passed" if passed else "FAILED"
