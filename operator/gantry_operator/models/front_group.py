"""FrontGroup: stateless processes through which clients reach all broker groups of a cluster."""

from __future__ import annotations

from typing import ClassVar, Literal

from gantry_protocol.settings.tracing import COLLECTOR_URL
from pydantic import Field

from gantry_operator import names
from gantry_operator.models.base import Condition, Model, Resource, Rule
from gantry_operator.models.network import FrontNetworkPolicy
from gantry_operator.models.parts import (
    NOT_NULLABLE,
    ControllerRef,
    Resources,
    ShortMap,
)
from gantry_operator.models.template import Template
from gantry_operator.models.tier import FrontTier  # noqa: TC001 - pydantic reads it
from gantry_operator.models.tls import MemberTlsWish, TlsWish  # noqa: TC001 - pydantic reads it

MAX_REPLICAS = 100
LAST_NODE_PORT = 32767


RATIO = r"^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$"


class FrontTracing(Model):
    """Traces of sends, as brokers are told of theirs by spec.config."""

    endpoint: str = Field(
        min_length=1,
        max_length=1024,
        pattern=COLLECTOR_URL,
        description=(
            "http(s)://HOST:PORT of an OpenTelemetry collector that takes OTLP over HTTP; "
            "/v1/traces is put behind it. No default."
        ),
    )
    ratio: str = Field(
        default="0.01",
        max_length=8,
        pattern=RATIO,
        description=(
            "The share of sends that are traced if their messages have no traceparent, as text "
            'from "0" to "1"; one that has is traced if its parent is sampled. Default "0.01".'
        ),
    )


