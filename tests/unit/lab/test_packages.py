"""Packages made from the chart: what they are made of, and what they refuse to leave out."""

from __future__ import annotations

import json
import re
import tomllib
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from gantry_lab.packages import bundle, kustomize
from gantry_lab.packages.rendered import (
    CHART,
    MARK,
    Manifest,
    PackageError,
    image_values,
    in_yaml,
    objects,
    version,
    write,
)
from gantry_operator.builders import broker_objects, controller_objects
from gantry_operator.builders.front import front_objects
from gantry_operator.models import BrokerGroup, ControllerGroup, FrontGroup
from gantry_operator.models.generate import manifests
from gantry_operator.settings import OperatorSettings
from gantry_protocol.process.config import load_settings
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[3]


def release(namespace: str = MARK) -> list[Manifest]:
    """A release as the chart makes one, with what matters here."""
    labels = {"app.kubernetes.io/name": "gantry", "app.kubernetes.io/managed-by": "Helm"}
    meta = {"name": "gantry-operator", "namespace": namespace, "labels": labels}
    home = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}
    env = [{"name": "GANTRY_IMAGE", "value": "a:1"}, {"name": "GANTRY_NAMESPACES"}]
    env[1]["value"] = namespace
    container = {"name": "operator", "image": "a:1", "env": env}
    subject = {"kind": "ServiceAccount", "name": "gantry-operator", "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [leases, home | {"resourceNames": [namespace]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "subjects": [subject],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
        {
            "apiVersion": "mq.gantry.dev/v1alpha1",
            "kind": "ControllerGroup",
            "metadata": {"name": "gantry", "namespace": namespace},
            "spec": {"replicas": 3},
        },
    ]


def named(found: list[Manifest], kind: str) -> Manifest:
    (one,) = (one for one in found if one["kind"] == kind)
    return one


# --- both ------------------------------------------------------------------------------------


def test_the_chart_has_the_version_of_the_product() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert version() == project["version"] == chart["version"] == chart["appVersion"]


def test_an_image_is_told_apart_from_its_tag() -> None:
    told = image_values("registry.example:5000/mq/gantry:7")
    assert told == {"image": {"repository": "registry.example:5000/mq/gantry", "tag": "7"}}
    assert image_values("") == {}


@pytest.mark.parametrize("image", ["gantry", "registry.example:5000/mq/gantry"])
def test_an_image_without_a_tag_is_refused(image: str) -> None:
    with pytest.raises(PackageError, match=f"IMAGE is {re.escape(image)} and has no tag"):
        image_values(image)


def test_nothing_of_an_earlier_package_is_left(tmp_path: Path) -> None:
    write({"a/old.yaml": "1"}, tmp_path / "package")
    write({"b/new.yaml": "2"}, tmp_path / "package")
    files = [path for path in (tmp_path / "package").rglob("*") if path.is_file()]
    assert [path.read_text("utf-8") for path in files] == ["2"]


def test_texts_of_several_lines_and_equal_parts_are_written_plainly() -> None:
    part = {"a": "b"}
    found = {"z": "one\ntwo\n", "first": part, "second": part}
    text = in_yaml(found)
    assert text.startswith("z: |\n  one\n")
    assert "&" not in text
    assert objects(text) == [found]


# --- Kustomize -------------------------------------------------------------------------------


def test_an_overlay_of_the_base_itself_changes_nothing() -> None:
    base = release("gantry")
    (text,) = kustomize.overlay(base, base, release()).values()
    (found,) = objects(text)
    assert found["resources"] == ["../../base"]
    assert "patches" not in found


