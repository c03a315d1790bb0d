"""docs/reasons.md has every reason of conditions and events, in the code's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gantry_operator.plan.reasons import Reason

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reasons.md"


def test_the_page_has_every_reason_once_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert [(name, meaning) for name, meaning, _ in rows] == [
        (reason.value, reason.__doc__) for reason in Reason
    ]
    assert [name for name, _, advice in rows if not advice.endswith((".", ")."))] == []


@pytest.mark.parametrize("page", ["reasons.md", "runbooks.md"])
def test_fields_that_a_page_tells_to_change_are_those_of_resources(page: str) -> None:
    reference = (PAGE.parent / "reference.md").read_text("utf-8")
    named = set(re.findall(r"`spec\.([\w.]+)", (PAGE.parent / page).read_text("utf-8")))
    assert len(named) > 3
    assert {path for path in named if f"| `{path}` |" not in reference} == set()
