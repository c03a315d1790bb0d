"""`make readme`: the figures of the last end-to-end run, put into the README between its markers.

Only figures that have a limit are shown there; the whole table stays in build/e2e/report.md.
"""

from __future__ import annotations

import json
import sys

from harness import installation
from harness.report import Account, Row, quietness, summary, table

REPORT = installation.ROOT / "build" / "e2e" / "report.json"
README = installation.ROOT / "README.md"
BEGIN, END = "<!-- e2e figures: begin -->", "<!-- e2e figures: end -->"


def main() -> int:
    """Rewrite the README; 1 with a sentence when there is no report or no place for it."""
    try:
        rows = [read(entry) for entry in json.loads(REPORT.read_text("utf-8"))]
    except OSError:
        print(f"{REPORT} is missing: run make e2e first", file=sys.stderr)
        return 1
    README.write_text(replaced(README.read_text("utf-8"), rows), "utf-8")
    return 0


def read(entry: dict[str, object]) -> Row:
    """One row of report.json."""
    fields = {name: entry[name] for name in Row._fields if name in entry}
    values, account = fields["values"], fields["account"]
    assert isinstance(values, list)
    assert isinstance(account, list)
    return Row(**(fields | {"values": tuple(values), "account": Account(*account)}))  # type: ignore[arg-type]


def replaced(text: str, rows: list[Row]) -> str:
    """`text` with what is between the markers replaced.

    Raises:
        ValueError: the markers are missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the README lacks {BEGIN} and {END}")
    shown = table([row for row in rows if row.limit is not None])
    words = f"{summary(rows)}\n\n{quietness(rows)}"
    return f"{before}{BEGIN}\n{shown}\n{words}\n{END}{after}"


if __name__ == "__main__":
    sys.exit(main())
