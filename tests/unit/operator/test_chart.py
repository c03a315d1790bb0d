"""The chart: definitions letter by letter as generated, every value explained, ports that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from gantry_operator import farewell, names
from gantry_operator.api.kinds import CUSTOM, ENTITIES, MESSAGE_USER, OWNED
from gantry_operator.builders.template import USER_ID
from gantry_operator.plan.objects import OPTIONAL_KINDS
from gantry_operator.settings import OperatorSettings
from gantry_operator.shell import STOP_S
from support.rights import Demand, Right, Rights, chart

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


def test_the_operators_pod_has_the_time_for_its_last_acts() -> None:
    text = (CHART / "templates" / "deployment.yaml").read_text(encoding="utf-8")
    grace = re.search(r"terminationGracePeriodSeconds: (\d+)", text)
    assert grace is not None
    acts_s = farewell.ASK_S + max(farewell.FINISH_S, farewell.LET_GO_S)
    assert acts_s + STOP_S < int(grace[1])


def test_the_operator_may_see_whether_its_own_namespace_ends_and_no_other() -> None:
    text = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    (rule,) = re.findall(r"resources: \[namespaces\]\n  (.*)\n  (.*)\n", text)
    assert rule == ("resourceNames: [{{ .Release.Namespace }}]", "verbs: [get]")
    assert text.count("namespaces]") == 1
    roles = (CHART / "templates" / "rbac.yaml").read_text(encoding="utf-8")
    assert roles.count("$home | nindent") == 2  # a ClusterRole, or the Role of that namespace


def test_nobody_is_named_where_the_platform_chooses_the_user() -> None:
    told = "{{- if not .Values.podSecurity.anyUser }}"
    for name in ("deployment.yaml", "tests/available.yaml"):
        text = (CHART / "templates" / name).read_text(encoding="utf-8")
        (named,) = re.findall(rf"{re.escape(told)}\n(.*?)\n *{{{{- end }}}}", text, re.DOTALL)
        ids = re.findall(r"runAs(?:User|Group): (\d+)", named)
        assert set(ids) == {str(USER_ID)}
        assert len(re.findall(r"runAs(?:User|Group)|fsGroup", text)) == len(ids)
    group = (CHART / "templates" / "controllergroup.yaml").read_text(encoding="utf-8")
    assert "{{- if .Values.podSecurity.anyUser }}\n      securityContext: {anyUser: true}" in group


def test_the_images_name_the_same_user_and_a_home_for_any_other() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    images = text.split("\nFROM ")
    ours = [image for image in images if "\nUSER " in image]
    assert len(ours) == 2
    for image in ours:
        assert f"\nUSER {USER_ID}:{USER_ID}\n" in image
        (home,) = re.findall(r" HOME=(\S+)", image)
        assert f"--home-dir {home} " in image
        assert f"\nWORKDIR {home}\n" in image


def test_an_upgrade_looks_for_every_kind_that_it_could_leave_to_nobody() -> None:
    text = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    (kinds,) = re.findall(r"range \$kind := list (.*?) -}}", text)
    assert set(re.findall(r'"(\w+)"', kinds)) == {kind.kind for kind in CUSTOM}
    served = (CHART / "templates" / "deployment.yaml").read_text(encoding="utf-8")
    (told,) = re.findall(
        r"\{name: (\w+), value: \{\{ \. \| quote \}\}\}\n +\{\{- end }}\n +ports", served
    )
    assert f'eq .name "{told}"' in text
    assert told.removeprefix("GANTRY_").lower() in OperatorSettings.model_fields


def test_secrets_are_read_and_made_by_name_and_never_listed_or_written() -> None:
    text = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    rule = text[text.index("resources: [secrets]") :]
    verbs = re.search(r"verbs: \[(.*?)\]", rule)
    assert verbs is not None
    assert verbs[1].split(", ") == ["get", "create"]
    assert text.count("secrets") == 1


def test_the_operators_network_policy_names_its_port() -> None:
    text = (CHART / "templates" / "networkpolicy.yaml").read_text(encoding="utf-8")
    assert {int(port) for port in re.findall(r"port: (\d+)", text)} == {names.OPERATOR_HTTP_PORT}


def test_the_operator_may_do_what_it_does_with_every_kind_it_keeps() -> None:
    granted: dict[tuple[str, str], set[str]] = {}
    for right in chart().served:
        granted.setdefault((right.group, right.resource), set()).add(right.verb)
    for kind in CUSTOM:
        assert {"get", "list", "watch", "patch"} <= granted[kind.group, kind.plural], kind.kind
        assert granted[kind.group, f"{kind.plural}/status"] == {"patch"}, kind.kind
    owners = {kind for kind in CUSTOM if kind not in ENTITIES or kind == MESSAGE_USER}
    for kind in owners:  # of objects that they keep from going before them
        assert granted[kind.group, f"{kind.plural}/finalizers"] == {"update"}, kind.kind
    for kind in OWNED:
        needed = {"get", "list", "watch", "create", "patch"}
        needed |= {"delete"} if kind.kind in OPTIONAL_KINDS else set()
        assert needed <= granted[kind.group, kind.plural], kind.kind


def test_rights_are_read_as_the_api_server_reads_them() -> None:
    rights = Rights("home", namespaces=("shop",))
    lease = Demand("get", "coordination.k8s.io", "leases", "home", "gantry-operator")
    pods = Demand("list", "", "pods", "shop", "")
    home = Demand("get", "", "namespaces", "home", "home")
    for demand in (lease, pods, home):
        assert rights.allows(demand), demand
    assert len(rights.used) == 3
    assert Right("list", "", "pods") in rights.used
    beyond = [
        lease._replace(name="another"),
        lease._replace(namespace="shop"),
        pods._replace(namespace="other"),
        pods._replace(namespace=""),
        pods._replace(resource="pods/log"),
        home._replace(namespace="shop", name="shop"),
    ]
    assert not any(rights.allows(demand) for demand in beyond)
    assert rights.refused == beyond


def test_alerts_lead_to_where_the_runbooks_are_published() -> None:
    template = (CHART / "templates" / "prometheusrule.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    named = re.search(
        r'Files.Get "(.*?)" \| replace "(.*?)" .Values.prometheusRule.runbooks', template
    )
    assert named is not None
    rules = (CHART / named[1]).read_text(encoding="utf-8")
    assert rules.count(f"runbook_url: {named[2]}#") == rules.count("alert: ") > 0
    assert (ROOT / named[2]).exists()
    assert values["prometheusRule"]["runbooks"] == named[2]


def test_what_needs_other_peoples_definitions_is_off() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for part in ("podMonitor", "prometheusRule", "dashboards"):
        assert values[part]["enabled"] is False
