"""A bundle for the Operator Lifecycle Manager: ``python -m gantry_lab.packages.bundle``.

Deployment and rights are those that Helm renders by default, fields and their words those of the
definitions, examples those of examples/. The lifecycle manager says which namespaces are served,
and makes the Roles there, so what names the release's namespace is put otherwise here.

Not in it: the NetworkPolicy of the operator, which older lifecycle managers refuse in a bundle, and
alerts and dashboards. The ControllerGroup is offered as the resource to begin with.
"""

from __future__ import annotations

import json
import re
import sys
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from gantry_operator.api.kinds import (
    AUTOSCALER,
    BUDGET,
    CONFIG_MAP,
    CONTROLLER_GROUP,
    CRON_JOB,
    DEPLOYMENT,
    NETWORK_POLICY,
    POD,
    SECRET,
    SERVICE,
    STATEFULSET,
)
from gantry_operator.models.generate import manifests

from gantry_lab.packages.rendered import (
    CHART,
    MARK,
    ROOT,
    Files,
    Manifest,
    PackageError,
    definitions,
    image_values,
    in_yaml,
    make,
    objects,
    rendered,
    version,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gantry_operator.api.kinds import Kind

FOLDER = Path("build/bundle")
PACKAGE = "gantry"
CHANNEL = "candidate"
SCORECARD_IMAGE = "quay.io/operator-framework/scorecard-test:v1.42.3"
SCORECARD = {
    "basic": ("basic-check-spec",),
    "olm": (
        "olm-bundle-validation",
        "olm-crds-have-validation",
        "olm-crds-have-resources",
        "olm-spec-descriptors",
        "olm-status-descriptors",
    ),
}
"""The tests of each suite of the scorecard."""
MODES = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
SERVED = {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}
"""Where the lifecycle manager writes the namespaces to serve; nothing there means all."""
_IN_ALL = (SERVICE, BUDGET, NETWORK_POLICY, POD)
RESOURCES: Mapping[str, tuple[Kind, ...]] = {
    "BrokerGroup": (STATEFULSET, CONFIG_MAP, CRON_JOB, *_IN_ALL),
    "ControllerGroup": (STATEFULSET, CONFIG_MAP, SECRET, *_IN_ALL),
    "FrontGroup": (DEPLOYMENT, CONFIG_MAP, AUTOSCALER, *_IN_ALL),
    "Topic": (CONTROLLER_GROUP,),
    "ConsumerGroup": (CONTROLLER_GROUP,),
    "MessageUser": (CONTROLLER_GROUP, SECRET),
}
"""Kinds of the objects that a resource is made of, or is written into."""
_LEFT_OUT = frozenset({"NetworkPolicy", "RoleBinding"})
_IN_SERVICE_VERSION = frozenset({"ControllerGroup", "Deployment", "Role", "ServiceAccount"})
_HELMS = frozenset({"app.kubernetes.io/managed-by", "helm.sh/chart"})
_UI = "urn:alm:descriptor:com.tectonic.ui"
_FIELDS = {
    "replicas": f"{_UI}:podCount",
    "resources": f"{_UI}:resourceRequirements",
    "conditions": "urn:alm:descriptor:io.kubernetes.conditions",
}
_TYPES = {"boolean": f"{_UI}:booleanSwitch", "integer": f"{_UI}:number", "string": f"{_UI}:text"}
_WORDS = {"tls": "TLS", "uid": "UID", "ms": "(ms)", "ref": "reference"}
_ABOUT = """\
Gantry runs groups of RocketMQ-compatible brokers that fail over by themselves: a quorum of
controllers elects another master within a second, and no acknowledged message is lost.

1. Create a ControllerGroup, the quorum that keeps metadata and elects masters.
2. Create a BrokerGroup of three replicas in the same namespace.
3. Clients use `NAME-nameserver.NAMESPACE.svc:9876`, with the ControllerGroup's name.

The operator may be away: brokers serve and fail over without it.
"""


def package(image: str = "") -> Files:
    """The files of the bundle.

    Args:
        image: of every component, with its tag; the chart's where it is empty.

    Raises:
        PackageError: Helm does not render the chart, or it renders what a bundle has no place for.
    """
    return files_of(objects(rendered(MARK, image_values(image))))


def files_of(release: list[Manifest]) -> Files:
    """The files of the bundle, from the objects of a release in the namespace `MARK`.

    Raises:
        PackageError: there is an object that a bundle has no place for, or one that names the
            namespace where it stays unknown.
    """
    release = [_without_helm(found) for found in release]
    wished = service_version(release)
    files = {f"manifests/{name}": text for name, text in definitions().items()}
    files[f"manifests/{PACKAGE}.clusterserviceversion.yaml"] = in_yaml(wished)
    for found in release:
        if found["kind"] in _LEFT_OUT | _IN_SERVICE_VERSION:
            continue
        if found["kind"] != "PodDisruptionBudget":
            raise PackageError(
                f"the chart has a {found['kind']}, which no file of the bundle is for: "
                "put it into one, or among those that are left out"
            )
        del found["metadata"]["namespace"]
        name = f"{found['metadata']['name']}_{found['kind'].lower()}.yaml"
        files[f"manifests/{name}"] = in_yaml(found)
    files["metadata/annotations.yaml"] = in_yaml({"annotations": _annotations()})
    files["tests/scorecard/config.yaml"] = in_yaml(_scorecard())
    files["bundle.Dockerfile"] = _dockerfile()
    for name, text in files.items():
        if MARK in text:
            raise PackageError(f"{name} would name the release's namespace, which is not known yet")
    return files


def service_version(release: list[Manifest]) -> Manifest:
    """The ClusterServiceVersion of a release in the namespace `MARK`."""
    (deployment,) = _of(release, "Deployment")
    (begin,) = _of(release, "ControllerGroup")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for variable in container["env"]:
        if variable["name"] == "GANTRY_NAMESPACES":
            del variable["value"]
            variable["valueFrom"] = SERVED
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    (kubernetes,) = re.findall(r"^>=(\d+\.\d+\.\d+)", chart["kubeVersion"])
    first = {key: begin[key] for key in ("apiVersion", "kind", "spec")}
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{version()}",
            "annotations": {
                "alm-examples": json.dumps(examples(), indent=2),
                "operatorframework.io/initialization-resource": json.dumps(
                    first | {"metadata": {"name": begin["metadata"]["name"]}}, indent=2
                ),
                "capabilities": "Seamless Upgrades",
                "categories": "Streaming & Messaging",
                "containerImage": container["image"],
                "description": chart["description"],
            },
        },
        "spec": {
            "displayName": "Gantry",
            "description": _ABOUT,
            "version": version(),
            "maturity": "alpha",
            "minKubeVersion": kubernetes,
            "keywords": chart["keywords"],
            "provider": {"name": "Gantry"},
            "installModes": [{"type": mode, "supported": True} for mode in MODES],
            "customresourcedefinitions": {"owned": [_owned(crd) for crd in manifests().values()]},
            "relatedImages": [{"name": PACKAGE, "image": container["image"]}],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "permissions": [_permissions(release)],
                    "deployments": [
                        {
                            "name": deployment["metadata"]["name"],
                            "label": deployment["metadata"]["labels"],
                            "spec": deployment["spec"],
                        }
                    ],
                },
            },
        },
    }


