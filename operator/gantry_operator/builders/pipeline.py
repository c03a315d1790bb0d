"""The CronJob that audits a group's part of the tier.

Its pods have no label that a Service or a StatefulSet of the group selects, and no right to ask the
API server anything. The bucket's keys are mounted as for brokers, never copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.builders import template
from gantry_operator.builders.meta import Manifest, owned, sealed
from gantry_operator.builders.pods import value
from gantry_operator.builders.tier import place_of, tier_keys

if TYPE_CHECKING:
    from gantry_operator.models import BrokerGroup
    from gantry_operator.models.pipeline import Audit
    from gantry_operator.models.template import TemplateSpec
    from gantry_operator.models.tier import Tier

CONTAINER = "audit"
DEADLINE_S = 6 * 3600
"""A terabyte takes an hour on two cores; a job that hangs must not keep the next from running."""
LATE_S = 600
"""How late a run may begin: a control plane that was away does not make up for lost nights."""
RETRIES = 2
SUCCEEDED_KEPT, FAILED_KEPT = 1, 3
GIVE_UP = (1, 2)
"""Exit codes that say the same the next time: a finding, and a command that cannot be meant."""
SCRATCH = "8Gi"
DEFAULT_RESOURCES: Manifest = {
    "requests": {"cpu": "500m", "memory": "2Gi"},
    "limits": {"memory": "3Gi"},
}


def pipeline_objects(group: BrokerGroup, *, image: str) -> list[Manifest]:
    """The objects of `spec.pipeline`; `image` is the operator's own."""
    wish, tier = group.spec.pipeline, group.spec.tier
    if wish is None or wish.audit is None or tier is None:
        return []
    return [_audit(group, wish.audit, tier, wish.audit.image or pipeline_image(image))]


def pipeline_image(image: str) -> str:
    """The neighbour of the operator's image that has Spark: `-pipeline` behind its name."""
    tagged, _, _ = image.partition("@")
    folder, slash, last = tagged.rpartition("/")
    name, colon, tag = last.partition(":")
    return f"{folder}{slash}{name}-pipeline{colon}{tag}"


def _audit(group: BrokerGroup, audit: Audit, tier: Tier, image: str) -> Manifest:
    job = owned(group, names.AUDIT, "batch/v1", "CronJob", names.audit_job(group.metadata.name))
    # Without the label of managed objects: the operator watches those, and has no use for these.
    labels = names.selector(names.AUDIT, group.metadata.name)
    job["spec"] = {
        "schedule": audit.schedule,
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": LATE_S,
        "successfulJobsHistoryLimit": SUCCEEDED_KEPT,
        "failedJobsHistoryLimit": FAILED_KEPT,
        "jobTemplate": {
            "metadata": {"labels": labels},
            "spec": {
                "activeDeadlineSeconds": DEADLINE_S,
                "backoffLimit": RETRIES,
                "podFailurePolicy": {
                    "rules": [
                        {
                            "action": "FailJob",
                            "onExitCodes": {
                                "containerName": CONTAINER,
                                "operator": "In",
                                "values": list(GIVE_UP),
                            },
                        }
                    ]
                },
                "template": {
                    "metadata": {"labels": labels},
                    "spec": _pod(group, audit, tier, image),
                },
            },
        },
    }
    return sealed(job)


def _pod(group: BrokerGroup, audit: Audit, tier: Tier, image: str) -> Manifest:
    wish = group.spec.template.spec
    placement: Manifest = {
        "nodeSelector": dict(wish.node_selector),
        "tolerations": list(wish.tolerations),
        "imagePullSecrets": list(wish.image_pull_secrets),
    }
    pod: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _security(wish),
        "containers": [_container(group, audit, tier, image)],
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": SCRATCH}}],
    }
    keys = tier_keys(group.spec.tier)
    if keys is not None:
        mount = {"name": keys.volume, "mountPath": keys.path, "readOnly": True}
        pod["volumes"].append({"name": keys.volume, "secret": keys.source})
        pod["containers"][0]["volumeMounts"].append(mount)
    return pod | {key: wanted for key, wanted in placement.items() if wanted}


def _security(wish: TemplateSpec) -> Manifest:
    """As of the group's pods; there is no volume whose files could be another user's."""
    made = template.security(wish.security_context)
    return {key: part for key, part in made.items() if key != "fsGroupChangePolicy"}


def _container(group: BrokerGroup, audit: Audit, tier: Tier, image: str) -> Manifest:
    command = ["gantry", "pipeline", "audit", "--master", "local[2]"]
    if tier.credentials_secret is None:
        command.append("--anonymous")
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            *command,
            *("--cluster", group.spec.controller_ref.name),
            *("--shard", place_of(group)),
        ],
        "env": _env(tier),
        # What was found is also in the pod's status: kubectl describe shows it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": audit.resources.to_object() or DEFAULT_RESOURCES,
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],  # noqa: S108 - a volume
        "securityContext": template.container_security(None),
    }


def _env(tier: Tier) -> list[Manifest]:
    env = [value("GANTRY_TIER", tier.url)]
    if tier.endpoint:
        env.append(value("AWS_ENDPOINT_URL", tier.endpoint))
    if tier.region:
        env.append(value("AWS_REGION", tier.region))
    if tier.credentials_secret is not None:
        env.append(value("GANTRY_TIER_CREDENTIALS_DIR", names.TIER_KEYS_DIR))
    return env
