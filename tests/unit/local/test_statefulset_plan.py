"""The StatefulSet controller's decisions by tables."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_local.controllers import statefulset_plan as plans


def sts(replicas: int = 3, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "n", "uid": "u", "generation": 4},
        "spec": {
            "replicas": replicas,
            "serviceName": "svc",
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": "Retain",
                "whenScaled": "Retain",
            },
            "selector": {"matchLabels": {"app": "s"}},
            "template": {
                "metadata": {"labels": {"app": "s"}, "annotations": {"note": "x"}},
                "spec": {
                    "containers": [{"name": "c", "image": "1"}],
                    "volumes": [{"name": "config", "configMap": {"name": "s"}}],
                },
            },
            "volumeClaimTemplates": [
                {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
            ],
            **spec,
        },
    }


def pod(
    owner: dict[str, Any],
    ordinal: int,
    *,
    ready: bool = True,
    revision: str | None = None,
    going: bool = False,
    phase: str = "Running",
) -> dict[str, Any]:
    made = plans.new_pod(
        owner, ordinal, owner["spec"]["template"], revision or plans.revision_name(owner)
    )
    made["metadata"]["uid"] = f"pod-{ordinal}"
    if going:
        made["metadata"]["deletionTimestamp"] = "now"
    conditions = [{"type": "Ready", "status": str(ready)}]
    made["status"] = {"phase": phase, "conditions": conditions}
    return made


def plan(owner: dict[str, Any], *pods: dict[str, Any], claims: Any = None) -> plans.Plan:
    templates = {plans.revision_name(owner): owner["spec"]["template"], "old": {"spec": {"old": 1}}}
    return plans.plan(owner, list(pods), claims or {}, templates)


def names(objects: list[dict[str, Any]]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]


def test_parallel_creates_all_pods_and_claims_at_once() -> None:
    found = plan(sts())
    assert names(found.create_pods) == ["s-0", "s-1", "s-2"]
    assert names(found.create_claims) == ["data-s-0", "data-s-1", "data-s-2"]


def test_a_pod_has_identity_labels_claims_and_owner() -> None:
    owner = sts()
    made = plan(owner).create_pods[1]
    assert made["metadata"]["labels"] == {
        "app": "s",
        "controller-revision-hash": plans.revision_name(owner),
        "statefulset.kubernetes.io/pod-name": "s-1",
        "apps.kubernetes.io/pod-index": "1",
    }
    assert made["metadata"]["annotations"] == {"note": "x"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("s-1", "svc")
    assert made["spec"]["volumes"] == [
        {"name": "config", "configMap": {"name": "s"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-s-1"}},
    ]


def test_existing_claims_are_used_again() -> None:
    claim = {"metadata": {"name": "data-s-1"}}
    assert names(plan(sts(), claims={"data-s-1": claim}).create_claims) == ["data-s-0", "data-s-2"]


@pytest.mark.parametrize(
    ("pods", "created"),
    [([], ["s-0"]), ([(0, True)], ["s-1"]), ([(0, False)], [])],
    ids=["none", "first ready", "first not ready"],
)
def test_ordered_ready_creates_one_after_the_other(
    pods: list[tuple[int, bool]], created: list[str]
) -> None:
    owner = sts(podManagementPolicy="OrderedReady")
    existing = [pod(owner, ordinal, ready=ready) for ordinal, ready in pods]
    assert names(plan(owner, *existing).create_pods) == created


def test_finished_pods_are_replaced_after_they_are_gone() -> None:
    owner = sts(1)
    found = plan(owner, pod(owner, 0, phase="Failed"))
    assert names(found.delete_pods) == ["s-0"]
    assert found.create_pods == []
    assert plan(owner, pod(owner, 0, phase="Failed", going=True)).delete_pods == []


def test_on_delete_never_deletes_outdated_pods() -> None:
    owner = sts(2)
    found = plan(owner, pod(owner, 0, revision="old"), pod(owner, 1, revision="old"))
    assert found.delete_pods == []
    assert (found.status["updatedReplicas"], found.status["replicas"]) == (0, 2)


def test_on_delete_recreates_with_the_new_template() -> None:
    owner = sts(2)
    (made,) = plan(owner, pod(owner, 0, revision="old")).create_pods
    assert made["metadata"]["labels"]["controller-revision-hash"] == plans.revision_name(owner)


ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}


def test_rolling_update_takes_the_highest_outdated_pod_when_those_above_are_ready() -> None:
    owner = sts(3, updateStrategy=ROLLING)
    old = [pod(owner, n, revision="old") for n in range(3)]
    assert names(plan(owner, *old).delete_pods) == ["s-2"]
    waiting = [*old[:2], pod(owner, 2, ready=False)]
    assert plan(owner, *waiting).delete_pods == []
    assert names(plan(owner, *old[:2], pod(owner, 2)).delete_pods) == ["s-1"]


def test_a_partition_holds_lower_ordinals_on_the_current_revision() -> None:
    owner = sts(3, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    owner["status"] = {"currentRevision": "old"}
    updated = pod(owner, 2)
    found = plan(owner, pod(owner, 0, revision="old"), updated)
    (made,) = found.create_pods
    assert made["metadata"]["labels"]["controller-revision-hash"] == "old"
    full = plan(owner, *(pod(owner, n, revision="old") for n in range(2)), updated)
    assert full.delete_pods == []


def test_a_finished_roll_makes_the_new_revision_current() -> None:
    owner = sts(2, updateStrategy=ROLLING)
    owner["status"] = {"currentRevision": "old"}
    done = plan(owner, pod(owner, 0), pod(owner, 1)).status
    assert done["currentRevision"] == plans.revision_name(owner)
    half = plan(owner, pod(owner, 0), pod(owner, 1, ready=False)).status
    assert half["currentRevision"] == "old"


def test_scaling_down_deletes_surplus_pods_and_keeps_claims() -> None:
    owner = sts(1)
    found = plan(owner, *(pod(owner, n) for n in range(3)))
    assert names(found.delete_pods) == ["s-2", "s-1"]
    ordered = sts(1, podManagementPolicy="OrderedReady")
    assert names(plan(ordered, *(pod(ordered, n) for n in range(3))).delete_pods) == ["s-2"]


def test_claims_follow_scaled_down_pods_when_asked() -> None:
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    owner = sts(1, persistentVolumeClaimRetentionPolicy=policy)
    claim = {"metadata": {"name": "data-s-1"}}
    found = plan(owner, pod(owner, 0), pod(owner, 1), claims={"data-s-1": claim})
    ((owned, references),) = found.own_claims
    assert owned is claim
    assert references[0]["uid"] == "pod-1"


def test_claims_belong_to_the_set_exactly_while_they_shall_go_with_it() -> None:
    owner = sts(1)
    free = {"data-s-0": {"metadata": {"name": "data-s-0"}}}
    assert plan(owner, pod(owner, 0), claims=free).own_claims == []
    owner["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = "Delete"
    ((_, references),) = plan(owner, pod(owner, 0), claims=free).own_claims
    assert references[0]["uid"] == "u"
    owned = {"data-s-0": {"metadata": {"name": "data-s-0", "ownerReferences": references}}}
    assert plan(owner, pod(owner, 0), claims=owned).own_claims == []
    owner["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = "Retain"
    assert plan(owner, pod(owner, 0), claims=owned).own_claims[0][1] == []


def test_a_set_on_its_way_out_makes_nothing() -> None:
    owner = sts()
    owner["metadata"]["deletionTimestamp"] = "now"
    found = plan(owner)
    assert (found.create_pods, found.create_claims) == ([], [])


def test_status_counts() -> None:
    owner = sts(3)
    status = plan(
        owner, pod(owner, 0), pod(owner, 1, ready=False), pod(owner, 2, revision="old")
    ).status
    assert status["observedGeneration"] == 4
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (3, 2, 2)
    assert status["updateRevision"] == plans.revision_name(owner)


def test_the_revision_follows_the_template_only() -> None:
    one, more, other = sts(1), sts(5), sts(1)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "2"
    assert plans.revision_name(one) == plans.revision_name(more) != plans.revision_name(other)
