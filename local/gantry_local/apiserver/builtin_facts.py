"""Facts of Kubernetes' Go types that the published client models leave out.

The client package carries field names and types; list keys, atomic fields, defaults and enums come
from the Go markers (``+listType``, ``+listMapKey``, ``+structType``, ``+default``) and from
``pkg/apis/*/v1/defaults.go``. Only facts that some verb here depends on are listed.
"""

from __future__ import annotations

from typing import Any

ROOTS: tuple[str, ...] = (
    "V1Namespace",
    "V1Node",
    "V1Pod",
    "V1Service",
    "V1Endpoints",
    "V1ConfigMap",
    "V1Secret",
    "CoreV1Event",
    "EventsV1Event",
    "V1ServiceAccount",
    "V1PersistentVolumeClaim",
    "V1StatefulSet",
    "V1Deployment",
    "V1ControllerRevision",
    "V1PodDisruptionBudget",
    "V1Lease",
    "V1CronJob",
    "V2HorizontalPodAutoscaler",
    "V1NetworkPolicy",
    "V1EndpointSlice",
    "V1CustomResourceDefinition",
)

# Recursive or free-form in Go; checked by crds.py, not by a schema.
OPAQUE: frozenset[str] = frozenset({"V1JSONSchemaProps"})

# model.field -> keys of an associative list.
LIST_MAP_KEYS: dict[str, list[str]] = {
    "V1ObjectMeta.ownerReferences": ["uid"],
    "V1PodSpec.containers": ["name"],
    "V1PodSpec.initContainers": ["name"],
    "V1PodSpec.ephemeralContainers": ["name"],
    "V1PodSpec.volumes": ["name"],
    "V1PodSpec.imagePullSecrets": ["name"],
    "V1PodSpec.hostAliases": ["ip"],
    "V1PodSpec.topologySpreadConstraints": ["topologyKey", "whenUnsatisfiable"],
    "V1Container.env": ["name"],
    "V1Container.ports": ["containerPort", "protocol"],
    "V1Container.volumeMounts": ["mountPath"],
    "V1Container.volumeDevices": ["devicePath"],
    "V1ServiceSpec.ports": ["port", "protocol"],
    "V1PodStatus.conditions": ["type"],
    "V1PodStatus.podIPs": ["ip"],
    "V1NodeStatus.conditions": ["type"],
    "V1NodeStatus.addresses": ["type"],
    "V1StatefulSetStatus.conditions": ["type"],
    "V1DeploymentStatus.conditions": ["type"],
    "V1ServiceStatus.conditions": ["type"],
    "V1NamespaceStatus.conditions": ["type"],
    "V1PersistentVolumeClaimStatus.conditions": ["type"],
    "V1PodDisruptionBudgetStatus.conditions": ["type"],
    "V1CustomResourceDefinitionStatus.conditions": ["type"],
    "V1ServiceAccount.secrets": ["name"],
    "V1ResourceRequirements.claims": ["name"],
}
LIST_SETS: frozenset[str] = frozenset({"V1ObjectMeta.finalizers", "V1PodSpec.schedulingGates"})

# Structs and maps that are owned as a whole.
ATOMIC_MODELS: frozenset[str] = frozenset(
    {
        "V1ConfigMapKeySelector",
        "V1LabelSelector",
        "V1LocalObjectReference",
        "V1NodeSelector",
        "V1NodeSelectorTerm",
        "V1ObjectFieldSelector",
        "V1ObjectReference",
        "V1OwnerReference",
        "V1ResourceFieldSelector",
        "V1SecretKeySelector",
        "V1SecretReference",
        "V1TypedLocalObjectReference",
    }
)
ATOMIC_FIELDS: frozenset[str] = frozenset({"V1PodSpec.nodeSelector", "V1ServiceSpec.selector"})

# Quantities arrive as numbers or text and are kept as text.
QUANTITY_FIELDS: frozenset[str] = frozenset(
    {
        "V1ResourceRequirements.limits",
        "V1ResourceRequirements.requests",
        "V1VolumeResourceRequirements.limits",
        "V1VolumeResourceRequirements.requests",
        "V1PersistentVolumeClaimStatus.capacity",
        "V1PersistentVolumeClaimStatus.allocatedResources",
        "V1NodeStatus.capacity",
        "V1NodeStatus.allocatable",
        "V1PodSpec.overhead",
    }
)

