"""`spec.tls`: the certificate that processes show to clients, and whether clients must speak TLS.

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
