"""Resource types: what the server serves, built in or registered by a CRD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gantry_local.apiserver.schema import builtin

if TYPE_CHECKING:
    from gantry_local.apiserver.schema import Schema

ALL_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


class ScalePaths(msgspec.Struct, frozen=True):
    """The places of ``/scale``'s numbers, as dotted field names."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()


class ResourceType:
    """One served resource. Identity is (group, plural); kinds of one group are unique too."""

    __slots__ = (
        "categories",
        "create_on_update",
        "custom",
        "generation",
        "group",
        "kind",
        "list_kind",
        "namespaced",
        "plural",
        "scale",
        "schema",
        "short_names",
        "singular",
        "status",
        "unconditional_update",
        "version",
    )

    def __init__(
        self,
        group: str,
        version: str,
        kind: str,
        plural: str,
        schema: Schema,
        *,
        namespaced: bool = True,
        status: bool = False,
        generation: bool = False,
        scale: ScalePaths | None = None,
        short_names: tuple[str, ...] = (),
        categories: tuple[str, ...] = (),
        singular: str = "",
        list_kind: str = "",
        custom: bool = False,
        unconditional_update: bool = True,
        create_on_update: bool = False,
    ) -> None:
        self.group = group
        self.version = version
        self.kind = kind
        self.plural = plural
        self.schema = schema
        self.namespaced = namespaced
        self.status = status
        self.generation = generation
        self.scale = scale
        self.short_names = short_names
        self.categories = categories
        self.singular = singular or kind.lower()
        self.list_kind = list_kind or f"{kind}List"
        self.custom = custom
        self.unconditional_update = unconditional_update
        self.create_on_update = create_on_update

    @property
    def api_version(self) -> str:
        """``group/version``, or ``v1`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``plural.group`` as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def key(self) -> tuple[str, str]:
        """(group, plural)."""
        return (self.group, self.plural)

    @property
    def subresources(self) -> tuple[str, ...]:
        """Names of the served subresources."""
        served = ["status"] if self.status else []
        if self.scale is not None:
            served.append("scale")
        if self.key == ("", "pods"):
            served.append("log")
        return tuple(served)


_WORKLOAD_SCALE = ScalePaths(
    ("spec", "replicas"), ("status", "replicas"), ("status", "labelSelector")
)


def builtin_types() -> list[ResourceType]:
    """Every kind that exists without a CRD."""
    core = [
        ResourceType(
            "",
            "v1",
            "Namespace",
            "namespaces",
            builtin("V1Namespace"),
            namespaced=False,
            status=True,
            short_names=("ns",),
        ),
        ResourceType(
            "",
            "v1",
            "Node",
            "nodes",
            builtin("V1Node"),
            namespaced=False,
            status=True,
            short_names=("no",),
        ),
        ResourceType(
            "",
            "v1",
            "Pod",
            "pods",
            builtin("V1Pod"),
            status=True,
            generation=True,
            short_names=("po",),
            categories=("all",),
        ),
        ResourceType(
            "",
            "v1",
            "Service",
            "services",
            builtin("V1Service"),
            status=True,
            short_names=("svc",),
            categories=("all",),
            create_on_update=True,
        ),
        ResourceType(
            "",
            "v1",
            "Endpoints",
            "endpoints",
            builtin("V1Endpoints"),
            short_names=("ep",),
            create_on_update=True,
        ),
        ResourceType(
            "", "v1", "ConfigMap", "configmaps", builtin("V1ConfigMap"), short_names=("cm",)
        ),
        ResourceType("", "v1", "Secret", "secrets", builtin("V1Secret")),
        ResourceType(
            "",
            "v1",
            "Event",
            "events",
            builtin("CoreV1Event"),
            short_names=("ev",),
            create_on_update=True,
        ),
        ResourceType(
            "",
            "v1",
            "ServiceAccount",
            "serviceaccounts",
            builtin("V1ServiceAccount"),
            short_names=("sa",),
        ),
        ResourceType(
            "",
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            builtin("V1PersistentVolumeClaim"),
            status=True,
            short_names=("pvc",),
        ),
    ]
    return core + _grouped_types()


def _grouped_types() -> list[ResourceType]:
    return [
        ResourceType(
            "apps",
            "v1",
            "StatefulSet",
            "statefulsets",
            builtin("V1StatefulSet"),
            status=True,
            generation=True,
            scale=_WORKLOAD_SCALE,
            short_names=("sts",),
            categories=("all",),
        ),
        ResourceType(
            "apps",
            "v1",
            "Deployment",
            "deployments",
            builtin("V1Deployment"),
            status=True,
            generation=True,
            scale=_WORKLOAD_SCALE,
            short_names=("deploy",),
            categories=("all",),
        ),
        ResourceType(
            "apps",
            "v1",
            "ControllerRevision",
            "controllerrevisions",
            builtin("V1ControllerRevision"),
        ),
        ResourceType(
            "policy",
            "v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            builtin("V1PodDisruptionBudget"),
            status=True,
            generation=True,
            short_names=("pdb",),
            unconditional_update=False,
        ),
        # Kept and never run: a job needs an image, and pods here are processes of this Python.
        ResourceType(
            "batch",
            "v1",
            "CronJob",
            "cronjobs",
            builtin("V1CronJob"),
            status=True,
            generation=True,
            short_names=("cj",),
            categories=("all",),
        ),
        # Kept and followed by nobody: there are no metrics of pods here to scale by.
        ResourceType(
            "autoscaling",
            "v2",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            builtin("V2HorizontalPodAutoscaler"),
            status=True,
            short_names=("hpa",),
            categories=("all",),
        ),
        # Kept and enforced by nobody: all pods share the loopback network.
        ResourceType(
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            "networkpolicies",
            builtin("V1NetworkPolicy"),
            generation=True,
            short_names=("netpol",),
        ),
        ResourceType(
            "coordination.k8s.io",
            "v1",
            "Lease",
            "leases",
            builtin("V1Lease"),
            unconditional_update=False,
            create_on_update=True,
        ),
        ResourceType(
            "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", builtin("V1EndpointSlice")
        ),
        ResourceType(
            "events.k8s.io",
            "v1",
            "Event",
            "events",
            builtin("EventsV1Event"),
            short_names=("ev",),
            create_on_update=True,
        ),
        ResourceType(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            builtin("V1CustomResourceDefinition"),
            namespaced=False,
            status=True,
            generation=True,
            short_names=("crd", "crds"),
            unconditional_update=False,
        ),
    ]