def examples() -> list[Manifest]:
    """The example of each kind, in the order of the definitions."""
    kinds = [crd["spec"]["names"]["singular"] for crd in manifests().values()]
    texts = ((ROOT / "examples" / f"{kind}.yaml").read_text("utf-8") for kind in kinds)
    return [found for text in texts for found in objects(text)]


def _of(release: list[Manifest], kind: str) -> list[Manifest]:
    return [deepcopy(found) for found in release if found["kind"] == kind]


def _permissions(release: list[Manifest]) -> Manifest:
    """The rules of all Roles; they are given in every namespace that is served.

    A rule about the release's own namespace keeps its kind and loses the name, which nobody knows
    before it is installed: in a Role it is about that Role's namespace in any case.
    """
    (account,) = _of(release, "ServiceAccount")
    rules = [rule for role in _of(release, "Role") for rule in role["rules"]]
    for rule in rules:
        if rule.get("resourceNames") == [MARK]:
            del rule["resourceNames"]
    return {"serviceAccountName": account["metadata"]["name"], "rules": rules}


def _owned(crd: Manifest) -> Manifest:
    spec = crd["spec"]
    (served,) = spec["versions"]
    schema = served["schema"]["openAPIV3Schema"]
    kind = spec["names"]["kind"]
    return {
        "name": crd["metadata"]["name"],
        "version": served["name"],
        "kind": kind,
        "displayName": _title(kind),
        "description": schema["description"],
        "resources": [
            {"kind": found.kind, "name": "", "version": found.version} for found in RESOURCES[kind]
        ],
        "specDescriptors": list(_descriptors(schema["properties"]["spec"])),
        "statusDescriptors": list(_descriptors(schema["properties"]["status"])),
    }


