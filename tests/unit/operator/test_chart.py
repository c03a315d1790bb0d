"""The chart: definitions letter by letter as generated, every value explained, ports that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from gantry_operator import names
from gantry_operator.builders import broker, controller

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "gantry"


def definitions(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}


def test_definitions_are_the_generated_ones() -> None:
    assert definitions(CHART / "crds") == definitions(ROOT / "crds")


def objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of a schema that describes a value, by its path."""
    for name, part in schema.get("properties", {}).items():
        yield f"{path}{name}", part
        yield from objects(part, f"{path}{name}.")


def test_every_value_is_in_the_schema_and_explained() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    known = dict(objects(schema))
    assert schema["additionalProperties"] is False
    for path, part in known.items():
        assert part["description"].endswith("."), path
        if "properties" in part:
            assert part["additionalProperties"] is False, path
    given = set(paths(values, known))
    described = {path for path, part in known.items() if "properties" not in part}
    assert given <= described
    # Helm's own, and a container's limits, have no default.
    unset = {"global", "operator.resources.limits", "controllerGroup.resources.limits"}
    assert described - given <= unset


def paths(values: dict[str, Any], known: dict[str, Any], path: str = "") -> Iterator[str]:
    """The path of every value, down to what the schema does not take apart."""
    for name, value in values.items():
        if "properties" in known.get(f"{path}{name}", {}):
            yield from paths(value, known, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_network_policies_name_the_ports_of_the_pods() -> None:
    text = (CHART / "templates" / "networkpolicy.yaml").read_text(encoding="utf-8")
    written = {int(port) for port in re.findall(r"port: (\d+)", text)}
    served = {port for _, port in (*controller.PORTS, *broker.PORTS)}
    assert written == served | {names.OPERATOR_HTTP_PORT}
