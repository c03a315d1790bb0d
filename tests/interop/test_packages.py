"""Ways to install, by the programs that people install with: each gives what the chart gives.

Helm, Kustomize, a registry and OLM's validators are built through Go's modules, which takes minutes
the first time; skipped without Go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from gantry_lab.packages import bundle, kustomize
from gantry_lab.packages.rendered import (
    CHART,
    NAMESPACE,
    RELEASE,
    Manifest,
    PackageError,
    definitions,
    objects,
    rendered,
    version,
    write,
)
from support.go_programs import MISSING
from support.packages import ROOT, judged, kustomized, path_with_helm, registry, said
from support.rights import HOME, Right, chart

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.timeout(3600)]

IMAGE = "registry.example:5000/mq/gantry:7"
EVERYWHERE = {"operator": {"allNamespaces": True}}


@pytest.fixture(scope="module")
def search_path() -> str:
    return path_with_helm()


@pytest.fixture(autouse=True)
def _helm(search_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", search_path)


def of_kind(found: list[Manifest], kind: str) -> list[Manifest]:
    return [one for one in found if one["kind"] == kind]


# --- Helm ------------------------------------------------------------------------------------


def test_a_release_serves_its_own_namespace_by_a_role() -> None:
    found = objects(rendered("mq"))
    assert of_kind(found, "ClusterRole") == of_kind(found, "ClusterRoleBinding") == []
    assert {role["metadata"]["namespace"] for role in of_kind(found, "Role")} == {"mq"}
    assert served(found) == "mq"


def test_further_namespaces_get_a_role_each() -> None:
    found = objects(rendered("mq", {"operator": {"namespaces": ["mq", "shop"]}}))
    roles = [role["metadata"] for role in of_kind(found, "Role")]
    assert of_kind(found, "ClusterRole") == []
    assert [role["namespace"] for role in roles if not role["name"].endswith("-lease")] == [
        "mq",
        "shop",
    ]
    assert served(found) == "mq,shop"


def test_all_namespaces_are_served_by_a_cluster_role() -> None:
    found = objects(rendered("mq", EVERYWHERE))
    assert len(of_kind(found, "ClusterRole")) == len(of_kind(found, "ClusterRoleBinding")) == 1
    assert served(found) is None


def test_what_is_monitored_is_what_is_served() -> None:
    watched = {"podMonitor": {"enabled": True}, "networkPolicy": {"metricsFrom": [{}]}}
    (one,) = of_kind(objects(rendered("mq", watched)), "PodMonitor")
    assert one["spec"]["namespaceSelector"] == {"matchNames": ["mq"]}
    (everywhere,) = of_kind(objects(rendered("mq", watched | EVERYWHERE)), "PodMonitor")
    assert everywhere["spec"]["namespaceSelector"] == {"any": True}


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ({"allNamespaces": True, "namespaces": ["mq"]}, "keep one of the two"),
        ({"namespaces": ["shop"]}, "nobody would serve the ControllerGroup"),
    ],
)
def test_contradictions_are_refused(operator: Mapping[str, Any], words: str) -> None:
    with pytest.raises(PackageError, match=words):
        rendered("mq", {"operator": operator})


def served(found: list[Manifest]) -> str | None:
    (deployment,) = of_kind(found, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    told = {one["name"]: one.get("value") for one in container["env"]}
    return told.get("GANTRY_NAMESPACES")


# --- a registry ------------------------------------------------------------------------------


def test_a_chart_from_a_registry_is_the_one_of_the_directory(tmp_path: Path) -> None:
    with registry(tmp_path) as address:
        place = f"oci://{address}/charts"
        said(str(ROOT / ".ci/package"), "push", REGISTRY=place, PLAIN_HTTP="1")
        pulled = ("--version", version(), "--plain-http")
        flags = ("--namespace", NAMESPACE, "--include-crds")
        from_there = said("helm", "template", RELEASE, f"{place}/gantry", *pulled, *flags)
        shown = yaml.safe_load(said("helm", "show", "chart", f"{place}/gantry", *pulled))
    assert from_there == said("helm", "template", RELEASE, str(CHART), *flags)
    assert shown["version"] == shown["appVersion"] == version()
    assert len(of_kind(objects(from_there), "CustomResourceDefinition")) == len(definitions())


@pytest.mark.parametrize("place", ["", "registry.example/charts", "oci://"])
def test_no_registry_is_told_in_a_sentence(place: str) -> None:
    with pytest.raises(AssertionError, match="write it as oci://HOST/PATH"):
        said(str(ROOT / ".ci/package"), "push", REGISTRY=place)


# --- Kustomize -------------------------------------------------------------------------------


@pytest.mark.parametrize("namespace", [NAMESPACE, "my-shop"])
@pytest.mark.parametrize("overlay", kustomize.OVERLAYS)
def test_an_overlay_is_what_helm_renders(overlay: str, namespace: str, tmp_path: Path) -> None:
    folder = written(tmp_path) / "overlays" / overlay
    rewrite(folder, f"namespace: {NAMESPACE}", f"namespace: {namespace}")
    wished = rendered(namespace, kustomize.OVERLAYS[overlay])
    assert by_name(kustomized(folder)) == by_name(wished, *definitions().values())


def test_the_base_is_what_helm_renders_by_default(tmp_path: Path) -> None:
    base = written(tmp_path) / "base"
    assert by_name(kustomized(base)) == by_name(rendered(NAMESPACE), *definitions().values())


def test_an_image_of_kustomize_is_also_that_of_the_groups(tmp_path: Path) -> None:
    folder = written(tmp_path) / "overlays" / "one-namespace"
    images = "images: [{name: gantry, newName: registry.example/gantry, newTag: '7'}]\nresources:"
    rewrite(folder, "resources:", images)
    values = {"image": {"repository": "registry.example/gantry", "tag": "7"}}
    wished = rendered(NAMESPACE, values)
    assert by_name(kustomized(folder)) == by_name(wished, *definitions().values())


def written(folder: Path) -> Path:
    write(kustomize.package(), folder / "package")
    return folder / "package"


def rewrite(folder: Path, old: str, new: str) -> None:
    path = folder / "kustomization.yaml"
    text = path.read_text("utf-8")
    assert text.count(f"\n{old}") == 1
    path.write_text(text.replace(f"\n{old}", f"\n{new}"), "utf-8")


def by_name(*texts: str) -> dict[tuple[str, str], Manifest]:
    found = [one for text in texts for one in objects(text)]
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(named) == len(found)
    return named


# --- the Operator Lifecycle Manager ----------------------------------------------------------


def test_olms_validators_find_no_fault_with_the_bundle(tmp_path: Path) -> None:
    write(bundle.package(IMAGE), tmp_path)
    findings = judged(tmp_path)
    assert [text for text in findings if "Icon not specified" not in text] == []
    assert len(findings) == 1  # so they were asked


def test_the_bundle_gives_the_operator_the_charts_rights() -> None:
    (service_version,) = of_kind(bundle_objects(), "ClusterServiceVersion")
    installs = service_version["spec"]["install"]["spec"]
    assert installs.keys() == {"permissions", "deployments"}
    (permissions,) = installs["permissions"]
    given = {
        Right(verb, group, resource, name)
        for rule in permissions["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
    wished = chart().served | chart().home
    nameless = {right._replace(name="") if right.name == HOME else right for right in wished}
    assert given == nameless


def test_the_bundle_runs_the_image_and_leaves_no_placeholder() -> None:
    files = bundle.package(IMAGE)
    (text,) = (text for name, text in files.items() if "clusterserviceversion" in name)
    assert IMAGE in text
    assert not re.search(r"gantry:0|xnamespacex", text)
    assert {one["kind"] for one in bundle_objects()} == {
        "ClusterServiceVersion",
        "CustomResourceDefinition",
        "PodDisruptionBudget",
    }


def bundle_objects() -> list[Manifest]:
    files = bundle.package(IMAGE)
    return [one for name, text in files.items() if "manifests/" in name for one in objects(text)]