def _descriptors(schema: Manifest) -> Iterator[Manifest]:
    """A field of the first level each; those inside are in the definition."""
    for name, field in schema["properties"].items():
        told = {"path": name, "displayName": _title(name), "description": field["description"]}
        shown = _FIELDS.get(name) or _TYPES.get(field["type"])
        yield told | ({"x-descriptors": [shown]} if shown else {})


def _title(name: str) -> str:
    """`memberTls` as `Member TLS`."""
    words = re.findall(r"[A-Z]?[a-z0-9]+", name)
    text = " ".join(_WORDS.get(word.lower(), word.lower()) for word in words)
    return text[0].upper() + text[1:]


def _without_helm(found: Any) -> Any:
    """An object without the labels that say that Helm keeps it."""
    if isinstance(found, dict):
        return {key: _without_helm(part) for key, part in found.items() if key not in _HELMS}
    return [_without_helm(part) for part in found] if isinstance(found, list) else found


def _annotations() -> dict[str, str]:
    of = "operators.operatorframework.io"
    return {
        f"{of}.bundle.mediatype.v1": "registry+v1",
        f"{of}.bundle.manifests.v1": "manifests/",
        f"{of}.bundle.metadata.v1": "metadata/",
        f"{of}.bundle.package.v1": PACKAGE,
        f"{of}.bundle.channels.v1": CHANNEL,
        f"{of}.bundle.channel.default.v1": CHANNEL,
        f"{of}.test.mediatype.v1": "scorecard+v1",
        f"{of}.test.config.v1": "tests/scorecard/",
    }


def _scorecard() -> Manifest:
    tests = [
        {
            "image": SCORECARD_IMAGE,
            "entrypoint": ["scorecard-test", name],
            "labels": {"suite": suite, "test": f"{name}-test"},
        }
        for suite, names in SCORECARD.items()
        for name in names
    ]
    return {
        "apiVersion": "scorecard.operatorframework.io/v1alpha3",
        "kind": "Configuration",
        "metadata": {"name": "config"},
        "stages": [{"parallel": True, "tests": tests}],
    }


def _dockerfile() -> str:
    """Of the bundle's image: ``docker build -f build/bundle/bundle.Dockerfile build/bundle``."""
    labels = "".join(f"LABEL {key}={value}\n" for key, value in _annotations().items())
    copies = "".join(f"COPY {name} /{name}\n" for name in ("manifests/", "metadata/"))
    return f"FROM scratch\n\n{labels}\n{copies}COPY tests/scorecard/ /tests/scorecard/\n"


if __name__ == "__main__":
    sys.exit(make(FOLDER, package))
