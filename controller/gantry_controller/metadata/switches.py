"""The record that says whether the clients of a cluster need users."""

import msgspec
from gantry_protocol.types import Index


class AccessSwitch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The switch of one cluster, and when it or one of the cluster's users changed last."""

    enabled: bool = False
    changed: Index = Index(0)
