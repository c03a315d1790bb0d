"""Alert rules and dashboards ask for what is exported, and each alert has its section of a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from gantry_lab.dashboards import FOLDER, dashboards, main
from support import promql
from support.metrics_page import PAGE

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks.md"
CHART = ROOT / "charts" / "gantry"
ASKED = list(promql.asked())
RULES = promql.rules()
BUILT_IN = {"up": set[str](), "ALERTS": {"alertname", "alertstate"}}
"""Series of Prometheus itself."""


def exported() -> dict[str, set[str]]:
    """Metrics with their labels, as docs/metrics.md has them; tests compare it with components."""
    rows = re.findall(
        r"^\| `(\w+)` \| \w+ \| [\w ]*\| ([`\w ]*)\|", PAGE.read_text("utf-8"), re.MULTILINE
    )
    return {name: set(re.findall(r"\w+", labels)) for name, labels in rows}


def where(asked: promql.Asked) -> str:
    return asked.where


@pytest.mark.parametrize("asked", ASKED, ids=where)
def test_every_metric_and_label_that_is_asked_for_is_exported(asked: promql.Asked) -> None:
    known = exported() | BUILT_IN
    wanted = promql.selectors(asked.expression)
    matched = {
        name
        for pattern in promql.patterns(asked.expression)
        for name in known
        if re.fullmatch(pattern, name)
    }
    assert set(wanted) - set(known) == set()
    assert wanted or matched
    for name, labels in wanted.items():
        assert labels - promql.TARGET_LABELS <= known[name], name
    of_any = promql.TARGET_LABELS.union(*(known[name] for name in {*wanted, *matched}))
    by = promql.grouped_by(asked.expression)
    assert by <= of_any
    assert asked.shown <= (by or of_any)


@pytest.mark.parametrize("name", RULES)
def test_every_alert_says_what_is_the_matter_and_has_a_runbook(name: str) -> None:
    rule = RULES[name]
    text = RUNBOOKS.read_text("utf-8")
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{name.lower()}"
    assert f"| [{name}](#{name.lower()}) | {rule['labels']['severity']} |" in text
    _, heading, section = text.partition(f"\n## {name}\n")
    assert heading
    section = section.partition("\n## ")[0]
    for part in ("**Means.**", "**Look at**", "**Do.**"):
        assert section.count(part) == 1, part


def test_every_runbook_has_an_alert() -> None:
    headings = re.findall(r"^## (Gantry\w+)$", RUNBOOKS.read_text("utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(RULES)


def test_the_chart_has_the_dashboards_of_their_source() -> None:
    files = {path.name: path.read_text("utf-8") for path in (ROOT / FOLDER).glob("*")}
    assert files == dashboards()


def test_a_dashboard_that_was_edited_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--check"]) == 1
    assert main([]) == 0
    assert main(["--check"]) == 0
    (tmp_path / FOLDER / "gantry-overview.json").write_text("{}")
    assert main(["--check"]) == 1
    assert "gantry-overview.json: run" in capsys.readouterr().err


@pytest.mark.parametrize("name", promql.dashboards())
def test_panels_do_not_overlap(name: str) -> None:
    dashboard = promql.dashboards()[name]
    assert dashboard["uid"] + ".json" == name
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + column, place["y"] + row)
            for column in range(place["w"])
            for row in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        assert panel["targets"]
        taken |= cells


def test_the_page_scrapes_what_the_chart_scrapes() -> None:
    """Labels of the PodMonitor's targets are those of the configuration without it."""
    (block,) = re.findall(r"```yaml\n(rule_files.*?)```", RUNBOOKS.read_text("utf-8"), re.DOTALL)
    (job,) = yaml.safe_load(block)["scrape_configs"]
    given = {one["target_label"] for one in job["relabel_configs"] if "target_label" in one}
    assert given | {"group"} == promql.TARGET_LABELS
    monitor = (CHART / "templates" / "podmonitor.yaml").read_text("utf-8")
    for label in ("app.kubernetes.io/instance", "app.kubernetes.io/component"):
        assert f"    - {label}\n" in monitor
    ports = re.findall(r"- port: (\S+)\n +honorLabels: true", monitor)
    assert "|".join(ports) == job["relabel_configs"][1]["regex"]
    assert job["honor_labels"] is True
