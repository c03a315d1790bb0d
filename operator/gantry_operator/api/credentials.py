"""The API server's address and our identity there; one source for our client and for kopf.

Order: the kubeconfig that was named, the service account of a pod, `$KUBECONFIG` or
`~/.kube/config`. Tokens rotate, so they are asked for on every request.
"""

from __future__ import annotations

from os import environ
from pathlib import Path
from typing import Any

import kopf
from gantry_protocol.errors import ConfigError
from kubernetes.aio import config as client_config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME

_BEARER = "BearerToken"
_LOADERS: Any = client_config  # its functions have no types


def is_in_cluster() -> bool:
    """Whether this process is a pod with a service account."""
    return bool(environ.get(SERVICE_HOST_ENV_NAME)) and Path(SERVICE_TOKEN_FILENAME).is_file()


class Credentials:
    """The configuration of the client, loaded once and again after it was refused.

    Attributes:
        in_cluster: whether the service account is used.
    """

    def __init__(self, kubeconfig: Path | None) -> None:
        self._kubeconfig = kubeconfig
        self.in_cluster = kubeconfig is None and is_in_cluster()
        self.configuration: Any = Configuration()
        # Neither kopf nor we take proxies from the environment: the API server is near, and a
        # proxy that is meant for the outside would be asked for loopback addresses.
        self.configuration.client_session_kwargs = {"trust_env": False}

    async def load(self) -> None:
        """Reads the credentials; may run a kubeconfig's exec plug-in.

        Raises:
            ConfigError: there are none, or they are unreadable.
        """
        try:
            if self.in_cluster:
                _LOADERS.load_incluster_config(client_configuration=self.configuration)
            else:
                await _LOADERS.load_kube_config(
                    config_file=str(self._kubeconfig) if self._kubeconfig else None,
                    client_configuration=self.configuration,
                    persist_config=False,
                )
        except (client_config.ConfigException, OSError, ValueError) as error:
            source = self._kubeconfig or "the default kubeconfig"
            raise ConfigError(
                f"No way to the API server: {source} cannot be used ({error}); "
                "give --kubeconfig, or run inside a cluster."
            ) from error

    async def connection(self) -> kopf.ConnectionInfo:
        """The same credentials for kopf."""
        config = self.configuration
        header = await config.get_api_key_with_prefix(_BEARER, alias="authorization")
        scheme, _, token = (header or "").rpartition(" ")
        return kopf.ConnectionInfo(
            server=config.host,
            ca_path=config.ssl_ca_cert,
            insecure=not config.verify_ssl,
            scheme=scheme or None,
            token=token or None,
            certificate_path=config.cert_file,
            private_key_path=config.key_file,
            proxy_url=config.proxy,
        )
