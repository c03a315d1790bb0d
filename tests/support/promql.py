"""What the rules and the dashboards of the chart ask for: metrics, and labels of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).resolve().parents[2] / "charts/gantry"
RULES = CHART / "rules/gantry.yaml"
TARGET_LABELS = frozenset(
    {"namespace", "pod", "app_kubernetes_io_instance", "app_kubernetes_io_component", "group"}
)
"""Labels that scraping gives, and the group's name where a process hosts many."""

_SELECTOR = re.compile(r"(\bgantry_\w+|\bup\b|\bALERTS\b)\s*(?:\{([^}]*)\})?")
_NAMES = re.compile(r'\{__name__=~"([^"]+)"\}')


class Asked(NamedTuple):
    """An expression of an alert or a panel, and who shows it with which labels."""

    where: str
    expression: str
    shown: frozenset[str]


def rules() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def dashboards() -> dict[str, Any]:
    """The dashboards by file name, as Grafana imports them."""
    files = sorted((CHART / "dashboards").glob("*.json"))
    return {path.name: json.loads(path.read_text("utf-8")) for path in files}


def asked() -> Iterator[Asked]:
    """Everything that is asked for."""
    for name, rule in rules().items():
        texts = " ".join(rule["annotations"].values())
        yield Asked(name, rule["expr"], frozenset(re.findall(r"\$labels\.(\w+)", texts)))
    for name, dashboard in dashboards().items():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                shown = frozenset(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                yield Asked(f"{name}: {panel['title']}", target["expr"], shown)


def selectors(expression: str) -> dict[str, set[str]]:
    """The metrics of an expression, with the labels that are asked of each."""
    found: dict[str, set[str]] = {}
    for name, matchers in _SELECTOR.findall(expression):
        metric = re.sub(r"_(bucket|sum|count)$", "", name)
        found.setdefault(metric, set()).update(re.findall(r"(\w+)\s*=~?", matchers))
    return found


def patterns(expression: str) -> list[str]:
    """Expressions that names of metrics have to match."""
    return _NAMES.findall(expression)


def grouped_by(expression: str) -> set[str]:
    """Labels of ``by (…)``."""
    lists = re.findall(r"\bby \(([^)]*)\)", expression)
    return {label.strip() for text in lists for label in text.split(",")} - {"le"}
