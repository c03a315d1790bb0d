"""The admin API of a controller process by TLS: the way to it, the refused, a new certificate."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gantry_protocol.quorum_key import write_key
from support.broker_processes import own_network
from support.certificates import MemberAuthority, Pair
from support.patience import PATIENCE_S
from support.tls_cluster import metric

TOKEN, URI, HTTP = "the admin token", "gantry://mq/controller", 9880
LIST = [sys.executable, "-m", "gantry_cli", "controllers", "list"]
pytestmark = pytest.mark.timeout(300)


class Lone:
    """A quorum of one process at an address of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ip = f"{own_network()}.1"
        self.authority = MemberAuthority(directory)
        self.pair = Pair(directory / "tls.crt", directory / "tls.key")
        self.token = directory / "token"
        self.token.write_text(TOKEN)
        self.log = directory / "log"
        self.renew()

    def renew(self) -> None:
        """A new certificate, in the same files."""
        self.authority.issue("c-0", URI, into=self.pair)

    @contextmanager
    def running(self, mode: str | None) -> Iterator[None]:
        """In this mode; None: without certificates."""
        settings: dict[str, object] = {
            "NAME": "c-0",
            "BIND": self.ip,
            "DATA_DIR": self.directory / "data",
            "ADMIN_TOKEN_FILE": self.token,
            "QUORUM_KEY_FILE": write_key(self.directory / "key"),
        }
        if mode is not None:
            settings |= {
                "MEMBER_TLS_CERT_FILE": self.pair.cert,
                "MEMBER_TLS_KEY_FILE": self.pair.key,
                "MEMBER_TLS_CA_FILE": self.authority.file,
                "MEMBER_TLS_MODE": mode,
            }
        env = own_environment() | {f"GANTRY_{key}": str(text) for key, text in settings.items()}
        command = [sys.executable, "-m", "gantry_cli", "controller"]
        with self.log.open("wb") as log, subprocess.Popen(command, env=env, stderr=log) as process:
            try:
                until(self.ready, self.log.read_text)
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=PATIENCE_S)

    def ready(self) -> bool:
        """As a kubelet sees it: without TLS."""
        try:
            return self.plain("/readyz")[0] == 200
        except OSError:
            return False

    def plain(self, path: str) -> tuple[int, str]:
        """The answer to whoever asks without TLS, and shows the token."""
        request = urllib.request.Request(
            f"http://{self.ip}:{HTTP}{path}", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def gantry(self, *options: object, token: Path | None = None) -> tuple[int, str, str]:
        """`gantry controllers list`, asked here: its end and its words."""
        where = ["--controllers", self.ip, "--admin-token-file", str(token or self.token)]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            done = subprocess.run(
                [*LIST, *where, *map(str, options)],
                capture_output=True,
                text=True,
                check=False,
                env=own_environment(),
                timeout=PATIENCE_S,
            )
            assert "Traceback" not in done.stderr
            assert TOKEN not in done.stderr
            is_late = "did not answer within" in done.stderr  # on a busy machine
            if not is_late or time.monotonic() > deadline:
                return done.returncode, done.stdout, done.stderr

    def serial(self) -> str:
        """Of the certificate that is shown now."""
        context = ssl.create_default_context(cafile=str(self.authority.file))
        context.check_hostname = False
        with (
            socket.create_connection((self.ip, HTTP), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain) as secure,
        ):
            shown = secure.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])

    def figure(self, name: str) -> float:
        """A metric of TLS between members."""
        return metric(self.ip, HTTP, f"gantry_member_tls_{name}")


def own_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if "GANTRY" not in key}


def until(condition: Callable[[], bool], why: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def test_admin_api_from_none_to_enforced(tmp_path: Path) -> None:
    """In the order of a migration; from its middle on both ways of asking are answered."""
    lone = Lone(tmp_path)
    by_tls = ["--member-tls-ca-file", lone.authority.file, "--member-tls-domain", "mq"]
    with lone.running(None):
        assert lone.gantry()[0] == 0
        code, _, said = lone.gantry(*by_tls)
        assert (code, said.count("\n")) == (2, 1)
        assert f"{lone.ip}:{HTTP} does not agree to TLS" in said

    with lone.running("permissive"):
        assert lone.plain("/v1/groups")[0] == 200
        for options, is_counted in (([], True), (by_tls, False)):
            before = lone.figure("plain_accepted_total")
            code, out, said = lone.gantry(*options)
            assert (code, said) == (0, "")
            assert "leader" in out
            assert (lone.figure("plain_accepted_total") > before > 0) == is_counted

    with lone.running("enforcing"):
        for path in ("/livez", "/readyz", "/metrics"):
            assert lone.plain(path)[0] == 200
        status, body = lone.plain("/v1/groups")
        assert (status, "TLS_NEEDED" in body) == (403, True)

        code, out, said = lone.gantry(*by_tls)
        assert (code, said) == (0, "")
        assert "leader" in out
        code, out, said = lone.gantry(*by_tls, "--json")
        assert f'"leaderHttp":"https://{lone.ip}:{HTTP}"' in out.replace(": ", ":")

        stranger = MemberAuthority(tmp_path, "strangers").file
        wrong = tmp_path / "wrong"
        wrong.write_text("another token")
        for options, words in (
            ([], "give commands of gantry --member-tls-ca-file"),
            (["--member-tls-ca-file", stranger], "its certificate is not believed"),
            (
                ["--member-tls-ca-file", lone.authority.file, "--member-tls-domain", "b"],
                f"it is for {URI}, and not for gantry://b/controller",
            ),
        ):
            code, out, said = lone.gantry(*options)
            assert (code, out) == (2, "")
            assert words in said
            assert said.count("\n") == 1
        code, _, said = lone.gantry(*by_tls, token=wrong)
        assert (code, "valid bearer token is needed" in said) == (2, True)

        before = lone.serial()
        lone.renew()
        until(lambda: lone.serial() != before)
        assert lone.gantry(*by_tls)[0] == 0
        assert lone.figure("reload_failures_total") == 0
        assert lone.figure("plain_accepted_total") == 0
        assert lone.figure('refused_total{reason="plain"}') >= 2


def test_broker_of_the_quorum_cannot_stand_in_for_its_controllers(tmp_path: Path) -> None:
    """It has a certificate of the same authority, and would be shown the token."""
    lone = Lone(tmp_path)
    broker = lone.authority.issue("orders", "gantry://mq/broker/prod/orders")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(broker.cert, broker.key)
    heard: list[bytes] = []
    with socket.create_server((lone.ip, HTTP)) as listener:
        asked = subprocess.Popen(
            [
                *LIST,
                *("--controllers", lone.ip, "--admin-token-file", str(lone.token)),
                *("--member-tls-ca-file", str(lone.authority.file)),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env=own_environment(),
        )
        while asked.poll() is None:
            listener.settimeout(0.2)
            try:
                plain, _ = listener.accept()
            except TimeoutError:
                continue
            with plain:
                plain.settimeout(PATIENCE_S)
                try:
                    with context.wrap_socket(plain, server_side=True) as secure:
                        heard.append(secure.recv(1000))
                except OSError as error:
                    heard.append(type(error).__name__.encode())
        _, said = asked.communicate(timeout=PATIENCE_S)
    assert asked.returncode == 2
    assert (
        "it is for gantry://mq/broker/prod/orders, and not for gantry://DOMAIN/controller" in said
    )
    assert heard, "it was asked"
    assert TOKEN.encode() not in b"".join(heard)
