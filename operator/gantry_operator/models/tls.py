"""`spec.tls`, the certificate that processes show to clients; `spec.memberTls`, that of members.

Rule protected: no key is ever written into a resource, only the name of the Secret that holds it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gantry_operator.models.base import Model


class TlsWish(Model):
    """The certificate of the ports for clients."""

    secret_name: str = Field(
        min_length=1,
        max_length=253,
        description=(
            "Name of a Secret in the same namespace of the type kubernetes.io/tls, as cert-manager "
            "makes them: tls.crt, tls.key, and ca.crt with the authorities of all processes of the "
            "cluster, by which these believe each other where they pass clients on. It is mounted "
            "as files and read again, so a changed Secret takes effect without a restart, within "
            "about a minute. The operator never reads it. Pods wait for it to exist."
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


class MemberTlsWish(Model):
    """The certificate that members of a cluster show each other."""

    secret_name: str = Field(
        min_length=1,
        max_length=253,
        description=(
            "Name of a Secret in the same namespace of the type kubernetes.io/tls, as cert-manager "
            "makes them: tls.crt with the URI of these pods among its names, tls.key, and ca.crt "
            "with the authorities of members and of nobody else. The URI is "
            "gantry://DOMAIN/controller, gantry://DOMAIN/broker/CLUSTER/NAME (of shards .../NAME_*)"
            " or gantry://DOMAIN/front/CLUSTER. It is mounted as files and read again, so a "
            "changed Secret takes effect without a restart, within about a minute. The operator "
            "reads ca.crt and tls.crt of a ControllerGroup's, to know its controllers when it asks "
            "them. Pods wait for it to exist, and do not start with the certificate of another "
            "member."
        ),
    )
    mode: Literal["Permissive", "Enforcing"] = Field(
        default="Permissive",
        description=(
            "Permissive: members speak TLS with each other where both sides can. Enforcing: TLS "
            "with certificates of both sides only, and the controllers' admin API by TLS only. Go "
            "from none to Permissive, in all groups of the quorum, the ControllerGroup too, and "
            "then to Enforcing, or members do not reach each other. Default Permissive."
        ),
    )
