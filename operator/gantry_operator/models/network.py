"""`spec.networkPolicy`: who may open connections to the pods of a group.

The lists take what a NetworkPolicy's `from` takes, with a schema of their own: a peer that the API
server would refuse is refused here, where the sentence reaches whoever wrote it.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gantry_operator import names
from gantry_operator.models.base import Model, Rule
from gantry_operator.models.parts import NOT_NULLABLE, LabelMap, LabelValue

CIDR = r"^[0-9a-fA-F:.]+/[0-9]{1,3}$"
Cidr = Annotated[str, Field(max_length=64, pattern=CIDR)]


class LabelRequirement(Model):
    """One expression of a label selector."""

    key: str = Field(min_length=1, max_length=316, description="Name of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="How the label's value relates to values."
    )
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32)] = Field(
        default=(), description="Values for In and NotIn. At most 32."
    )


class LabelSelector(Model):
    """A label selector; {} selects everything."""

    match_labels: LabelMap = Field(default_factory=dict, description="Labels that must be there.")
    match_expressions: Annotated[tuple[LabelRequirement, ...], Field(max_length=16)] = Field(
        default=(), description="Expressions that must hold. At most 16."
    )


class IpBlock(Model):
    """A range of addresses."""

    cidr: Cidr = Field(description="The range, for example 10.0.0.0/8.")
    except_: Annotated[tuple[Cidr, ...], Field(max_length=16)] = Field(
        default=(), alias="except", description="Ranges inside it that are left out. At most 16."
    )


class Peer(Model):
    """Whose connections are let in, as in a NetworkPolicy's from."""

    namespace_selector: LabelSelector | None = Field(
        default=None,
        description="Namespaces, by their labels. Not set means the namespace of the group.",
        json_schema_extra=NOT_NULLABLE,
    )
    pod_selector: LabelSelector | None = Field(
        default=None,
        description="Pods in these namespaces, by their labels. Not set means all of them.",
        json_schema_extra=NOT_NULLABLE,
    )
    ip_block: IpBlock | None = Field(
        default=None,
        description="Addresses, instead of pods.",
        json_schema_extra=NOT_NULLABLE,
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.ipBlock) != (has(self.namespaceSelector) || has(self.podSelector))",
            "a peer takes either ipBlock, or namespaceSelector and podSelector or one of them: "
            "name one kind",
            lambda peer: (
                (peer.ip_block is not None)
                != (peer.namespace_selector is not None or peer.pod_selector is not None)
            ),
        ),
    )

    def to_peer(self) -> dict[str, Any]:
        """As the API server takes it; selectors that are empty stay, since they select all.

        What a person wrote counts, and not whether an empty list was written: a recorded decision
        does not know that.
        """
        parts = self.model_dump(by_alias=True, exclude_none=True, mode="json")
        return {name: _filled(part) for name, part in parts.items()}


def _filled(part: Any) -> Any:
    """The same without empty lists and mappings below it."""
    if isinstance(part, list):
        return [_filled(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {name: _filled(below) for name, below in part.items() if below not in ([], {})}


Peers = Annotated[tuple[Peer, ...], Field(max_length=16)]
_ENABLED = (
    "true: the operator keeps a NetworkPolicy for the pods. It works where the cluster's network "
    "enforces policies; the kubelet's probes, which come from the pod's own node, need no rule. "
    "false: none, and whatever reaches a pod reaches all of its ports. Default true."
)
_CLIENTS = "name pods, namespaces or addresses to let in those only. At most 16; default everybody."


class ControllerNetworkPolicy(Model):
    """The peers that may open connections to the controllers."""

    enabled: bool = Field(default=True, description=_ENABLED)
    clients_from: Peers = Field(
        default=(),
        description=f"Who reaches 9876, the name service for clients, and listeners: {_CLIENTS}",
    )
    tools_from: Peers = Field(
        default=(),
        description=(
            "Who reaches 9878 (commands) and 9880 (admin API, metrics) beside the operator and the "
            f'pods of this namespace with the label {names.LABEL_TOOLS}: "true"; 9878 is reached '
            "by brokers of this namespace and by the quorum's own controllers, too. For Java "
            "brokers and mqadmin, for example. At most 16; default none. 9879 (Raft) is reached by "
            "the quorum's own controllers and nobody else."
        ),
    )
    metrics_from: Peers = Field(
        default=(),
        description="Who reaches 9880 to scrape metrics. At most 16; default nobody.",
    )


class BrokerNetworkPolicy(Model):
    """The peers that may open connections to the brokers."""

    enabled: bool = Field(default=True, description=_ENABLED)
    clients_from: Peers = Field(
        default=(),
        description=(
            "Who reaches 10911 and the door's 10910, where clients send and receive, beside the "
            f"group's own pods and the controllers: {_CLIENTS} 10912 (replication) is reached by "
            "the group's own brokers and nobody else."
        ),
    )
    metrics_from: Peers = Field(
        default=(),
        description=(
            "Who reaches 10913 and the door's 10920, metrics and probes, where nothing can be "
            "commanded: name peers to let in those only. At most 16; default everybody."
        ),
    )


class FrontNetworkPolicy(Model):
    """The peers that may open connections to the fronts."""

    enabled: bool = Field(default=True, description=_ENABLED)
    clients_from: Peers = Field(
        default=(),
        description=(
            f"Who reaches {names.FIRST_FRONT_PORT} and the ports after it, where clients send and "
            f"receive: {_CLIENTS}"
        ),
    )
    metrics_from: Peers = Field(
        default=(),
        description=(
            f"Who reaches {names.FRONT_HTTP_PORT}, metrics and probes, where nothing can be "
            "commanded: name peers to let in those only. At most 16; default everybody."
        ),
    )
