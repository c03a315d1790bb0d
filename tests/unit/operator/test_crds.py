"""The generated CRDs: structural, small, described, in step with the models and the examples."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from gantry_local.apiserver import crds as local_crds
from gantry_operator.models import generate, schema
from gantry_operator.models.base import Resource
from pydantic import Field
from unit.operator import structural

ROOT = Path(__file__).parents[3]
MAX_BYTES = 210_000
"""kubectl apply keeps the whole object in an annotation, of at most 262,144 bytes. It is compact
JSON there, half of the file."""
CRDS = generate.manifests()
MODELS = {kind.model.__name__: kind.model for kind in generate.KINDS}
KINDS = sorted(MODELS)


def open_api(kind: str) -> dict[str, Any]:
    crd = next(c for c in CRDS.values() if c["spec"]["names"]["kind"] == kind)
    result: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return result


def json_schema(kind: str) -> dict[str, Any]:
    """The same schema for a JSON schema validator, which also refuses unknown fields."""

    def close(node: Any) -> Any:
        if isinstance(node, list):
            return [close(child) for child in node]
        if not isinstance(node, dict):
            return node
        node = {key: close(value) for key, value in node.items()}
        if "properties" in node and isinstance(node["properties"], dict):
            node.setdefault("additionalProperties", False)
        if node.get("nullable"):
            node["type"] = [node["type"], "null"]
        return node

    closed: dict[str, Any] = close(copy.deepcopy(open_api(kind)))
    closed["properties"]["metadata"] = {"type": "object"}
    return closed


@pytest.mark.parametrize("name", CRDS)
def test_files_are_what_the_models_say(name: str) -> None:
    assert (ROOT / "crds" / name).read_text() == generate.render(CRDS[name])


def test_there_are_no_other_files() -> None:
    assert {path.name for path in (ROOT / "crds").iterdir()} == set(CRDS)


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_structural(kind: str) -> None:
    assert list(structural.breaches(open_api(kind))) == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described(kind: str) -> None:
    fields = dict(structural.properties(open_api(kind)))
    fields.pop("$.metadata")
    assert [path for path, node in fields.items() if len(node.get("description", "")) < 10] == []


@pytest.mark.parametrize("kind", KINDS)
def test_spec_fields_with_a_default_say_so(kind: str) -> None:
    fields = structural.properties(open_api(kind)["properties"]["spec"])
    silent = [
        path
        for path, node in fields
        # The default of an object is made of its fields' defaults, which speak for themselves.
        if not isinstance(node.get("default"), dict | None) and "efault" not in node["description"]
    ]
    assert silent == []


@pytest.mark.parametrize("name", CRDS)
def test_an_api_server_accepts_them(name: str) -> None:
    """Among others: every default passes its own CEL rules as it is written."""
    assert local_crds.check(CRDS[name], None) == []


@pytest.mark.parametrize("name", CRDS)
def test_plain_apply_can_install_them(name: str) -> None:
    assert len((ROOT / "crds" / name).read_bytes()) < MAX_BYTES


DETAILS = ("Progressing", "Shards", "Tier")


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        (
            "BrokerGroup",
            [
                *("Status", "Master", "Epoch", "InSync", "Ready", "Available", "Accepted", "Drain"),
                *DETAILS,
                "Age",
            ],
        ),
        (
            "ControllerGroup",
            ["Status", "Leader", "Ready", "Available", "Accepted", "Progressing", "Age"],
        ),
        (
            "FrontGroup",
            ["Status", "Address", "Groups", "Ready", "Available", "Accepted", "Progressing", "Age"],
        ),
        (
            "ConsumerGroup",
            ["Status", "Group", "Cluster", "Enabled", "Ready", "Accepted", "Reason", "Age"],
        ),
        (
            "MessageUser",
            ["Status", "User", "Cluster", "Type", "Secret", "Ready", "Accepted", "Reason", "Age"],
        ),
        ("Topic", ["Status", "Topic", "Cluster", "Queues", "Ready", "Accepted", "Reason", "Age"]),
    ],
)
def test_kubectl_get_shows(kind: str, columns: list[str]) -> None:
    crd = next(c for c in CRDS.values() if c["spec"]["names"]["kind"] == kind)
    version = crd["spec"]["versions"][0]
    assert [c["name"] for c in version["additionalPrinterColumns"]] == columns
    assert "status" in version["subresources"]


@pytest.mark.parametrize("plural", ["brokergroups", "frontgroups"])
def test_groups_scale(plural: str) -> None:
    version = CRDS[f"mq.gantry.dev_{plural}.yaml"]["spec"]["versions"][0]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas"


def test_what_nobody_has_looked_at_is_not_current() -> None:
    """By the rules of kstatus, which Flux waits by: another generation was observed."""
    for kind in KINDS:
        status = open_api(kind)["properties"]["status"]
        assert status["default"] == {"observedGeneration": -1}
        jsonschema.validate(status["default"], status)


def test_nothing_in_status_is_required() -> None:
    for kind in KINDS:
        assert "required" not in open_api(kind)["properties"]["status"]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_examples_are_valid_and_short(path: Path) -> None:
    text = path.read_text()
    documents = list(yaml.safe_load_all(text))
    assert documents
    for body in documents:
        jsonschema.validate(body, json_schema(body["kind"]))
        MODELS[body["kind"]].parse(body)
    if path.name in ("brokergroup.yaml", "controllergroup.yaml", "frontgroup.yaml"):
        assert len(text.splitlines()) <= 15


def test_check_mode_reports_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main(["--dir", str(tmp_path)]) == 0
    assert generate.main(["--dir", str(tmp_path), "--check"]) == 0
    stale = tmp_path / "mq.gantry.dev_brokergroups.yaml"
    stale.write_text(stale.read_text().replace("maximum: 9", "maximum: 8"))
    assert generate.main(["--dir", str(tmp_path), "--check"]) == 1
    assert "mq.gantry.dev_brokergroups.yaml" in capsys.readouterr().err
    assert "maximum: 8" in stale.read_text()


def test_what_cannot_be_expressed_is_refused() -> None:
    class Odd(Resource):
        spec: int | str = Field(default=1, description="Two types.")
        status: int | None = None

    with pytest.raises(schema.SchemaError, match=r"Odd\.spec"):
        schema.structural(Odd)
