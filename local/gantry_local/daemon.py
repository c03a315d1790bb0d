"""The daemon of a local cluster: ``python -P -m gantry_local.daemon``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError, PortInUseError
from gantry_protocol.process import log
from gantry_protocol.process.config import fallback_name, load_settings
from gantry_protocol.process.listening import bind
from gantry_protocol.process.runtime import run

from gantry_local.real.binaries import find
from gantry_local.real.cluster import RealCluster
from gantry_local.runtime import LocalCluster
from gantry_local.settings import LocalSettings
from gantry_local.state import StateDir, claim_index

if TYPE_CHECKING:
    import asyncio
    import socket

    from gantry_local.state import Cluster

_log = log.get("local.daemon")


async def run_cluster(settings: LocalSettings, stop: asyncio.Event) -> None:
    """Run the cluster of a state directory until ``stop``; its processes end with it.

    Raises:
        LockHeldError: another daemon runs it.
        DataDirError: the directory belongs to something else.
        PortInUseError: the API server's port is taken.
    """
    if sys.platform != "linux":
        raise GantryError(
            "A local cluster needs Linux: every pod has its own loopback address, and processes "
            "are tied to the daemon by the kernel; on other systems use kind."
        )
    state = StateDir(Path(settings.local_dir))
    lock = state.lock()  # held until this process ends
    identity = state.open(settings.api)
    listener = _listen(settings.api_port, identity.port)
    index, claim = claim_index(identity.index)
    # What a group's spec.config says wins.
    env = {fallback_name("log_segment_bytes"): str(settings.log_segment_bytes)}
    cluster: LocalCluster | RealCluster
    if identity.api == "own":
        cluster = LocalCluster(state, identity, index=index, env=env)
    else:
        _check_index(identity, index)
        binaries, emulated = find(settings.api_binaries), settings.api_emulated
        cluster = RealCluster(state, identity, binaries, index=index, env=env, emulated=emulated)
    port = listener.getsockname()[1]
    try:
        await cluster.start(listener)
    except BaseException:
        await cluster.stop(grace_s=0.0)
        raise
    identity.index, identity.port = index, port
    state.save(identity)
    state.announce(cluster.url)
    _log.info("cluster is up", url=cluster.url, index=index, state_dir=state.path, lock=lock)
    try:
        await cluster.wait(stop)
    finally:
        await cluster.stop()
        state.withdraw()
        claim.close()


def _check_index(identity: Cluster, index: int) -> None:
    """A real server keeps the addresses of its Services for ever."""
    if identity.index not in (None, index):
        raise GantryError(
            f"The addresses 127.78.{identity.index} of this cluster's Services are used by another "
            "running cluster; stop that one with gantry local down."
        )


def _listen(wanted: int, last: int) -> socket.socket:
    """Listen on the wanted port, or else on the last one, or else on a free one."""
    if wanted:
        return bind("127.0.0.1", wanted, purpose="the API")
    try:
        return bind("127.0.0.1", last, purpose="the API")
    except PortInUseError:
        _log.warning("the last port is taken, choosing another", port=last)
        return bind("127.0.0.1", 0, purpose="the API")


def main() -> int:
    """Run with settings from the environment until SIGTERM."""
    log.setup("local")

    async def serve(stop: asyncio.Event) -> None:
        await run_cluster(load_settings(LocalSettings, table="local"), stop)

    return run(serve)


if __name__ == "__main__":
    sys.exit(main())
