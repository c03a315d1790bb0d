"""A run from its records to its outcome: what passes, what fails, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from gantry_chaos.checkers.verdicts import verdict
from gantry_chaos.history.lines import Line, Request, Response
from gantry_chaos.history.observations import Observation, RoleSeen
from gantry_chaos.plan.engine import Band
from gantry_chaos.report.outcome import judge, openchaos_results, told
from gantry_chaos.report.page import ReportPage

FAULT = Band("kill-master", ("gantry/orders-broker-0",), 20.0, 22.0)
ROLES: list[Observation] = [
    RoleSeen(0, "orders", "orders-broker-0", "master", 4),
    RoleSeen(21_000, "orders", "orders-broker-1", "master", 5),
]


def recorded() -> list[Line]:
    """One client sends ten messages a second and is not served for 1.5 s after 20 s."""
    found: list[Line] = []
    for at in range(10_000, 40_000, 100):
        value, down = str(at), 20_000 <= at < 21_500
        found.append(Request("p", "enqueue", value, None, at))
        outcome = "UNKNOWN" if down else "SUCCESS"
        found.append(Response("p", "enqueue", outcome, value, None, at + 20, 20))  # type: ignore[arg-type]
        if not down:
            found.append(Response("c", "dequeue", "SUCCESS", value, None, at + 30, 0))
        epoch = "4:0" if at < 21_000 else "5:1"
        found.append(Request("r", "read", None, "orders", at))
        found.append(Response("r", "read", "SUCCESS", epoch, "orders", at + 5, 5))
    return found


def answered(op: str, value: str, key: str | None, at_ms: int) -> list[Line]:
    """One operation more, of one more client."""
    asked = Request("s", op, value, key, at_ms)
    return [asked, Response("s", op, "SUCCESS", value, key, at_ms + 1, 1)]


def run(
    lines: list[Line] | None = None, faults: tuple[Band, ...] = (FAULT,), **more: object
) -> ReportPage:
    options: Any = {"drained": True, "limit_ms": 3000.0, **more}
    return judge("kill-master", {"seed": "1"}, lines or recorded(), ROLES, faults, **options)


def test_a_good_run_passes_and_says_so() -> None:
    page = run()
    lines = told(page)
    assert page.passed, lines
    assert lines[0] == "CHAOS kill-master passed"
    assert lines[1].startswith("  messages passed: enqueueInvokeCount=300, enqueueSuccessCount=285")
    assert lines[-1] == "  kill-master on gantry/orders-broker-0: write gap 1500 ms; it bit"
    checkers = [one.checker for one in page.verdicts]
    assert checkers == ["messages", "metadata", "roles", "availability"]


@pytest.mark.parametrize(
    ("lines", "options", "sentence"),
    [
        ([*recorded(), *recorded()[:2]], {}, "10000 was sent twice"),
        (
            [*recorded(), *answered("enqueue", "x", None, 50_000)],
            {},
            "x was acknowledged and never consumed.",
        ),
        (
            [*recorded(), *answered("read", "4:0", "orders", 30_000)],
            {},
            "orders: s read 4:0 (30000 to 30001 ms) after",
        ),
        (None, {"limit_ms": 1000.0}, "a client could not write for 1500 ms, 1000 ms are allowed."),
        (None, {"drained": False}, "Consumers did not read to the end"),
        (None, {"more": (verdict("tier", {}, ["A pack is missing."]),)}, "A pack is missing."),
    ],
    ids=["twice", "lost", "stale", "slow", "not drained", "tier"],
)
def test_what_is_wrong_fails_the_run(
    lines: list[Line] | None, options: dict[str, object], sentence: str
) -> None:
    page = run(lines, **options)
    assert not page.passed
    assert told(page)[0] == "CHAOS kill-master FAILED"
    assert any(sentence in line for line in told(page)), told(page)


def test_a_fault_that_did_not_bite_fails_the_run() -> None:
    page = run(faults=(Band("kill-master", ("x",), 20.0, 22.0, "It still runs."),))
    assert not page.passed
    assert told(page)[-1].endswith("It still runs.")


def test_openchaos_reads_its_own_keys() -> None:
    results = openchaos_results(run())
    assert yaml.safe_load(results["queue-result"]) == {
        "enqueueInvokeCount": 300,
        "enqueueSuccessCount": 285,
        "dequeueSuccessCount": 285,
        "lostMessageCount": 0,
        "duplicateMessageCount": 0,
        "atMostOnce": True,
        "atLeastOnce": True,
        "exactlyOnce": True,
        "isValid": True,
    }
    (record,) = yaml.safe_load(results["rto-result"])["results"]
    assert record["isUnavailableInFaultInterval"] is True
    assert record["rtoTime"] == 1520
    assert (record["startTimestamp"], record["endTimestamp"]) == (20_000, 22_000)