DEFAULTS: dict[str, Any] = {
    "V1Container.imagePullPolicy": "IfNotPresent",
    "V1Container.resources": {},
    "V1Container.terminationMessagePath": "/dev/termination-log",
    "V1Container.terminationMessagePolicy": "File",
    "V1ContainerPort.protocol": "TCP",
    "V1ConfigMapVolumeSource.defaultMode": 420,
    "V1CronJobSpec.concurrencyPolicy": "Allow",
    "V1CronJobSpec.failedJobsHistoryLimit": 1,
    "V1CronJobSpec.successfulJobsHistoryLimit": 3,
    "V1CronJobSpec.suspend": False,
    "V1CustomResourceDefinitionSpec.conversion": {"strategy": "None"},
    "V1DeploymentSpec.replicas": 1,
    "V1DeploymentSpec.revisionHistoryLimit": 10,
    "V1DeploymentSpec.progressDeadlineSeconds": 600,
    "V1DeploymentSpec.strategy": {},
    "V1DeploymentStrategy.type": "RollingUpdate",
    "V1EndpointSlice.endpoints": [],
    "V1HTTPGetAction.path": "/",
    "V1HTTPGetAction.scheme": "HTTP",
    "V1NamespaceSpec.finalizers": ["kubernetes"],
    "V1NetworkPolicyPort.protocol": "TCP",
    "V1ObjectFieldSelector.apiVersion": "v1",
    "V1PersistentVolumeClaimSpec.volumeMode": "Filesystem",
    "V1PodSpec.dnsPolicy": "ClusterFirst",
    "V1PodSpec.enableServiceLinks": True,
    "V1PodSpec.restartPolicy": "Always",
    "V1PodSpec.schedulerName": "default-scheduler",
    "V1PodSpec.securityContext": {},
    "V1PodSpec.terminationGracePeriodSeconds": 30,
    "V1Probe.failureThreshold": 3,
    "V1Probe.periodSeconds": 10,
    "V1Probe.successThreshold": 1,
    "V1Probe.timeoutSeconds": 1,
    "V1RollingUpdateStatefulSetStrategy.partition": 0,
    "V1Secret.type": "Opaque",
    "V1SecretVolumeSource.defaultMode": 420,
    "V1ServicePort.protocol": "TCP",
    "V1ServiceSpec.internalTrafficPolicy": "Cluster",
    "V1ServiceSpec.sessionAffinity": "None",
    "V1ServiceSpec.type": "ClusterIP",
    "V1StatefulSetPersistentVolumeClaimRetentionPolicy.whenDeleted": "Retain",
    "V1StatefulSetPersistentVolumeClaimRetentionPolicy.whenScaled": "Retain",
    "V1StatefulSetSpec.persistentVolumeClaimRetentionPolicy": {},
    "V1StatefulSetSpec.podManagementPolicy": "OrderedReady",
    "V1StatefulSetSpec.replicas": 1,
    "V1StatefulSetSpec.revisionHistoryLimit": 10,
    "V1StatefulSetSpec.updateStrategy": {},
    "V1StatefulSetUpdateStrategy.type": "RollingUpdate",
    "V2HorizontalPodAutoscalerSpec.minReplicas": 1,
}

ENUMS: dict[str, list[str]] = {
    "V1CronJobSpec.concurrencyPolicy": ["Allow", "Forbid", "Replace"],
    "V1Container.imagePullPolicy": ["Always", "IfNotPresent", "Never"],
    "V1DeploymentStrategy.type": ["Recreate", "RollingUpdate"],
    "V1ContainerPort.protocol": ["SCTP", "TCP", "UDP"],
    "V1NetworkPolicyPort.protocol": ["SCTP", "TCP", "UDP"],
    "V1PodSpec.restartPolicy": ["Always", "Never", "OnFailure"],
    "V1ServicePort.protocol": ["SCTP", "TCP", "UDP"],
    "V1ServiceSpec.type": ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    "V1StatefulSetPersistentVolumeClaimRetentionPolicy.whenDeleted": ["Delete", "Retain"],
    "V1StatefulSetPersistentVolumeClaimRetentionPolicy.whenScaled": ["Delete", "Retain"],
    "V1StatefulSetSpec.podManagementPolicy": ["OrderedReady", "Parallel"],
    "V1StatefulSetUpdateStrategy.type": ["OnDelete", "RollingUpdate"],
}
