"""Several runs on one page, in one table, and as one exit code."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from gantry_chaos.checkers.availability import Outage
from gantry_chaos.checkers.verdicts import verdict
from gantry_chaos.history.operations import History
from gantry_chaos.plan.engine import Band
from gantry_chaos.report.page import ReportPage, render_all
from gantry_chaos.report.summary import document, exit_code, markdown

GOOD = verdict("messages", {"lostMessageCount": 0}, [])
BAD = verdict("messages", {"lostMessageCount": 1}, ["a | b was acknowledged and never consumed."])
BIT = Band("cut", ("gantry/orders-broker-0",), 10.0, 12.0)
COST = Outage("cut", 812.0, 400.0, 20.0, 510, 1.0, 0.5, 1.0)


def page(title: str = "cut", **changes: object) -> ReportPage:
    whole = ReportPage(title, {}, History((), ()), (BIT,), (), (GOOD,), (COST,), commits=(COST,))
    return msgspec.structs.replace(whole, **changes)


UNPROVED = msgspec.structs.replace(BIT, invalid="None of 2 rules matched a packet.")


@pytest.mark.parametrize(
    ("pages", "code"),
    [
        ([page()], 0),
        ([page(), page(verdicts=(GOOD, BAD))], 1),
        ([page(faults=(UNPROVED,))], 75),
        ([page(faults=(), verdicts=(), trouble="The group did not settle.")], 75),
        ([page(faults=())], 75),
        ([page(faults=(UNPROVED,)), page(verdicts=(BAD,))], 1),
        ([], 75),
    ],
)
def test_the_worst_run_decides(pages: list[ReportPage], code: int) -> None:
    assert exit_code(pages) == code
    assert document({}, pages)["exitCode"] == code


def test_the_table_has_a_row_per_fault_and_one_for_what_was_not_played() -> None:
    text = markdown(
        "Chaos", {"seed": "7"}, [page(verdicts=(BAD,)), page("no", faults=(), trouble="No.")]
    )
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[2:] == [
        "| cut | cut on gantry/orders-broker-0 | 812 ms | 812 ms | 510 ms | FAILED |",
        "| no | No. | – | – | – | FAILED |",
    ]
    assert "seed 7" in text
    assert "a | b was acknowledged and never consumed." in text


def test_one_page_has_all_runs_and_leads_to_them() -> None:
    text = render_all("Chaos", {"seed": "<7>"}, [page(), page("slow", faults=(UNPROVED,))])
    assert text.count("<svg") == 2
    assert text.count("<section") == text.count("</section>") == 2
    assert "<7>" not in text
    for target in re.findall(r'href="#([^"]+)"', text):
        assert f'id="{target}"' in text
    assert not re.search(r"src=|url\(|@import|https?:", text)
    assert "cut is not proved" in text
    assert re.search(r"<h1>Chaos: <span class=\"fail\">failed", text)


def test_the_document_is_json_with_every_violation() -> None:
    found = json.loads(json.dumps(document({"seed": "7"}, [page(verdicts=(BAD,))])))
    (only,) = found["scenarios"]
    assert only["faults"][0]["notProved"] is None
    assert only["outages"][0]["worstMs"] == 812
    assert only["verdicts"][0]["violations"] == ["a | b was acknowledged and never consumed."]
