"""`spec.pipeline`: the CronJob of the audit, and that it goes with the field."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_operator import names
from gantry_operator.builders import broker_objects
from gantry_operator.builders.pipeline import pipeline_image
from gantry_operator.models import BrokerGroup, InvalidSpecError
from gantry_operator.plan.actions import ApplyObject, DeleteObject
from unit.operator.world import broker_world, brokers, changed, controllers, of_type, planned

BUCKET = {"url": "s3://bucket/prefix"}
NIGHTLY = {"audit": {"schedule": "17 3 * * *"}}
JOB = ("CronJob", "orders-audit")


def audited(tier: dict[str, Any] = BUCKET, **audit: Any) -> BrokerGroup:
    return brokers(tier=tier, pipeline={"audit": NIGHTLY["audit"] | audit})


def cron_job(group: BrokerGroup, image: str = "gantry:1") -> dict[str, Any]:
    (found,) = [
        manifest
        for manifest in broker_objects(group, controllers(), image=image, replicas=3)
        if manifest["kind"] == "CronJob"
    ]
    return found


def pod_of(group: BrokerGroup, image: str = "gantry:1") -> dict[str, Any]:
    found: dict[str, Any] = cron_job(group, image)["spec"]["jobTemplate"]["spec"]["template"]
    return found


def container(group: BrokerGroup, image: str = "gantry:1") -> dict[str, Any]:
    (found,) = pod_of(group, image)["spec"]["containers"]
    return dict(found)


def test_one_audit_at_a_time_that_ends_and_leaves_little_behind() -> None:
    spec = cron_job(audited())["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("17 3 * * *", "Etc/UTC")
    assert spec["concurrencyPolicy"] == "Forbid"
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (1, 3)
    job = spec["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] > 0
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"  # what was found is found again: no second try
    assert rule["onExitCodes"] == {"containerName": "audit", "operator": "In", "values": [1, 2]}
    assert pod_of(audited())["spec"]["restartPolicy"] == "Never"  # the policy needs it


def test_the_scale_down_step_still_finds_the_statefulset_last() -> None:
    found = broker_objects(audited(), controllers(), image="gantry:1", replicas=3)
    assert found[-1]["kind"] == "StatefulSet"


def test_the_audit_is_of_this_group_alone() -> None:
    group = audited({**BUCKET, "endpoint": "http://s3:9000", "region": "eu-central-1"})
    found = container(group)
    command = found["command"]
    assert command[:3] == ["gantry", "pipeline", "audit"]
    assert command[command.index("--cluster") + 1] == "gantry"
    assert command[command.index("--shard") + 1] == group.metadata.uid
    assert {one["name"]: one["value"] for one in found["env"]} == {
        "GANTRY_TIER": "s3://bucket/prefix",
        "AWS_ENDPOINT_URL": "http://s3:9000",
        "AWS_REGION": "eu-central-1",
    }


def test_keys_are_mounted_as_for_brokers_and_never_copied() -> None:
    group = audited({**BUCKET, "credentialsSecret": {"name": "bucket-keys"}})
    found, volumes = container(group), pod_of(group)["spec"]["volumes"]
    assert "--anonymous" not in found["command"]
    (folder,) = [
        one["value"] for one in found["env"] if one["name"] == "GANTRY_TIER_CREDENTIALS_DIR"
    ]
    (mount,) = [one for one in found["volumeMounts"] if one["mountPath"] == folder]
    (volume,) = [one for one in volumes if one["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == "bucket-keys"
    assert mount["readOnly"]


def test_without_keys_nothing_is_signed() -> None:
    assert "--anonymous" in container(audited())["command"]


def test_the_pod_satisfies_the_restricted_standard_and_can_ask_nobody() -> None:
    spec, found = pod_of(audited())["spec"], container(audited())
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"name": "scratch", "mountPath": "/tmp"} in found["volumeMounts"]


def test_no_service_and_no_watch_of_pods_selects_it() -> None:
    labels = pod_of(audited())["metadata"]["labels"]
    selector = names.selector(names.BROKER, "orders")
    assert not selector.items() <= labels.items()
    assert names.LABEL_MANAGED_BY not in labels


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("gantry:1.0", "gantry-pipeline:1.0"),
        ("registry:5000/mq/gantry:1.0", "registry:5000/mq/gantry-pipeline:1.0"),
        ("registry:5000/gantry", "registry:5000/gantry-pipeline"),
        ("gantry:1.0@sha256:00ff", "gantry-pipeline:1.0"),
    ],
)
def test_the_image_is_the_neighbour_of_the_operators(image: str, expected: str) -> None:
    assert pipeline_image(image) == expected
    assert container(audited(), image)["image"] == expected
    assert container(audited(image="mine:2"), image)["image"] == "mine:2"


def test_resources_are_the_wished_or_enough() -> None:
    assert container(audited())["resources"]["limits"] == {"memory": "3Gi"}
    wish = {"limits": {"memory": "8Gi"}}
    assert container(audited(resources=wish))["resources"] == wish


@pytest.mark.parametrize("tier", [None, {"url": "file:///srv/tier"}], ids=["none", "directory"])
def test_an_audit_without_a_bucket_is_refused(tier: dict[str, Any] | None) -> None:
    spec: dict[str, Any] = {"pipeline": NIGHTLY} | ({"tier": tier} if tier else {})
    with pytest.raises(InvalidSpecError, match=r"pipeline\.audit reads the bucket"):
        brokers(**spec)


@pytest.mark.parametrize("spec", [{}, {"pipeline": {}}, {"tier": BUCKET}], ids=str)
def test_nothing_is_made_that_was_not_asked_for(spec: dict[str, Any]) -> None:
    found = broker_objects(brokers(**spec), controllers(), image="gantry:1", replicas=3)
    assert "CronJob" not in {manifest["kind"] for manifest in found}


# the plan


def test_the_plan_makes_it_once() -> None:
    seen = broker_world(group=audited())
    seen.objects.pop(JOB, None)
    (action,) = of_type(planned(seen), ApplyObject)
    assert (action.manifest["kind"], action.manifest["metadata"]["name"]) == JOB
    there = changed(seen, objects=seen.objects | {JOB: action.manifest})
    assert of_type(planned(there), ApplyObject) == []


def live(**meta: Any) -> dict[str, Any]:
    """The CronJob as the API server has it."""
    manifest = cron_job(audited())
    return manifest | {"metadata": manifest["metadata"] | {"uid": "job-uid"} | meta}


@pytest.mark.parametrize(
    ("group", "found", "deleted"),
    [
        pytest.param(brokers(), live(), ["orders-audit"], id="the-field-went"),
        pytest.param(brokers(tier=BUCKET, pipeline={}), live(), ["orders-audit"], id="audit-went"),
        pytest.param(audited(), live(), [], id="wished"),
        pytest.param(brokers(), live(deletionTimestamp="now"), [], id="it-goes-already"),
        pytest.param(brokers(), live(ownerReferences=[]), [], id="of-nobody"),
        pytest.param(brokers(), live(ownerReferences=[{"uid": "x"}]), [], id="of-somebody-else"),
        pytest.param(brokers(paused=True), live(), [], id="paused"),
    ],
)
def test_it_goes_with_the_field(
    group: BrokerGroup, found: dict[str, Any], deleted: list[str]
) -> None:
    seen = broker_world(group=group)
    seen = changed(seen, objects=seen.objects | {JOB: found})
    actions = of_type(planned(seen), DeleteObject)
    assert [action.name for action in actions] == deleted
    assert all((action.kind, action.uid) == ("CronJob", "job-uid") for action in actions)


def test_what_holds_data_or_serves_clients_never_goes_that_way() -> None:
    seen = broker_world()
    extra = {
        (kind, "surplus"): {"metadata": {"uid": "u", "ownerReferences": [{"uid": seen.meta.uid}]}}
        for kind in ("StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget")
    }
    seen = changed(seen, objects=seen.objects | extra)
    assert of_type(planned(seen), DeleteObject) == []
