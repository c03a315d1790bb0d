"""`spec.clients.listeners`: ways into the cluster from outside.

Clients inside need none: the way in by cluster addresses is always there. A listener has one name
at the ControllerGroup, where its clients ask for routes, and at the BrokerGroups they are led to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from gantry_operator import names
from gantry_operator.models.base import Model
from gantry_operator.models.parts import NOT_NULLABLE, ShortMap
from gantry_operator.models.tls import ListenerTlsWish  # noqa: TC001 - pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic.config import JsonDict

    from gantry_operator.models.tls import TlsWish

HOST = r"^[A-Za-z0-9]([-A-Za-z0-9.:]*[A-Za-z0-9])?$"
Host = Annotated[str, Field(max_length=253, pattern=HOST)]
Port = Annotated[int, Field(ge=1, le=65535)]
BY_NAME: JsonDict = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}


class ListenerWish(Model):
    """A way in from outside of the cluster."""

    name: str = Field(
        min_length=1,
        max_length=names.MAX_LISTENER_NAME,
        pattern=r"^[a-z][a-z0-9]*$",
        description=(
            "Name of the way in, the same at the ControllerGroup and its BrokerGroups: a letter, "
            "then letters and digits, all lower-case. At most 12."
        ),
    )
    type: Literal["NodePort", "LoadBalancer"] = Field(
        description=(
            "NodePort: ports of the nodes that the pods are on. LoadBalancer: addresses of the "
            "cloud's."
        )
    )
    allow_plain: bool = Field(
        default=False,
        description=(
            "true: also without tls.mode Enforcing, so that whoever is on the way may read and "
            "change what clients say. Default false."
        ),
    )
    tls: ListenerTlsWish | None = Field(
        default=None,
        description=(
            "TLS of this listener, at ports of its own of the pods. A change restarts them one by "
            "one; one of the Secret does not. Default: as spec.tls."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    annotations: ShortMap = Field(
        default_factory=dict, description="Annotations of the Services. At most 64; default none."
    )


class NameServiceListener(ListenerWish):
    """A way to the name service."""

    node_port: int | None = Field(
        default=None,
        ge=1,
        le=32767,
        description="Port of the nodes. Default: one that is free.",
        json_schema_extra=NOT_NULLABLE,
    )


class AdvertisedReplica(Model):
    """The address of a replica for clients, instead of its Service's."""

    ordinal: int = Field(ge=0, le=8, description="Ordinal of the replica.")
    host: Host | None = Field(
        default=None, description="Host name or IP address.", json_schema_extra=NOT_NULLABLE
    )
    port: Port | None = Field(
        default=None, description="Port that goes with it.", json_schema_extra=NOT_NULLABLE
    )


class BrokerListener(ListenerWish):
    """A way to the brokers: to the group, and to each replica."""

    advertised_host: Host | None = Field(
        default=None,
        description=(
            "Host name or IP address of the group, for clients. Default: of the master's node, or "
            "of the load balancer."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    advertised_port: Port | None = Field(
        default=None,
        description=(
            "Port that goes with it; of the first shard, where the next has the next. Default: the "
            "Service's."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    replicas: Annotated[tuple[AdvertisedReplica, ...], Field(max_length=9)] = Field(
        default=(),
        description="The same for single replicas. At most 9.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["ordinal"],
        },
    )


NameServiceListeners = Annotated[
    tuple[NameServiceListener, ...], Field(max_length=names.MAX_LISTENERS)
]
BrokerListeners = Annotated[tuple[BrokerListener, ...], Field(max_length=names.MAX_LISTENERS)]


class ControllerClients(Model):
    """The way of clients to the name service."""

    listeners: NameServiceListeners = Field(
        default=(),
        description=(
            "Ways to the name service from outside of the cluster. A change restarts the "
            "controllers one by one. At most 4; default none."
        ),
        json_schema_extra=BY_NAME,
    )


class ListenerStatus(Model):
    """The addresses of a listener."""

    name: str = Field(description="Name of the listener.")
    addresses: tuple[str, ...] = Field(
        description="Host and port of each, as clients outside of the cluster are to use them."
    )


def are_guarded(listeners: Sequence[ListenerWish], tls: TlsWish | None) -> bool:
    """Whether nobody outside is served in plain text without somebody's having said so."""
    of_all = tls is not None and tls.mode == "Enforcing"
    return all(
        listener.allow_plain
        or (of_all if listener.tls is None else listener.tls.mode == "Enforcing")
        for listener in listeners
    )


PLAIN_RULE = (
    "!has(self.clients) || !has(self.clients.listeners) || self.clients.listeners.all(l,"
    " l.allowPlain || (has(l.tls) ? l.tls.mode == 'Enforcing'"
    " : has(self.tls) && self.tls.mode == 'Enforcing'))"
)
PLAIN_MESSAGE = (
    "a listener leads clients from outside of the cluster, so it needs tls.mode Enforcing: set it, "
    "or allowPlain of the listener where the network in between is yours"
)


def have_certificates(listeners: Sequence[ListenerWish], tls: TlsWish | None) -> bool:
    """Whether each listener with TLS has a certificate, its own or that of `spec.tls`."""
    own = (listener.tls for listener in listeners if listener.tls is not None)
    return tls is not None or not any(one.lacks_secret for one in own)


CERTIFICATE_RULE = (
    "has(self.tls) || !has(self.clients) || !has(self.clients.listeners) ||"
    " self.clients.listeners.all(l, !has(l.tls) || l.tls.mode == 'Disabled'"
    " || has(l.tls.secretName))"
)
CERTIFICATE_MESSAGE = "tls of a listener needs a certificate: set its secretName, or spec.tls"


def are_distinct(listeners: Sequence[ListenerWish]) -> bool:
    """Whether each has a name of its own, as the API server sees to by the key of the list."""
    return len({listener.name for listener in listeners}) == len(listeners)
