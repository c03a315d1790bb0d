"""What people do wrong ends in one sentence and an exit code, and changes no file.

The processes are the real ones; what they refuse in detail is tested with each component.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.patience import PATIENCE_S

FREE_PORTS = {
    "controller": ("remoting", "nameserver", "raft", "http"),
    "broker": ("remoting", "ha", "http"),
}
OPEN = "--allow-unauthenticated"
REQUIRED = {
    "controller": (OPEN,),
    "broker": (OPEN, "--group", "orders", "--controllers", "127.0.0.1:1"),
}
BAD_INPUT, TRY_AGAIN = 2, 75
FIRST_BATCH = 64  # behind the segment's header; later batches prove that it was durable


def command(component: str, data_dir: Path, *args: str) -> list[str]:
    ports = [part for name in FREE_PORTS[component] for part in (f"--{name}-port", "0")]
    return [
        *(sys.executable, "-m", "gantry_cli", component, "--data-dir", str(data_dir)),
        *(*ports, *REQUIRED[component], *args),
    ]


def refused(component: str, data_dir: Path, *args: str) -> tuple[int, str]:
    """Exit code and last words of a process that must not start."""
    environment = {key: value for key, value in os.environ.items() if "GANTRY" not in key}
    done = subprocess.run(
        command(component, data_dir, *args),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.strip().splitlines()[-1]


@contextmanager
def running_controller(data_dir: Path, log: Path) -> Iterator[None]:
    """A quorum of one that has become its own leader."""
    with log.open("wb") as out, subprocess.Popen(command("controller", data_dir), stderr=out) as it:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while "role=leader" not in log.read_text():
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            it.send_signal(signal.SIGTERM)
            it.wait(timeout=PATIENCE_S)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("component", "option"),
    [(component, f"--{name}-port") for component, names in FREE_PORTS.items() for name in names],
)
def test_port_in_use_is_named(component: str, option: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        code, sentence = refused(component, tmp_path / "data", option, str(port))
    assert code == TRY_AGAIN
    assert f"Port {port} " in sentence
    assert "choose another port" in sentence


@pytest.mark.parametrize("component", ["controller", "broker"])
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--nonsense",), "--nonsense"),
        (("--http-port", "http"), "--http-port 'http'"),
        (("--bind", "everywhere"), "--bind 'everywhere'"),
        (("--config", "/does/not/exist.toml"), "/does/not/exist.toml cannot be read"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_wrong_setting_is_named(
    component: str, args: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    code, sentence = refused(component, tmp_path / "data", *args)
    assert code == BAD_INPUT
    assert words in sentence
    assert not (tmp_path / "data").exists()


def test_data_directory_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_controller(data, tmp_path / "log"):
        code, sentence = refused("broker", data, "--lock-wait-s", "0.2")
        assert code == TRY_AGAIN
        assert f"Another process still uses the data directory {data}" in sentence
    before = contents(data)
    for component, args, words in (
        ("broker", (), "kind is 'controller'"),
        ("controller", ("--cluster-uid", "another"), "cluster_uid is 'local'"),
    ):
        code, sentence = refused(component, data, *args)
        assert code == BAD_INPUT
        assert words in sentence
        assert str(data / "gantry.json") in sentence
    assert contents(data) == before


def test_directory_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_controller(data, tmp_path / "log"):
        pass
    identity = data / "gantry.json"
    identity.write_bytes(identity.read_bytes().replace(b'"format": 1', b'"format": 2'))
    before = contents(data)
    code, sentence = refused("controller", data)
    assert code == BAD_INPUT
    assert str(identity) in sentence
    assert contents(data) == before


def test_flipped_bit_in_the_controllers_log_is_named_and_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for run in range(2):  # the second run makes what the first one wrote durable for certain
        with running_controller(data, tmp_path / f"log-{run}"):
            pass
    (segment,) = (data / "raft").iterdir()
    with segment.open("r+b") as file:
        file.seek(FIRST_BATCH)
        (byte,) = file.read(1)
        file.seek(FIRST_BATCH)
        file.write(bytes((byte ^ 0x10,)))
    before = contents(data)
    code, sentence = refused("controller", data)
    assert code == BAD_INPUT
    assert str(segment) in sentence
    assert "at byte" in sentence
    assert contents(data) == before


@pytest.mark.parametrize("component", ["controller", "broker"])
def test_a_process_that_anybody_could_command_does_not_start(
    tmp_path: Path, component: str
) -> None:
    data = tmp_path / "data"
    code, sentence = refused(component, data, "--no-allow-unauthenticated")
    assert code == BAD_INPUT
    assert "has no quorum key" in sentence
    assert "--quorum-key-file" in sentence
    missing = tmp_path / "key"
    for content, why in ((None, "No such file"), ("", "is empty"), ("short", "is too short")):
        if content is not None:
            missing.write_text(content)
        code, sentence = refused(component, data, "--quorum-key-file", str(missing))
        assert code == BAD_INPUT
        assert str(missing) in sentence
        assert why in sentence
    assert not data.exists()


def test_certificate_that_cannot_be_shown_is_named(tmp_path: Path) -> None:
    """Of each kind of process one; what is wrong in detail is tested with the settings."""
    file = tmp_path / "tls.pem"
    file.write_text("nothing")
    pair = ("--tls-cert-file", str(file), "--tls-key-file", str(file))
    for component in ("controller", "broker"):
        code, said = refused(component, tmp_path / component, *pair)
        assert code == BAD_INPUT
        assert said.endswith(f"file {file} is no good: it holds no certificate in PEM.")
        assert not (tmp_path / component).exists()
    code, said = refused("broker", tmp_path / "broker", "--tls-mode", "enforcing", *pair)
    assert code == BAD_INPUT
    assert "tls_mode is enforcing without tls_ca_file" in said