def test_an_overlay_adds_removes_and_changes() -> None:
    base, wished = release("gantry"), release("gantry")
    role = named(wished, "Role")
    role["kind"] = "ClusterRole"
    container = named(wished, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    del container["env"][1]
    container["image"] = "b:2"
    named(wished, "ControllerGroup")["spec"] = {"storage/size": "2Gi"}
    files = kustomize.overlay(base, wished, release())
    assert objects(files["added.yaml"]) == [role]
    (found,) = objects(files["kustomization.yaml"])
    assert found["resources"] == ["../../base", "added.yaml"]
    patches = {
        patch["target"]["kind"]: yaml.safe_load(patch["patch"]) for patch in found["patches"]
    }
    assert patches.keys() == {"Role", "Deployment", "ControllerGroup"}
    assert patches["Role"]["$patch"] == "delete"
    of_container = "/spec/template/spec/containers/0"
    assert patches["Deployment"] == [
        {"op": "remove", "path": f"{of_container}/env/1"},
        {"op": "replace", "path": f"{of_container}/image", "value": "b:2"},
    ]
    assert patches["ControllerGroup"] == [
        {"op": "remove", "path": "/spec/replicas"},
        {"op": "add", "path": "/spec/storage~1size", "value": "2Gi"},
    ]


def patched(found: Any, steps: list[dict[str, Any]]) -> Any:
    """A JSON patch, applied as RFC 6902 says."""
    result = {"root": deepcopy(found)}
    for step in steps:
        words = ["root", *step["path"].split("/")[1:]]
        *way, last = (word.replace("~1", "/").replace("~0", "~") for word in words)
        place: Any = result
        for word in way:
            place = place[int(word) if isinstance(place, list) else word]
        key: Any = int(last) if isinstance(place, list) else last
        if step["op"] == "remove":
            del place[key]
        else:
            assert (step["op"] == "replace") == (isinstance(place, list) or key in place)
            place[key] = step["value"]
    return result["root"]


FIELDS = st.sampled_from(["a", "b", "c/d", "e~f"])
PARTS = st.recursive(
    st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=12,
)


@given(old=st.dictionaries(FIELDS, PARTS), new=st.dictionaries(FIELDS, PARTS))
def test_a_patch_makes_any_object_of_any_other(old: Any, new: Any) -> None:
    meta = {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}}
    files = kustomize.overlay([meta | old], [meta | new], release())
    (found,) = objects(files["kustomization.yaml"])
    steps = [yaml.safe_load(patch["patch"]) for patch in found.get("patches", ())]
    assert patched(meta | old, steps[0] if steps else []) == meta | new


@given(items=st.lists(st.integers(0, 3), max_size=8), data=st.data())
def test_a_list_that_only_loses_items_is_not_written_anew(items: list[int], data: Any) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items)))
    rest = [item for item, stays in zip(items, kept, strict=True) if stays]
    steps = list(kustomize.steps({"list": items}, {"list": rest}))
    assert {step["op"] for step in steps} <= {"remove"}
    assert patched({"list": items}, steps) == {"list": rest}


def test_a_namespace_is_replaced_wherever_kustomize_does_not_know_it() -> None:
    marked = release()
    marked.append(deepcopy(named(marked, "Role")) | {"kind": "ClusterRole"})
    marked[-1]["metadata"] = {"name": f"{MARK}-gantry-operator"}
    (found,) = objects(kustomize.overlay([], [], marked)["kustomization.yaml"])
    namespace, image = found["replacements"]
    targets = {
        (target["select"]["kind"], target["fieldPaths"][0]): target.get("options")
        for target in namespace["targets"]
    }
    cut = {"delimiter": "-", "index": 0}
    assert targets == {
        ("Role", "rules.1.resourceNames.0"): None,
        ("ClusterRole", "metadata.name"): cut,
        ("ClusterRole", "rules.1.resourceNames.0"): None,
        ("Deployment", "spec.template.spec.containers.0.env.1.value"): None,
    }
    assert image["source"]["fieldPath"] == "spec.template.spec.containers.0.image"
    (target,) = image["targets"]
    assert target["fieldPaths"] == ["spec.template.spec.containers.0.env.0.value"]


def test_a_namespace_inside_a_text_is_refused() -> None:
    marked = release()
    named(marked, "ControllerGroup")["spec"]["host"] = f"gantry.{MARK}.svc"
    with pytest.raises(PackageError, match=r"ControllerGroup gantry has the namespace inside"):
        kustomize.overlay([], [], marked)


# --- the Operator Lifecycle Manager ----------------------------------------------------------


@cache
def service_version() -> Manifest:
    files = bundle.files_of(release())
    (text,) = (text for name, text in files.items() if "clusterserviceversion" in name)
    (one,) = objects(text)
    return one


def test_every_field_of_every_kind_is_described_in_the_words_of_its_definition() -> None:
    owned = service_version()["spec"]["customresourcedefinitions"]["owned"]
    crds = {crd["metadata"]["name"]: crd["spec"] for crd in manifests().values()}
    assert {kind["name"] for kind in owned} == crds.keys()
    for kind in owned:
        (served,) = crds[kind["name"]]["versions"]
        parts = served["schema"]["openAPIV3Schema"]["properties"]
        for part in ("spec", "status"):
            told = {field["path"]: field["description"] for field in kind[f"{part}Descriptors"]}
            fields = parts[part]["properties"]
            assert told == {name: field["description"] for name, field in fields.items()}


