"""The owner's template on top of the pods that Gantry makes: rights, containers, placement.

Two rules. A template that asks for nothing changes nothing, letter by letter, or an upgrade of the
operator would restart every pod. And nothing here takes away what Gantry's own containers rely on:
additions come after what is there, and the models refuse names that are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gantry_operator import names
from gantry_operator.models.rights import PodSecurity, SeccompProfile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gantry_operator.builders.meta import Manifest
    from gantry_operator.models.base import Model
    from gantry_operator.models.containers import ExtraContainer, MainContainer
    from gantry_operator.models.rights import ContainerSecurity
    from gantry_operator.models.template import Template, TemplateSpec

USER_ID = 10001
"""Of the image's user; a number, since `runAsNonRoot` cannot check a name."""


def security(asked: PodSecurity | None) -> Manifest:
    """The user of pods, who is never root."""
    wish = asked or PodSecurity()
    ids: Manifest = {}
    if not wish.any_user:
        numbers = {
            "runAsUser": wish.run_as_user,
            "runAsGroup": wish.run_as_group,
            "fsGroup": wish.fs_group,
        }
        ids = {key: USER_ID if number is None else number for key, number in numbers.items()}
    # Another user may have left files that only that user can write. Where the group stays the
    # same the root of the volume matches, and only Always makes the kubelet look below it.
    moved = wish.any_user or wish.run_as_user is not None
    policy = wish.fs_group_change_policy or ("Always" if moved else "OnRootMismatch")
    further: Manifest = {
        "supplementalGroups": list(wish.supplemental_groups),
        "seLinuxOptions": wish.se_linux_options.to_object() if wish.se_linux_options else {},
    }
    return {
        "runAsNonRoot": True,
        **ids,
        "fsGroupChangePolicy": policy,
        "seccompProfile": (wish.seccomp_profile or SeccompProfile()).to_object(),
        **{key: wanted for key, wanted in further.items() if wanted},
    }


def container_security(wish: ContainerSecurity | None) -> Manifest:
    """The rights of a container: none beyond those of any process."""
    made: Manifest = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return made if wish is None else made | wish.to_object()


def extended(pod: Manifest, wish: TemplateSpec) -> Manifest:
    """A pod with the additions of its owner; its first container is the one they are meant for."""
    main, *beside = pod["containers"]
    containers = [_extended(main, wish.container), *beside, *map(_extra, wish.sidecars)]
    made = pod | {"containers": containers, "volumes": [*pod["volumes"], *map(_lean, wish.volumes)]}
    if wish.termination_grace_period_seconds is not None:
        made["terminationGracePeriodSeconds"] = wish.termination_grace_period_seconds
    fields: Manifest = {
        "initContainers": list(map(_extra, wish.init_containers)),
        "schedulerName": wish.scheduler_name,
        "runtimeClassName": wish.runtime_class_name,
    }
    return made | {key: wanted for key, wanted in fields.items() if wanted}


def _extended(main: Manifest, wish: MainContainer | None) -> Manifest:
    if wish is None:
        return main
    made = dict(main)
    for field, added in (("env", wish.env), ("volumeMounts", wish.volume_mounts)):
        if added:
            made[field] = [*main.get(field, ()), *map(_lean, added)]
    for field, timing in (
        ("startupProbe", wish.startup_probe),
        ("livenessProbe", wish.liveness_probe),
    ):
        if timing is not None:
            made[field] = main[field] | timing.to_object()
    return made


def _extra(wish: ExtraContainer) -> Manifest:
    return _lean(wish) | {"securityContext": container_security(wish.security_context)}


def _lean(part: Model) -> Manifest:
    """As Kubernetes has it, without lists that nobody filled."""

    def without(node: Any) -> Any:
        if isinstance(node, list):
            return [without(item) for item in node]
        if not isinstance(node, dict):
            return node
        return {key: without(below) for key, below in node.items() if below != []}

    return cast("Manifest", without(part.to_object()))


def placement(template: Template, component: str, instance: str) -> Manifest:
    """The nodes on which the pods of an owner may run."""
    wish = template.spec
    affinity = wish.affinity.to_object() if wish.affinity else {}
    if "podAntiAffinity" not in affinity and wish.topology_spread_constraints is None:
        affinity["podAntiAffinity"] = default_anti_affinity(component, instance)
    fields: Manifest = {
        "nodeSelector": dict(wish.node_selector),
        "tolerations": _plain(wish.tolerations),
        "affinity": affinity,
        "topologySpreadConstraints": _plain(wish.topology_spread_constraints or ()),
        "priorityClassName": wish.priority_class_name,
        "serviceAccountName": wish.service_account_name,
        "imagePullSecrets": _plain(wish.image_pull_secrets),
    }
    return {key: wanted for key, wanted in fields.items() if wanted}


def _plain(parts: Iterable[Model]) -> list[Manifest]:
    return [part.to_object() for part in parts]


def default_anti_affinity(component: str, instance: str) -> Manifest:
    """Replicas on different nodes and zones where there are enough; never a reason not to start.

    Not topology spread constraints: when these are several, scoring passes over every node that
    lacks one of the keys, so on nodes without a zone label replicas were not spread at all. Terms
    of affinity count each on its own.
    """
    weights = {"kubernetes.io/hostname": 100, "topology.kubernetes.io/zone": 50}
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": weight,
                "podAffinityTerm": {
                    "topologyKey": key,
                    "labelSelector": {"matchLabels": names.selector(component, instance)},
                },
            }
            for key, weight in weights.items()
        ]
    }
