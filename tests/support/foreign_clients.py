"""Clients of RocketMQ in many languages: fetched and built once, outside the sources.

All that is built lies under ``build/interop``; Java's is ``support.java``'s. Each program prints
what its module says. Producers print alike, and a consumer's line ends with the message's body.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import java

ROOT = Path(__file__).resolve().parents[2]
INTEROP = ROOT / "tests/interop"
EXAMPLES = ROOT / "examples/clients"
BUILT = ROOT / "build/interop"


@dataclass(frozen=True)
class Programs:
    """How to start the programs of one client.

    Attributes:
        producer: takes name servers, topic, seconds; an example endpoints and topic.
        consumer: takes name servers, or endpoints, topic, consumer group.
    """

    producer: list[str]
    consumer: list[str]


def go() -> Programs:
    """rocketmq-client-go; Go itself fetches it, and knows what is built."""
    into = BUILT / "go"
    into.mkdir(parents=True, exist_ok=True)
    for name, package in (("producer", "."), ("consumer", "./consumer")):
        build = ["go", "build", "-o", str(into / name), package]
        subprocess.run(build, cwd=INTEROP / "go", check=True)
    return Programs([str(into / "producer")], [str(into / "consumer")])


def cpp() -> Programs:
    """rocketmq-client-cpp, as the wheel ``rocketmq`` brings it; an environment of its own."""
    python = _environment("cpp", INTEROP / "cpp")
    return Programs(
        [str(python), str(INTEROP / "cpp/producer.py")],
        [str(python), str(INTEROP / "cpp/consumer.py")],
    )


def python_grpc() -> list[str]:
    """rocketmq-python-client, which speaks gRPC: the beginning of a command."""
    python = _environment("python_grpc", EXAMPLES / "python")
    return [str(python), str(INTEROP / "python_grpc/client.py")]


def _environment(name: str, folder: Path) -> Path:
    """The Python of an environment with what this folder's ``requirements.txt`` asks for."""
    wanted = folder / "requirements.txt"
    into = BUILT / name
    python = into / "bin/python"
    with _once(into, wanted) as missing:
        if missing:
            subprocess.run([sys.executable, "-m", "venv", str(into)], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "--requirement", str(wanted)], check=True)
    return python


def node() -> Programs:
    """ali-ons."""
    into = _modules(INTEROP / "node")
    return Programs(
        ["node", str(into / "producer.js")],
        ["node", str(into / "consumer.js")],
    )


def node_grpc() -> list[str]:
    """rocketmq-client-nodejs, which speaks gRPC: the beginning of a command."""
    return ["node", str(_modules(EXAMPLES / "node", INTEROP / "node_grpc") / "client.js")]


def _modules(*folders: Path) -> Path:
    """A folder with copies of the programs of these, and the modules that the first asks for."""
    wanted = folders[0] / "package.json"
    into = BUILT / folders[-1].name
    with _once(into, wanted) as missing:
        if missing:
            shutil.copy(wanted, into)
            command = ["npm", "install", "--silent", "--no-package-lock", "--no-audit", "--no-fund"]
            subprocess.run(command, cwd=into, check=True)
    for program in (file for folder in folders for file in folder.glob("*.js")):
        shutil.copy(program, into)
    return into


def rust_grpc() -> list[str]:
    """The crate ``rocketmq``, which speaks gRPC: the beginning of a command."""
    return [str(_compiled(INTEROP / "rust_grpc") / "client")]


def go_grpc() -> list[str]:
    """rocketmq-clients' Go module, which speaks gRPC: the beginning of a command."""
    return [str(_built_in_go() / "client")]


def _built_in_go() -> Path:
    """Where the programs of the examples' module are, and the one that goes on until killed."""
    into, source = BUILT / "go_grpc", BUILT / "go_grpc/source"
    shutil.copytree(EXAMPLES / "go", source, dirs_exist_ok=True)
    shutil.copytree(INTEROP / "go_grpc", source / "client", dirs_exist_ok=True)
    build = ["go", "build", "-o", f"{into}/", "./producer", "./consumer", "./client"]
    subprocess.run(build, cwd=source, check=True)
    return into


