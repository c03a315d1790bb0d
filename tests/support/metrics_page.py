"""docs/metrics.md, section by section, compared with what running components export.

A name says its unit as Prometheus asks for: base units, at its end, before ``_total`` of counters.
``DEVIATIONS`` are the names that do otherwise and stay, since dashboards of users have them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.core import Metric

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
SHARED = (
    "gantry_dns_",
    "gantry_tls_",
    "gantry_listener_tls_",
    "gantry_member_tls_",
    "gantry_tracing_",
)
"""Beginnings of what several components export; a section of its own has them."""

UNITS = ("bytes", "seconds", "ratio")
NO_BASE_UNITS = ("ms", "milliseconds", "minutes", "hours", "kb", "kib", "mb", "mib", "percent")
DEVIATIONS = {
    "gantry_broker_request_bytes_in_flight": "bytes",
    "gantry_controller_log_bytes_since_snapshot": "bytes",
    "gantry_listener_tls_certificate_expires_seconds": "seconds since 1970",
    "gantry_member_tls_certificate_expires_seconds": "seconds since 1970",
    "gantry_tls_certificate_expires_seconds": "seconds since 1970",
}
"""Names whose unit is not their end, or whose end says less than it should."""

_HEAD = "| Metric | Type | Unit | Labels | Meaning |\n| --- | --- | --- | --- | --- |\n"


def exposed(family: Metric) -> str:
    """The name that a query uses."""
    return family.name + ("_total" if family.type == "counter" else "")


def unit(name: str) -> str:
    """The unit in a metric's name; "" where it counts things."""
    base = name.removesuffix("_total")
    if base.endswith("_timestamp_seconds"):
        return "seconds since 1970"
    return DEVIATIONS.get(base) or next((one for one in UNITS if base.endswith(f"_{one}")), "")


def labels(family: Metric) -> set[str]:
    """Labels of a family: those that its samples have, and those that it was declared with."""
    declared = getattr(family, "_labelnames", ())
    return {*declared, *(name for sample in family.samples for name in sample.labels)} - {"le"}


def check_section(title: str, families: Iterable[Metric]) -> None:
    """The section's table has these families and no other; each name and help text is sound.

    ``GANTRY_REWRITE=1`` writes the table anew; review the diff.
    """
    found = sorted(families, key=lambda family: family.name)
    names = [family.name for family in found]
    assert len(names) == len(set(names)), "a family comes twice"
    assert [complaint for family in found for complaint in complaints(family)] == []
    table = _HEAD + "".join(map(_row, found))
    text = PAGE.read_text("utf-8")
    before, heading, rest = text.partition(f"\n## {title}\n")
    assert heading, f"docs/metrics.md has no section {title!r}"
    section, next_heading, after = rest.partition("\n## ")
    words, head, rows = section.partition(_HEAD)
    if os.environ.get("GANTRY_REWRITE"):
        words = words.rstrip("\n") + "\n\n"
        PAGE.write_text(before + heading + words + table + next_heading + after, "utf-8")
        return
    assert head + rows == table, "write docs/metrics.md anew with GANTRY_REWRITE=1"


def of_their_own(families: Iterable[Metric]) -> list[Metric]:
    """Families but for those that several components export."""
    return [family for family in families if not family.name.startswith(SHARED)]


def complaints(family: Metric) -> list[str]:
    """What is wrong with a family's name, type or help text, a sentence each."""
    name, text = family.name, family.documentation
    found = []
    if not re.fullmatch(r"gantry_[a-z][a-z0-9]*(_[a-z0-9]+)+", name):
        found.append(f"{name} is no name in the style of Prometheus")
    if not text.endswith("."):
        found.append(f"{name} has no help text that is a sentence")
    if family.type not in {"counter", "gauge", "histogram"}:
        found.append(f"{name} is a {family.type}")
    words = name.split("_")
    found += [f"{name} has no base unit" for word in words if word in NO_BASE_UNITS]
    is_odd = any(one in words for one in UNITS) and words[-1] not in UNITS
    if is_odd and name not in DEVIATIONS:
        found.append(f"{name} has its unit before its end")
    return found


def names_on_page() -> set[str]:
    """Every metric that the page has a row for."""
    return set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE))


def _row(family: Metric) -> str:
    name = exposed(family)
    shown = " ".join(f"`{label}`" for label in sorted(labels(family)))
    return f"| `{name}` | {family.type} | {unit(name)} | {shown} | {family.documentation} |\n"
