"""`spec.tls`, the certificate that processes show to clients; `spec.memberTls`, that of members.

Rule protected: no key is ever written into a resource, only the name of the Secret that holds it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gantry_operator.models.base import Model
from gantry_operator.models.parts import NOT_NULLABLE


class TlsWish(Model):
    """The certificate of the ports for clients."""

    secret_name: str = Field(
        min_length=1,
        max_length=253,
        description=(
            "Name of a Secret of the type kubernetes.io/tls, as cert-manager makes them: tls.crt, "
            "tls.key, and ca.crt with the authorities of all processes of the cluster, by which "
            "these believe each other where they pass clients on. A changed Secret takes effect "
            "without a restart, within about a minute. The operator never reads it. Pods wait for "
            "it to exist."
        ),
    )
    mode: Literal["Permissive", "Enforcing"] = Field(
        default="Permissive",
        description=(
            "Permissive: clients speak TLS or not, and processes that pass them on do where both "
            "sides can. Enforcing: TLS only; pods refuse a Secret without ca.crt. Go from none to "
            "Permissive, in all groups of the cluster, and then to Enforcing, so that clients go "
            "on. Default Permissive."
        ),
    )


class ListenerTlsWish(Model):
    """The TLS of one listener."""

    mode: Literal["Disabled", "Permissive", "Enforcing"] = Field(
        default="Enforcing",
        description="Disabled: no TLS. Permissive: TLS or not. Enforcing: TLS only. Default "
        "Enforcing.",
    )
    secret_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description=(
            "Name of a Secret with tls.crt and tls.key, as of spec.tls, read again when it "
            "changes. The operator reads both, to say if they do not serve together, and keeps "
            "neither. Pods do not wait for it. Default: that of spec.tls."
        ),
        json_schema_extra=NOT_NULLABLE,
    )

    @property
    def lacks_secret(self) -> bool:
        """Whether it needs the certificate of `spec.tls`."""
        return self.mode != "Disabled" and self.secret_name is None


class MemberTlsWish(Model):
    """The certificate that members of a cluster show each other."""

    secret_name: str = Field(
        min_length=1,
        max_length=253,
        description=(
            "Name of a Secret of the type kubernetes.io/tls: tls.crt with the URI of these pods "
            "among its names, tls.key, and ca.crt with the authorities of members and of nobody "
            "else. The URI is gantry://DOMAIN/controller, gantry://DOMAIN/broker/CLUSTER/NAME (of "
            "shards .../NAME_*) or gantry://DOMAIN/front/CLUSTER. A changed Secret takes effect "
            "without a restart, within about a minute. The operator reads ca.crt and tls.crt of a "
            "ControllerGroup's, to know its controllers. Pods wait for it to exist, and do not "
            "start with another member's."
        ),
    )
    mode: Literal["Permissive", "Enforcing"] = Field(
        default="Permissive",
        description=(
            "Permissive: members speak TLS with each other where both sides can. Enforcing: TLS "
            "only, with certificates of both sides, also of the controllers' admin API. Go from "
            "none to Permissive, in all groups of the quorum and the ControllerGroup, and then to "
            "Enforcing, or members do not reach each other. Default Permissive."
        ),
    )
