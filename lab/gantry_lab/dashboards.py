"""Makes the chart's Grafana dashboards: ``python -m gantry_lab.dashboards [--check]``.

``dashboards.yaml`` beside this module says what is shown: titles, units and queries. Everything
else that Grafana wants is the same for all panels, and is added here. The JSON lies in the chart,
where Helm finds it, and who imports it by hand; it is not edited there.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

WISHED = Path(__file__).with_suffix(".yaml")
FOLDER = Path("charts/gantry/dashboards")
LINE_WIDTH = 24  # of Grafana's grid
STAT_WIDTH, STAT_HEIGHT = 4, 4
PANEL_WIDTH, PANEL_HEIGHT = 8, 8
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WORDS = {
    "ONE": 'namespace=~"$namespace",app_kubernetes_io_instance=~"$instance"',
    "SPACE": 'namespace=~"$namespace"',
    "RATE": "$__rate_interval",
}
"""Words of the queries in ``dashboards.yaml``, and what they stand for."""


def dashboards() -> dict[str, str]:
    """The dashboards as Grafana imports them, by file name."""
    wished: dict[str, Any] = yaml.safe_load(WISHED.read_text("utf-8"))
    return {f"{name}.json": _rendered(name, item) for name, item in wished.items()}


def _rendered(name: str, wished: dict[str, Any]) -> str:
    """Panel by panel, each in a line of its own."""
    head = {
        "uid": name,
        "title": wished["title"],
        "tags": ["gantry"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables(wished["instances"])},
    }
    stats = [_stat(item) for item in wished["stats"]]
    panels = [_panel("timeseries", item, item["queries"]) for item in wished["panels"]]
    below = _place(stats, STAT_WIDTH, STAT_HEIGHT, top=0)
    _place(panels, PANEL_WIDTH, PANEL_HEIGHT, top=below)
    numbered = [{"id": number, **panel} for number, panel in enumerate(stats + panels, 1)]
    parts = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    lines = ",\n".join(f"  {json.dumps(panel)}" for panel in numbered)
    return "{\n" + ",\n".join([*parts, f' "panels": [\n{lines}\n ]']) + "\n}\n"


def _variables(metric: str) -> list[dict[str, Any]]:
    """Where the data is, and the namespaces and instances that export ``metric``."""
    chosen = f"{metric}{{{WORDS['SPACE']}}}"
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        _variable("namespace", f"label_values({metric}, namespace)"),
        _variable("instance", f"label_values({chosen}, app_kubernetes_io_instance)"),
    ]


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
    }


def _stat(wished: dict[str, Any]) -> dict[str, Any]:
    panel = _panel("stat", wished, {"": wished["query"]})
    if "alarm" in wished:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": wished["alarm"]}]
        panel["fieldConfig"]["defaults"]["thresholds"] = {"mode": "absolute", "steps": steps}
    return panel


def _panel(kind: str, wished: dict[str, Any], queries: dict[str, str]) -> dict[str, Any]:
    return {
        "type": kind,
        "title": wished["title"],
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": wished.get("unit", "short"), "min": 0}},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": _spelled(query), "legendFormat": legend}
            for at, (legend, query) in enumerate(queries.items())
        ],
    }


def _spelled(query: str) -> str:
    for word, meaning in WORDS.items():
        query = query.replace(word, meaning)
    return query


def _place(panels: list[dict[str, Any]], width: int, height: int, *, top: int) -> int:
    """Put panels side by side, and line below line; returns where the next line begins."""
    in_line = LINE_WIDTH // width
    for at, panel in enumerate(panels):
        line, column = divmod(at, in_line)
        panel["gridPos"] = {"x": column * width, "y": top + line * height, "w": width, "h": height}
    return top + -(-len(panels) // in_line) * height


def main(argv: list[str] | None = None) -> int:
    """Writes or checks the files; 1 when ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare, write nothing")
    options = parser.parse_args(argv)
    for name, text in dashboards().items():
        path = FOLDER / name
        if path.exists() and path.read_text("utf-8") == text:
            continue
        if options.check:
            sys.stderr.write(f"{path}: run `python -m gantry_lab.dashboards`\n")
            return 1
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
