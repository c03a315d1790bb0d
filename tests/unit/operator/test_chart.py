"""The chart carries the definitions that the models generate, letter by letter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "gantry"


def definitions(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}


def test_definitions_are_the_generated_ones() -> None:
    assert definitions(CHART / "crds") == definitions(ROOT / "crds")


@pytest.mark.parametrize("section", ["image", "operator", "controllerGroup"])
def test_every_value_is_in_the_schema(section: str) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    known = schema["properties"][section]
    assert set(values[section]) == set(known["properties"])
    assert known["additionalProperties"] is False