def test_a_kind_is_made_of_what_the_builders_build() -> None:
    meta = {"name": "a", "namespace": "mq", "uid": "u"}
    tier = {"url": "s3://bucket/prefix", "region": "x", "credentialsSecret": {"name": "keys"}}
    audited = {"tier": tier, "pipeline": {"audit": {"schedule": "0 3 * * *"}}}
    grows = {"autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 9}}
    quorum = ControllerGroup.parse({"metadata": meta, "spec": {}})
    group = BrokerGroup.parse({"metadata": meta, "spec": audited})
    fronts = FrontGroup.parse({"metadata": meta, "spec": grows})
    built: dict[str, list[Any]] = {
        "BrokerGroup": broker_objects(group, quorum, image="a:1", replicas=3),
        "ControllerGroup": controller_objects(quorum, image="a:1"),
        "FrontGroup": front_objects(fronts, quorum, image="a:1"),
    }
    for kind, made in built.items():
        told = {found.kind for found in bundle.RESOURCES[kind]}
        assert {one["kind"] for one in made} == told - {"Pod", "Secret"}, kind


def test_the_operator_serves_what_the_lifecycle_manager_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (deployment,) = service_version()["spec"]["install"]["spec"]["deployments"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    told = {one["name"]: one for one in container["env"]}
    assert "value" not in told["GANTRY_NAMESPACES"]
    place = told["GANTRY_NAMESPACES"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert place == "metadata.annotations['olm.targetNamespaces']"
    for written, served in (("", ()), ("mq", ("mq",)), ("mq,shop", ("mq", "shop"))):
        monkeypatch.setenv("GANTRY_NAMESPACES", written)
        assert load_settings(OperatorSettings).namespaces == served


def test_the_operators_rules_are_given_without_the_name_of_a_namespace() -> None:
    (permissions,) = service_version()["spec"]["install"]["spec"]["permissions"]
    assert permissions["serviceAccountName"] == "gantry-operator"
    leases, home = permissions["rules"]
    assert leases["resources"] == ["leases"]
    assert home == {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}


def test_nothing_in_the_bundle_says_that_helm_keeps_it() -> None:
    files = bundle.files_of(release())
    assert [name for name, text in files.items() if "managed-by" in text or MARK in text] == []


def test_the_examples_are_valid_and_one_of_each_kind() -> None:
    told = json.loads(service_version()["metadata"]["annotations"]["alm-examples"])
    crds = {crd["spec"]["names"]["kind"]: crd["spec"] for crd in manifests().values()}
    assert [one["kind"] for one in told] == list(crds)
    for one in told:
        schema = crds[one["kind"]]["versions"][0]["schema"]["openAPIV3Schema"]
        jsonschema.validate(one, schema)


def test_the_resource_to_begin_with_is_the_charts_quorum() -> None:
    annotations = service_version()["metadata"]["annotations"]
    begin = json.loads(annotations["operatorframework.io/initialization-resource"])
    assert begin["kind"] == "ControllerGroup"
    assert begin["metadata"] == {"name": "gantry"}
    assert begin["spec"] == {"replicas": 3}


def test_what_no_file_is_for_is_refused() -> None:
    found = [*release(), {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}]
    with pytest.raises(PackageError, match="the chart has a Service, which no file"):
        bundle.files_of(found)


def test_a_namespace_that_would_stay_is_refused() -> None:
    found = release()
    named(found, "ControllerGroup")["spec"]["host"] = f"a.{MARK}.svc"
    with pytest.raises(PackageError, match="would name the release's namespace"):
        bundle.files_of(found)


def test_the_scorecard_of_the_bundle_has_all_tests_of_both_suites() -> None:
    files = bundle.files_of(release())
    (found,) = objects(files["tests/scorecard/config.yaml"])
    (stage,) = found["stages"]
    suites: dict[str, list[str]] = {}
    for test in stage["tests"]:
        suites.setdefault(test["labels"]["suite"], []).append(test["entrypoint"][1])
    assert {suite: len(tests) for suite, tests in suites.items()} == {"basic": 1, "olm": 5}
    (told,) = objects(files["metadata/annotations.yaml"])
    labels = re.findall(r"^LABEL (\S+)=(\S+)$", files["bundle.Dockerfile"], re.MULTILINE)
    assert dict(labels) == told["annotations"]
