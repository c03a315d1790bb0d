"""What an installation may do, and how its pods are fenced in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gantry_operator import names
from harness import client, operators
from harness.installation import NAMESPACE
from harness.shell import CommandError, run

if TYPE_CHECKING:
    from harness.kube import Kube

ROOT = Path(__file__).resolve().parents[1]

GROUP = "orders"
OURS = f"{names.LABEL_NAME}={names.APP_NAME},{names.LABEL_COMPONENT}"
DATA_PODS = f"{OURS} in ({names.CONTROLLER},{names.BROKER})"
ALL_PODS = f"{OURS} in (operator,{names.CONTROLLER},{names.BROKER})"
HELM_TEST_S = 120.0


def test_chart_tests_pass(kube: Kube) -> None:
    flags = (f"--kubeconfig={kube.kubeconfig}", f"--namespace={kube.namespace}")
    said = run("helm", "test", "gantry", *flags, timeout_s=HELM_TEST_S)
    assert "Phase:          Succeeded" in said


# --- rights ----------------------------------------------------------------------------------


FORBIDDEN = [
    ("list", "secrets"),
    ("watch", "secrets"),
    ("patch", "secrets"),
    ("update", "secrets"),
    ("delete", "secrets"),
    ("create", "pods"),
    ("create", "pods/exec"),
    ("get", "pods/log"),
    ("create", "pods/portforward"),
    ("create", "pods/ephemeralcontainers"),
    ("create", "serviceaccounts/token"),
    ("impersonate", "serviceaccounts"),
    ("delete", "persistentvolumeclaims"),
    ("delete", "deployments.apps"),
    ("create", "daemonsets.apps"),
    ("create", "jobs.batch"),
    ("create", "brokergroups.mq.gantry.dev"),
    ("delete", "brokergroups.mq.gantry.dev"),
    ("create", "controllergroups.mq.gantry.dev"),
    ("delete", "controllergroups.mq.gantry.dev"),
    ("create", "frontgroups.mq.gantry.dev"),
    ("delete", "frontgroups.mq.gantry.dev"),
    ("create", "consumergroups.mq.gantry.dev"),
    ("delete", "consumergroups.mq.gantry.dev"),
    ("create", "messageusers.mq.gantry.dev"),
    ("delete", "messageusers.mq.gantry.dev"),
    ("create", "topics.mq.gantry.dev"),
    ("delete", "topics.mq.gantry.dev"),
    ("list", "nodes"),
    ("list", "namespaces"),
    ("list", "customresourcedefinitions.apiextensions.k8s.io"),
    ("patch", "customresourcedefinitions.apiextensions.k8s.io"),
    ("create", "rolebindings.rbac.authorization.k8s.io"),
    ("escalate", "clusterroles.rbac.authorization.k8s.io"),
    ("bind", "clusterroles.rbac.authorization.k8s.io"),
    ("list", "leases.coordination.k8s.io"),
    ("delete", "leases.coordination.k8s.io"),
]


@pytest.mark.parametrize(("verb", "what"), FORBIDDEN, ids=lambda word: word)
def test_operator_has_no_right_to(kube: Kube, verb: str, what: str) -> None:
    assert not operator_may(kube, verb, what)


def test_operator_may_reach_one_lease_only(kube: Kube) -> None:
    leases = "leases.coordination.k8s.io"
    assert operator_may(kube, "update", leases, operators.LEASE)
    assert not operator_may(kube, "update", leases, "other")
    assert not operator_may(kube.within("kube-system"), "update", leases, operators.LEASE)


def operator_may(kube: Kube, verb: str, what: str, name: str = "") -> bool:
    """What the API server says about the operator's service account in a namespace."""
    kind, _, subresource = what.partition("/")
    resource, _, group = kind.partition(".")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{operators.DEPLOYMENT}",
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": {
                "namespace": kube.namespace,
                "verb": verb,
                "group": group,
                "resource": resource,
                "subresource": subresource,
                "name": name,
            },
        },
    }
    answer = kube.ctl("create", "-f", "-", "-o", "json", stdin=json.dumps(review))
    return bool(json.loads(answer)["status"]["allowed"])


# What the operator may do is shown by what it did: groups that are Available, and no refusal by
# RBAC ("… is forbidden: User …") among its words. Content in a namespace that is being deleted is
# refused in other words, and rightly.
def test_operator_was_never_refused_a_right_that_it_needs(kube: Kube) -> None:
    kube.wait_for("brokergroup", GROUP, "Available", operators.PATIENCE_S)
    for pod in operators.pods(kube):
        log = kube.within(NAMESPACE).ctl("logs", pod["metadata"]["name"])
        assert "is forbidden: User" not in log