class FrontService(Model):
    """The Service through which clients reach the fronts, and the address that they are given."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        default="ClusterIP",
        description=(
            "ClusterIP is reached inside the Kubernetes cluster, NodePort at every node, "
            "LoadBalancer at an address of the cloud's. Default ClusterIP."
        ),
    )
    annotations: ShortMap = Field(
        default_factory=dict,
        description=(
            "Annotations of the Service, as a cloud's load balancer wants them. At most 64; "
            "default none."
        ),
    )
    advertised_address: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=r"^[0-9A-Za-z]([-.:0-9A-Za-z]*[0-9A-Za-z])?$",
        description=(
            "Host name or IP address, without a port, that clients are given. Default: the "
            "Service's own address, which is its cluster IP, or the first address of the load "
            "balancer. A NodePort has none, so it has to be set there."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    first_node_port: int = Field(
        default=30950,
        ge=1,
        le=LAST_NODE_PORT,
        description=(
            "With type NodePort, the port of the nodes for the first broker group; each further "
            "group has the next one, and none of them may be taken. Default 30950."
        ),
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.type != 'NodePort' || has(self.advertisedAddress)",
            "service.type NodePort needs service.advertisedAddress: set it to a name or an address "
            "of a node, or of what stands before the nodes",
            lambda service: service.type != "NodePort" or service.advertised_address is not None,
        ),
    )


class Autoscaling(Model):
    """The number of fronts by their CPU use."""

    enabled: bool = Field(
        default=False,
        description=(
            "true: a HorizontalPodAutoscaler sets the number of fronts, and replicas counts for "
            "nothing. It needs the cluster's metrics server. Default false."
        ),
    )
    min_replicas: int = Field(
        default=2, ge=1, le=MAX_REPLICAS, description="Fewest fronts. Range 1 to 100; default 2."
    )
    max_replicas: int = Field(
        default=10, ge=1, le=MAX_REPLICAS, description="Most fronts. Range 1 to 100; default 10."
    )
    target_cpu_utilization_percentage: int = Field(
        default=70,
        ge=1,
        le=1000,
        alias="targetCPUUtilizationPercentage",
        description=(
            "Percent of the requested CPU that fronts use on average; with more, there will be "
            "more of them. Range 1 to 1000; default 70."
        ),
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.minReplicas <= self.maxReplicas",
            "autoscaling.minReplicas must not be greater than autoscaling.maxReplicas: lower it or "
            "raise maxReplicas",
            lambda wish: wish.min_replicas <= wish.max_replicas,
        ),
    )


class FrontGroupSpec(Model):
    """The wish for the fronts."""

    controller_ref: ControllerRef = Field(
        default_factory=ControllerRef,
        description="The ControllerGroup whose cluster the fronts serve: all of its broker groups.",
    )
    replicas: int = Field(
        default=2,
        ge=1,
        le=MAX_REPLICAS,
        description="Number of fronts, unless autoscaling is enabled. Range 1 to 100; default 2.",
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description=(
            "Container image. Default: the operator's own; a new one rolls through the groups "
            "that name none, one group at a time. A change replaces the fronts one by one; a new "
            "one is Ready before an old one ends."
        ),
    )
    ports: int = Field(
        default=16,
        ge=1,
        le=names.MAX_FRONT_PORTS,
        description=(
            "Number of broker groups that clients can reach through the fronts: each has a port of "
            "its own. Groups beyond are reached at their own addresses. Range 1 to 64; default 16; "
            "can be raised and never lowered."
        ),
    )
    service: FrontService = Field(
        default_factory=FrontService, description="How clients reach the fronts."
    )
    connection_age_seconds: int = Field(
        default=120,
        ge=0,
        le=86_400,
        description=(
            "Age, give or take a quarter, at which a producer's connection is ended with an "
            "answer: it connects again, so a front that comes has its share of them after that "
            "time. Fronts apply a change while running, as one of tracing. 0: never. Range 0 to "
            "86,400; default 120."
        ),
    )
    autoscaling: Autoscaling = Field(
        default_factory=Autoscaling, description="The number of fronts by their CPU use."
    )
    resources: Resources = Field(
        default_factory=Resources, description="CPU and memory of each front."
    )
    template: Template = Field(
        default_factory=Template, description="Closed subset of the pod template."
    )
    tier: FrontTier | None = Field(
        default=None,
        description=(
            "The object store of the broker groups' tiers: while a group has no master, the "
            "fronts serve what its tier holds, to be read. Default none: it is not served then."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    tracing: FrontTracing | None = Field(
        default=None,
        description=(
            "Traces of the sends that come by way of fronts. Fronts apply a change while running; "
            "those of an image from before this are replaced one by one. Default none: fronts "
            "trace nothing."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    log_level: Literal["debug", "info", "warning", "error"] | None = Field(
        default=None,
        description=(
            "The least that fronts log: debug, info, warning or error. Fronts apply a change while "
            "running, as one of tracing. Default none: info."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    tls: TlsWish | None = Field(
        default=None,
        description=(
            "TLS of fronts for clients, and where they pass clients on to masters. A change "
            "replaces the fronts one by one; one of the Secret does not. Default none: nothing is "
            "encrypted."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    member_tls: MemberTlsWish | None = Field(
        default=None,
        description=(
            "TLS between members, with certificates of both sides: of what fronts say to the "
            "stores of brokers and to controllers. A change replaces the fronts one by one; one "
            "of the Secret does not. Default none: whoever has the quorum's key is believed."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    network_policy: FrontNetworkPolicy = Field(
        default_factory=FrontNetworkPolicy,
        description="Who may open connections to the fronts, as a NetworkPolicy.",
    )
    paused: bool = Field(
        default=False,
        description=(
            "true: the operator changes nothing but status. Fronts serve on. Deletion goes on. "
            "Default false."
        ),
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.ports >= oldSelf.ports",
            "ports can be raised and never lowered, because clients of the groups on the last ones "
            "would be cut off: set it back, and create a new FrontGroup for fewer",
        ),
        Rule(
            "!has(self.service) || self.service.type != 'NodePort'"
            f" || self.service.firstNodePort + self.ports - 1 <= {LAST_NODE_PORT}",
            f"service.firstNodePort and the ports after it must not go beyond {LAST_NODE_PORT}: "
            "lower it or ports",
            lambda spec: (
                spec.service.type != "NodePort"
                or spec.service.first_node_port + spec.ports - 1 <= LAST_NODE_PORT
            ),
        ),
        Rule(
            None,  # requests and limits may be null, which has() takes for a value
            "autoscaling compares the CPU use with the request for CPU: set resources.requests.cpu",
            lambda spec: not spec.autoscaling.enabled or _requests_cpu(spec.resources),
        ),
    )


def _requests_cpu(resources: Resources) -> bool:
    """Whether the pods request CPU: as their owner says, by default, or by their limit."""
    if resources.requests is None:
        return True
    return "cpu" in resources.requests or "cpu" in (resources.limits or {})


class ServedGroup(Model):
    """A broker group that clients reach through the fronts."""

    name: str = Field(description="Name of the broker group.")
    port: int = Field(description="Port of the address at which clients reach it.")


class FrontGroupStatus(Model):
    """The operator's observations; they could be rebuilt from the world if they were lost."""

    observed_generation: int = Field(
        ge=-1, description="The generation of the spec this status was concluded from."
    )
    summary: str = Field(
        default="",
        description=(
            "All of it in one line, for example Healthy, Rolling 2/3, Refused NameTaken, Crashing "
            "with the process's last words, or Deleting with what it waits for."
        ),
    )
    replicas: int = Field(default=0, ge=0, description="Pods that exist.")
    ready_replicas: int = Field(default=0, ge=0, description="Pods that are Ready.")
    ready: str = Field(default="", description="Ready pods of wished pods, for example 2/2.")
    selector: str = Field(default="", description="Selector of the pods, for scaling by kubectl.")
    address: str | None = Field(
        default=None,
        description="Host and first port to which the controllers lead clients; absent before.",
    )
    groups: tuple[ServedGroup, ...] = Field(
        default=(),
        description="Broker groups that clients are led to through the fronts, by name.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    served: str = Field(
        default="", description="Groups of that list of all of the cluster, for example 3/3."
    )
    withdrawn_at: str | None = Field(
        default=None,
        description=(
            "When the operator first saw that clients are led to the brokers again; only while the "
            "resource is being deleted."
        ),
        json_schema_extra={"format": "date-time"},
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description=(
            "Accepted, Available, GroupsServed, Progressing, Altered (while others have changed "
            "the pods), Paused, Ready, which sums the others up, and while it is False Stalled or "
            "Reconciling, which tools by the rules of kstatus read; one entry each."
        ),
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )


class FrontGroup(Resource):
    """Stateless processes through which clients reach all broker groups of a cluster."""

    spec: FrontGroupSpec = Field(
        default_factory=FrontGroupSpec, description="What the fronts are to be like."
    )
    status: FrontGroupStatus | None = Field(
        default=None, description="What the operator observes; written by the operator only."
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
            f" && self.metadata.name.size() <= {names.MAX_FRONT_GROUP_NAME}",
            "metadata.name must start with a letter, have only lower-case letters, digits and "
            f"hyphens, and at most {names.MAX_FRONT_GROUP_NAME} characters, because a Service and "
            "pods are named after it: choose another name",
            lambda group: names.is_group_name(group.metadata.name, names.MAX_FRONT_GROUP_NAME),
        ),
    )
