"""etcd, kube-apiserver and kube-controller-manager as processes of one local cluster.

The rule protected here: only the owner of the state directory reaches etcd and the API. etcd
listens on sockets inside a directory of mode 0700, the API on loopback with TLS and the cluster's
token. A program that ends by itself ends the cluster: nothing is started again behind one's back.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import secrets
import ssl
from typing import TYPE_CHECKING, Final

import aiohttp
from gantry_protocol.errors import GantryError

from gantry_local.files import replace_file
from gantry_local.kubelet.environment import Launch
from gantry_local.kubelet.logs import Logs
from gantry_local.kubelet.process import Process

if TYPE_CHECKING:
    from pathlib import Path

    from gantry_local.real.binaries import Binaries

READY_TIMEOUT_S: Final = 180.0
STOP_GRACE_S: Final = 4.0
"""A write that was answered is in etcd: the others may be killed at any time."""
_POLL_S: Final = 0.1
_CLIENT_SOCKET: Final = "unix://client:0"  # a file of that name in the directory that etcd runs in
_PEER_SOCKET: Final = "unix://peer:0"
CONTROLLERS: Final = (
    "cronjob-controller",
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "replicaset-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
)
"""None for endpoints: a real server refuses loopback addresses in them (``endpoints``)."""

_EC_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_EC_HEAD: Final = bytes.fromhex("30310201010420")  # RFC 5915: a private key of 32 bytes …
_EC_TAIL: Final = bytes.fromhex("a00a06082a8648ce3d030107")  # … on the curve P-256


def new_signing_key() -> bytes:
    """A fresh P-256 key as PEM (RFC 5915, without the public part, which follows from it)."""
    scalar = (1 + secrets.randbelow(_EC_ORDER - 1)).to_bytes(32, "big")
    text = base64.encodebytes(_EC_HEAD + scalar + _EC_TAIL).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n".encode()


def etcd_command(binary: Path) -> list[str]:
    """etcd, alone, on sockets of its directory."""
    return [
        str(binary),
        "--name=local",
        "--data-dir=etcd",
        f"--listen-client-urls={_CLIENT_SOCKET}",
        f"--advertise-client-urls={_CLIENT_SOCKET}",
        f"--listen-peer-urls={_PEER_SOCKET}",
        f"--initial-advertise-peer-urls={_PEER_SOCKET}",
        f"--initial-cluster=local={_PEER_SOCKET}",
        "--log-level=warn",
    ]


def apiserver_command(binary: Path, *, port: int, network: str, emulated: str = "") -> list[str]:
    """kube-apiserver on ``port`` of loopback, with Services in ``network``.

    ``emulated`` is an earlier minor version, such as 1.31, whose API is served; "" is its own.
    """
    command = [
        str(binary),
        f"--etcd-servers={_CLIENT_SOCKET}",
        "--cert-dir=certificates",  # where it makes itself a certificate
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--service-cluster-ip-range={network}",
        "--endpoint-reconciler-type=none",
        "--token-auth-file=tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-signing-key-file=signing-key.pem",
        "--service-account-key-file=signing-key.pem",
        # Pods are processes of this machine and reach the API by a kubeconfig.
        "--disable-admission-plugins=ServiceAccount",
        "--profiling=false",
    ]
    return [*command, f"--emulated-version=kube={emulated}"] if emulated else command


def manager_command(binary: Path, kubeconfig: Path) -> list[str]:
    """kube-controller-manager, alone, with the controllers that a local cluster needs."""
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--controllers={','.join(CONTROLLERS)}",
    ]


class Servers:
    """The programs of one cluster, in a directory of their own.

    Attributes:
        ca: The certificates that the API server is verified by, once it is ready.
    """

    def __init__(self, directory: Path, binaries: Binaries, *, token: str) -> None:
        self.ca = ""
        self._directory = directory
        self._binaries = binaries
        self._token = token
        self._logs = Logs(directory / "logs")
        self._running: dict[str, Process] = {}

    async def start_api(self, *, port: int, network: str, emulated: str = "") -> str:
        """Start etcd and the API server; returns the URL once it is ready.

        Raises:
            GantryError: one of them ended, or the server was not ready in time.
        """
        self._prepare()
        self._spawn("etcd", etcd_command(self._binaries.etcd))
        binary = self._binaries.apiserver
        command = apiserver_command(binary, port=port, network=network, emulated=emulated)
        self._spawn("kube-apiserver", command)
        url = f"https://127.0.0.1:{port}"
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while not await self._ready(url):
                    self.check()
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise GantryError(
                f"kube-apiserver was not ready in {READY_TIMEOUT_S:g} s; see "
                f"{self.log_file('kube-apiserver')}."
            ) from None
        return url

    def start_manager(self, kubeconfig: Path) -> None:
        """Start the controllers."""
        command = manager_command(self._binaries.controller_manager, kubeconfig)
        self._spawn("kube-controller-manager", command)

    def _prepare(self) -> None:
        directory = self._directory
        directory.mkdir(mode=0o700, exist_ok=True)
        directory.chmod(0o700)
        (directory / "etcd").mkdir(mode=0o700, exist_ok=True)
        # A certificate lasts for a year only, so each start has its own.
        for stale in (*self.certificate, directory / "client:0", directory / "peer:0"):
            stale.unlink(missing_ok=True)
        key = directory / "signing-key.pem"
        if not key.exists():
            replace_file(key, new_signing_key(), mode=0o600)
        line = f'{self._token},gantry-local,gantry-local,"system:masters"\n'
        replace_file(directory / "tokens.csv", line.encode(), mode=0o600)

    def _spawn(self, name: str, command: list[str]) -> None:
        env = {key: os.environ[key] for key in ("PATH", "HOME", "TZ") if key in os.environ}
        log_file = self._logs.begin("api", name, name)
        launch = Launch(command, env)
        self._running[name] = Process(launch, directory=self._directory, log_file=log_file)

    async def _ready(self, url: str) -> bool:
        with contextlib.suppress(OSError, ssl.SSLError, aiohttp.ClientError, TimeoutError):
            ca = self.certificate[0].read_text(encoding="ascii")
            trust = ssl.create_default_context(cadata=ca)
            timeout = aiohttp.ClientTimeout(total=5)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{url}/readyz", ssl=trust) as answer,
            ):
                if answer.status == 200:
                    self.ca = ca
                    return True
        return False

    def check(self) -> None:
        """Raise GantryError when a program has ended."""
        for name, process in self._running.items():
            if not process.running:
                raise GantryError(
                    f"{name} ended with {process.exited.result()}; see {self.log_file(name)}."
                )

    @property
    def certificate(self) -> tuple[Path, Path]:
        """The API server's certificate and its key, for others that it talks to."""
        directory = self._directory / "certificates"
        return directory / "apiserver.crt", directory / "apiserver.key"

    def log_file(self, name: str) -> Path:
        """The log of a program."""
        return self._logs.current("api", name, name)

    async def run(self) -> None:
        """Until one of the programs ends, which is an error; logs are kept from growing."""
        while True:
            self.check()
            self._logs.trim()
            ends = [process.exited for process in self._running.values()]
            await asyncio.wait(ends, timeout=5.0, return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        """End all of them, etcd last."""
        etcd = self._running.pop("etcd", None)
        others = self._running.values()
        await asyncio.gather(*(process.stop(STOP_GRACE_S) for process in others))
        self._running.clear()
        if etcd is not None:
            await etcd.stop(STOP_GRACE_S)
