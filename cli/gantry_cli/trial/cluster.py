"""The cluster that a trial is done to, as the trial needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gantry_protocol.admin_client.quorum import Endpoint


class Cluster(Protocol):
    """A running cluster: where to talk to it, and how to hurt it."""

    @property
    def name_servers(self) -> Sequence[str]:
        """`host:port` of the name service."""
        ...

    @property
    def controllers(self) -> Sequence[Endpoint]:
        """The admin API of every controller."""
        ...

    @property
    def token(self) -> str:
        """The bearer token of the admin API."""
        ...

    async def apply(self, manifest: Path) -> None:
        """Create or change what is in the file."""
        ...

    async def pods(self) -> Mapping[str, str]:
        """The names of all pods by uid."""
        ...

    async def signal_pod(self, pod: str, number: signal.Signals) -> None:
        """Send a signal to the process of `pod`, behind the kubelet's back."""
        ...

    async def signaller(self, pod: str) -> Callable[[signal.Signals], bool]:
        """Sends signals to the process that `pod` has now, at once; False when it is gone."""
        ...

    async def delete_pod(self, pod: str) -> None:
        """Ask the API server to delete `pod`: its process is asked to stop, then replaced."""
        ...
