"""The kinds of objects that the operator touches, and where they are served."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote

from gantry_operator import names


class Kind(NamedTuple):
    """A served resource type."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """As in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """Path of the API group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Path of a collection (in all namespaces if none is given) or of one object."""
        parts = [self.root]
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/".join(parts)


BROKER_GROUP: Final = Kind(names.GROUP, names.VERSION, "brokergroups", "BrokerGroup")
CONTROLLER_GROUP: Final = Kind(names.GROUP, names.VERSION, "controllergroups", "ControllerGroup")
FRONT_GROUP: Final = Kind(names.GROUP, names.VERSION, "frontgroups", "FrontGroup")
TOPIC: Final = Kind(names.GROUP, names.VERSION, "topics", "Topic")
MESSAGE_USER: Final = Kind(names.GROUP, names.VERSION, "messageusers", "MessageUser")
CONSUMER_GROUP: Final = Kind(names.GROUP, names.VERSION, "consumergroups", "ConsumerGroup")
STATEFULSET: Final = Kind("apps", "v1", "statefulsets", "StatefulSet")
DEPLOYMENT: Final = Kind("apps", "v1", "deployments", "Deployment")
AUTOSCALER: Final = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
POD: Final = Kind("", "v1", "pods", "Pod")
SERVICE: Final = Kind("", "v1", "services", "Service")
CONFIG_MAP: Final = Kind("", "v1", "configmaps", "ConfigMap")
BUDGET: Final = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
CRON_JOB: Final = Kind("batch", "v1", "cronjobs", "CronJob")
NETWORK_POLICY: Final = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
SECRET: Final = Kind("", "v1", "secrets", "Secret")
CLAIM: Final = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENT: Final = Kind("", "v1", "events", "Event")
NAMESPACE: Final = Kind("", "v1", "namespaces", "Namespace")
"""Of no namespace itself; the operator reads the one it runs in, at its end."""
LEASE: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease")
CRD: Final = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"
)
NODE: Final = Kind("", "v1", "nodes", "Node")
QUOTA: Final = Kind("", "v1", "resourcequotas", "ResourceQuota")
CERTIFICATE: Final = Kind("cert-manager.io", "v1", "certificates", "Certificate")
_WEBHOOKS = "admissionregistration.k8s.io"
VALIDATING: Final = Kind(
    _WEBHOOKS, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
)
MUTATING: Final = Kind(
    _WEBHOOKS, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"
)
"""From the CRDs to here: read by people, with their own rights, and never by the operator."""

ENTITIES: Final = (TOPIC, MESSAGE_USER, CONSUMER_GROUP)
"""Each stands for one thing in the metadata of a cluster."""
CUSTOM: Final = (CONTROLLER_GROUP, BROKER_GROUP, FRONT_GROUP, *ENTITIES)
OWNED: Final = (
    STATEFULSET,
    DEPLOYMENT,
    SERVICE,
    CONFIG_MAP,
    BUDGET,
    AUTOSCALER,
    CRON_JOB,
    NETWORK_POLICY,
)
"""Applied by the operator. Secrets are not among them: they are read by name and never watched."""
TEMPLATED: Final = (STATEFULSET, DEPLOYMENT, CRON_JOB)
"""With a pod template, into which others may write."""
WATCHED: Final = (*CUSTOM, *OWNED, POD)
BY_NAME: Final = {kind.kind: kind for kind in (*WATCHED, SECRET, CLAIM, EVENT, LEASE)}
