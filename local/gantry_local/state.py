"""The state directory of a local cluster: where things are, whose they are, who runs.

A daemon holds ``LOCK`` for its life. ``cluster.json`` says what the directory is and is never
overwritten by a version that does not understand it; ``daemon.json`` names the running daemon by
pid and start time, so that nobody signals a stranger with a recycled pid.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
from typing import TYPE_CHECKING, Final

import msgspec
from gantry_protocol.errors import DataDirError, GantryError, LockHeldError
from gantry_protocol.process.files import atomic_write

from gantry_local.kubelet.identity import ProcessIdentity, identify

if TYPE_CHECKING:
    from pathlib import Path

FORMAT: Final = 1
DEFAULT_STATE_DIR: Final = ".gantry/local"
MAX_CLUSTERS: Final = 250
"""Values of G in 127.77.G.N that are used; one machine needs far fewer."""


class Cluster(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``cluster.json``: what survives every restart."""

    kind: str
    format: int
    token: str
    # G of the addresses; kept while it is free.
    index: int | None = None
    port: int = 0
    # The API server that keeps its objects: own or real. A version that knows one only refuses
    # a cluster of the other, as it does not know this field.
    api: str = "own"


class Daemon(msgspec.Struct):
    """``daemon.json``: the running daemon."""

    pid: int
    start_ticks: int
    url: str

    @property
    def identity(self) -> ProcessIdentity:
        """Its process."""
        return ProcessIdentity(self.pid, self.start_ticks)


class StateDir:
    """Paths and small files of one cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.kubeconfig = self.path / "kubeconfig"
        self.hosts = self.path / "hosts.json"
        self.journal = self.path / "store.jsonl"
        self.quorum_key = self.path / "quorum-key"
        self.logs = self.path / "logs"
        self.real = self.path / "real"
        self.volumes = self.path / "volumes"
        self.daemon_log = self.path / "daemon.log"
        self._cluster = self.path / "cluster.json"
        self._daemon = self.path / "daemon.json"

    def api(self, wanted: str | None) -> str:
        """The API server that ``open`` would find or note: own or real."""
        if wanted is None and self._cluster.exists():
            return self._read_cluster().api
        return wanted or "own"

    def open(self, api: str | None = None) -> Cluster:
        """Read ``cluster.json``, creating directory and file for a new cluster.

        Args:
            api: The wanted API server; None takes what is there.

        Raises:
            DataDirError: the directory holds something else, a newer format, or another API
                server's objects.
        """
        cluster = self._open(api or "own")
        if api not in (None, cluster.api):
            raise DataDirError(
                f"The cluster in {self.path} was made with --api {cluster.api} and its objects are "
                f"there; end it with gantry local down --purge first, or choose another directory "
                "with --local-dir or GANTRY_LOCAL_DIR."
            )
        return cluster

    def _open(self, api: str) -> Cluster:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if self._cluster.exists():
                return self._read_cluster()
            found = sorted(entry.name for entry in self.path.iterdir())
        except OSError as error:
            raise DataDirError(
                f"The state directory {self.path} cannot be used: {error.strerror}."
            ) from error
        foreign = [name for name in found if name not in {"LOCK", "daemon.log"}]
        if foreign:
            raise DataDirError(
                f"{self.path} holds {foreign[0]!r} and no cluster.json, so it is not a local "
                "cluster; choose another directory with --local-dir or GANTRY_LOCAL_DIR."
            )
        cluster = Cluster("gantry-local", FORMAT, secrets.token_urlsafe(24), api=api)
        self.save(cluster)
        return cluster

    def _read_cluster(self) -> Cluster:
        try:
            cluster = msgspec.json.decode(self._cluster.read_bytes(), type=Cluster)
        except msgspec.DecodeError as error:
            raise DataDirError(
                f"{self._cluster} cannot be read ({error}); if this is a gantry local cluster of "
                "another version, start that version, else choose another directory."
            ) from error
        if cluster.kind != "gantry-local" or cluster.format != FORMAT:
            raise DataDirError(
                f"{self._cluster} has kind {cluster.kind!r} and format {cluster.format}, this "
                f"version reads 'gantry-local' {FORMAT}; start the version that wrote it."
            )
        return cluster

    def save(self, cluster: Cluster) -> None:
        """Write ``cluster.json``."""
        atomic_write(self._cluster, msgspec.json.encode(cluster), mode=0o600)

    def save_quorum_key(self, key: bytes) -> Path:
        """Have the quorum's key in a file, for a process of this machine that no pod is."""
        atomic_write(self.quorum_key, key, mode=0o600)
        return self.quorum_key

    def lock(self) -> int:
        """Take the lock for the life of this process; returns its descriptor.

        Raises:
            LockHeldError: another daemon has it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / "LOCK", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise LockHeldError(
                f"Another daemon runs the cluster in {self.path}; stop it with gantry local down."
            ) from None
        return descriptor

    def announce(self, url: str) -> None:
        """Say that this process is the daemon and answers at ``url``."""
        own = identify(os.getpid())
        assert own is not None, "this process runs"
        daemon = Daemon(own.pid, own.start_ticks, url)
        atomic_write(self._daemon, msgspec.json.encode(daemon))

    def withdraw(self) -> None:
        """The daemon ends."""
        self._daemon.unlink(missing_ok=True)

    def daemon(self) -> Daemon | None:
        """The daemon that runs right now, if any."""
        try:
            found = msgspec.json.decode(self._daemon.read_bytes(), type=Daemon)
        except (OSError, msgspec.DecodeError):
            return None
        return found if found.identity.alive() else None


def claim_index(preferred: int | None) -> tuple[int, socket.socket]:
    """A free G and the socket that keeps it claimed while this process lives.

    The kernel is the register: an abstract socket per index, gone with its process, so a crash
    leaves nothing stale and two clusters never share addresses.

    Raises:
        GantryError: every index is taken.
    """
    order = list(range(MAX_CLUSTERS))
    if preferred is not None:
        order.insert(0, preferred)
    for index in order:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0gantry-local-{index}")
        except OSError:
            claim.close()
            continue
        return index, claim
    raise GantryError(
        f"All {MAX_CLUSTERS} address ranges 127.77.G are claimed by running clusters; stop one "
        "with gantry local down."
    )
