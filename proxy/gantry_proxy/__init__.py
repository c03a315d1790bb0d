"""The proxy: clients that speak gRPC, on every broker group of a cluster."""

from gantry_proxy.server import serve
from gantry_proxy.settings import ProxySettings

__all__ = ["ProxySettings", "serve"]