def _compiled(crate: Path) -> Path:
    """Where the programs of a crate are.

    What Cargo compiles for a minute stays in the user's cache, for all checkouts.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    into, source = cache / "gantry/interop/rust", BUILT / "rust" / crate.name
    shutil.copytree(crate, source, dirs_exist_ok=True)
    build = ["cargo", "build", "--quiet", "--target-dir", str(into)]
    subprocess.run(build, cwd=source, check=True)
    return into / "debug"


def java_probe() -> Programs:
    """RocketMQ's Java client; Maven fetches it."""
    home = BUILT / "java"
    home.mkdir(parents=True, exist_ok=True)
    probe = ["java", "-cp", java.clients(), f"-Duser.home={home}", *java.SHORT_LIVED]
    probe.append("dev.gantry.interop.Probe")
    return Programs([*probe, "sends"], [*probe, "push"])


CLIENTS: dict[str, Callable[[], Programs]] = {"go": go, "cpp": cpp, "node": node}


def example(language: str) -> Programs:
    """The programs in ``examples/clients``."""
    folder = EXAMPLES / language
    match language:
        case "python":
            python = str(_environment("python_grpc", folder))
            return Programs(
                [python, str(folder / "producer.py")], [python, str(folder / "consumer.py")]
            )
        case "node":
            into = _modules(folder, INTEROP / "node_grpc")
            return Programs(
                ["node", str(into / "producer.js")], ["node", str(into / "consumer.js")]
            )
        case "rust":
            into = _compiled(folder)
            return Programs([str(into / "producer")], [str(into / "consumer")])
        case "go":
            into = _built_in_go()
            return Programs([str(into / "producer")], [str(into / "consumer")])
        case "java":
            command = ["java", "-cp", java.classpath(folder, BUILT / "java_example")]
            return Programs(
                [*command, str(folder / "Producer.java")], [*command, str(folder / "Consumer.java")]
            )
    raise ValueError(language)


GRPC_CLIENTS: dict[str, Callable[[], list[str]]] = {
    "python": python_grpc,
    "node": node_grpc,
    "rust": rust_grpc,
    "go": go_grpc,
}
"""Programs that take role, endpoints, topic, and pause in ms or consumer group; Java's beside."""

TOOLS = {
    "go": "go",
    "cpp": "python3",
    "java": "mvn",
    "node": "npm",
    "python": "python3",
    "rust": "cargo",
}
"""What builds the programs of each; without it they are not there."""


def missing(language: str) -> str:
    """What is not there to build a language's programs with; "" if nothing is.

    Cargo may be rustup's, which is there and works only for a user who has chosen a toolchain.
    """
    tool = TOOLS[language]
    if shutil.which(tool) is None:
        return f"{tool} is not installed"
    if tool != "cargo":
        return ""
    asked = subprocess.run([tool, "--version"], capture_output=True, check=False)
    return "" if asked.returncode == 0 else "no Rust toolchain is chosen"


@contextlib.asynccontextmanager
async def started(command: Sequence[str]) -> AsyncIterator[list[str]]:
    """A program that runs meanwhile, and the lines that it has printed so far."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    lines: list[str] = []
    reading = asyncio.create_task(_read(process.stdout, lines))
    try:
        yield lines
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading


async def _read(stream: asyncio.StreamReader, lines: list[str]) -> None:
    while line := await stream.readline():
        if line.endswith(b"\n"):
            lines.append(line.decode().strip())


@contextmanager
def _once(into: Path, wanted: Path) -> Iterator[bool]:
    """Whether ``into`` has yet to be made for this content of ``wanted``; one process at a time."""
    into.mkdir(parents=True, exist_ok=True)
    stamp = into / ".made-for"
    with (into / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = wanted.read_text()
        missing = not stamp.exists() or stamp.read_text() != text
        yield missing
        if missing:
            stamp.write_text(text)
