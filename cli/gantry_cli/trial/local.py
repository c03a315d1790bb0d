"""A local cluster for one trial: made in a scratch directory, and gone afterwards.

The rule protected here: whatever ends a trial (success, failure, Ctrl-C, SIGTERM), its processes
end with it. State and logs are deleted too, unless they are asked for or the trial failed.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_local import cluster, manifests
from gantry_local.settings import LocalSettings

from gantry_cli.target import NAMESPACE, Admin, local_admin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from gantry_protocol.admin_client.quorum import Endpoint

SEGMENT_BYTES = 8 * 1024 * 1024


class LocalTrialCluster:
    """A `Cluster` (see `gantry_cli.trial.cluster`) on this machine.

    Attributes:
        keep: leave state and logs behind; somebody has found that the trial failed.
    """

    def __init__(self, settings: LocalSettings, admin: Admin) -> None:
        self.keep = False
        self._settings = settings
        self._admin = admin

    @property
    def directory(self) -> Path:
        """The directory of state and logs; gone with the cluster."""
        return self._settings.local_dir

    @property
    def name_servers(self) -> Sequence[str]:
        """The Service of the name servers."""
        return self._admin.name_servers

    @property
    def controllers(self) -> Sequence[Endpoint]:
        """The admin API of every controller pod."""
        return self._admin.controllers

    @property
    def token(self) -> str:
        """The token of the admin Secret."""
        return self._admin.token

    async def apply(self, manifest: Path) -> None:
        """Server-side apply of every object in the file."""
        async with cluster.client(self._settings) as api:
            for obj in manifests.read(str(manifest)):
                await api.apply(obj, namespace=NAMESPACE)

    async def pods(self) -> Mapping[str, str]:
        """The names of all pods by uid."""
        async with cluster.client(self._settings) as api:
            found = await api.list(await api.resource("pods"), NAMESPACE)
        return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in found}

    async def signal_pod(self, pod: str, number: signal.Signals) -> None:
        """Send a signal to the process of `pod`, behind the kubelet's back."""
        await cluster.kill(
            self._settings, pod, signal_name=number.name.removeprefix("SIG"), namespace=NAMESPACE
        )

    async def signaller(self, pod: str) -> Callable[[signal.Signals], bool]:
        """Sends signals to the process that `pod` has now."""
        return (await cluster.find_process(self._settings, pod, namespace=NAMESPACE)).send

    async def delete_pod(self, pod: str) -> None:
        """Ask the API server to delete `pod`."""
        async with cluster.client(self._settings) as api:
            await api.delete(await api.resource("pods"), pod, NAMESPACE)


@asynccontextmanager
async def scratch_cluster(
    tell: Callable[[str], None], *, keep: bool = False
) -> AsyncIterator[LocalTrialCluster]:
    """A cluster that is up, with its default ControllerGroup; it ends with the context.

    Args:
        tell: told about every step.
        keep: leave state and logs behind. After a failure (not after Ctrl-C) they stay anyway.
    """
    directory = Path(tempfile.mkdtemp(prefix="gantry-"))
    settings = LocalSettings(local_dir=directory, log_segment_bytes=SEGMENT_BYTES)
    with _terminated_like_interrupted():
        try:
            await cluster.up(settings, progress=tell)
            made = LocalTrialCluster(settings, await local_admin(settings))
            yield made
            keep |= made.keep
        except Exception:
            keep = True
            raise
        finally:
            await _end(settings, tell, directory, keep=keep)


async def _end(
    settings: LocalSettings, tell: Callable[[str], None], directory: Path, *, keep: bool
) -> None:
    await asyncio.shield(cluster.down(settings))
    if keep:
        tell(f"state and logs of all processes are in {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)


class _terminated_like_interrupted:  # noqa: N801 - reads as what it does in a `with`
    """SIGTERM cancels the current task, as Ctrl-C does, so that everything is cleaned up."""

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