# --- what is served --------------------------------------------------------------------------


def test_an_upgrade_leaves_no_namespace_with_resources_to_nobody(kube: Kube, scratch: Kube) -> None:
    """Rehearsed on the API server: the release itself serves all namespaces, and goes on so."""
    topic = {"apiVersion": f"{names.GROUP}/{names.VERSION}", "kind": "Topic", "spec": {}}
    scratch.apply(topic | {"metadata": {"name": "unserved"}})
    one = "operator.allNamespaces=false"
    refusal = refusal_of_upgrade(kube, one)
    assert "would leave them to nobody" in refusal
    assert scratch.namespace in refusal
    assert refusal_of_upgrade(kube, one, "operator.replicas=0") == refusal  # it runs until then
    named = f"operator.namespaces={{{kube.namespace},{scratch.namespace}}}"
    beyond = refusal_of_upgrade(kube, one, named)  # of what other tests have left, if anything
    assert scratch.namespace not in beyond
    assert not beyond or "would leave them to nobody" in beyond


def refusal_of_upgrade(kube: Kube, *values: str) -> str:
    """Helm's words if it would not upgrade the release with these values, else nothing."""
    flags = (f"--kubeconfig={kube.kubeconfig}", f"--namespace={kube.namespace}")
    change = (f"--set={value}" for value in values)
    rehearsal = ("helm", "upgrade", "gantry", str(ROOT / "charts" / "gantry"), "--dry-run=server")
    try:
        run(*rehearsal, "--reuse-values", *flags, *change)
    except CommandError as error:
        return str(error).partition("Error: ")[2]
    return ""


# --- pods ------------------------------------------------------------------------------------


def test_pods_satisfy_the_restricted_standard(kube: Kube) -> None:
    """The API server compares the pods that run with a standard that is about to be enforced."""
    kube.ctl(
        *("label", "namespace", kube.namespace, "--overwrite", "--dry-run=server"),
        *("--warnings-as-errors", "pod-security.kubernetes.io/enforce=restricted"),
    )


def test_root_file_system_is_read_only_and_user_is_not_root(kube: Kube) -> None:
    for place in containers(kube, ALL_PODS):
        assert kube.ctl("exec", *place, "--", "id", "-u").strip() == "10001"
        with pytest.raises(CommandError, match="Read-only file system"):
            kube.ctl("exec", *place, "--", "touch", "/opt/gantry/file")


def test_brokers_and_controllers_have_no_token(kube: Kube) -> None:
    places = containers(kube, DATA_PODS)
    assert len(places) >= 9
    for place in places:
        with pytest.raises(CommandError, match="No such file or directory"):
            kube.ctl("exec", *place, "--", "ls", "/var/run/secrets/kubernetes.io")


@pytest.mark.parametrize(
    ("component", "instance"), [(names.CONTROLLER, client.CONTROLLERS), (names.BROKER, GROUP)]
)
def test_replicas_are_on_every_node_that_takes_pods(
    kube: Kube, workers: list[str], component: str, instance: str
) -> None:
    pods = kube.list("pods", names.selector_text(component, instance))
    assert sorted({pod["spec"]["nodeName"] for pod in pods}) == workers


def containers(kube: Kube, selector: str) -> list[tuple[str, str, str]]:
    """Each container of pods, as kubectl takes it."""
    return [
        (pod["metadata"]["name"], "-c", container["name"])
        for pod in kube.list("pods", selector)
        if "deletionTimestamp" not in pod["metadata"]
        for container in pod["spec"]["containers"]
    ]


# --- plain manifests -------------------------------------------------------------------------


@pytest.mark.usefixtures("kube")
def test_api_server_takes_the_plain_manifests(scratch: Kube, image: str) -> None:
    """In a namespace that exists, since a dry run creates none for the objects in it."""
    wishes = {"NAMESPACE": scratch.namespace, "IMAGE": image}
    run("env", *(f"{key}={value}" for key, value in wishes.items()), str(ROOT / ".ci/manifests"))
    written = str(ROOT / "build" / "gantry.yaml")
    said = scratch.ctl(
        *("apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "-f", written)
    )
    for thing in ("namespace/", "brokergroups.mq", "deployment.apps/", "controllergroup.mq"):
        assert thing in said
