"""Names to addresses."""

import asyncio
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from gantry_protocol.errors import ResolveError
from gantry_protocol.hosts import HOSTS_VARIABLE, join_address, resolve, split_address


@pytest.fixture
def hosts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "hosts.json"
    monkeypatch.setenv(HOSTS_VARIABLE, str(path))
    return path


async def _no_dns(host: str, port: object, **_: object) -> list[Any]:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def test_an_address_stands_for_itself(hosts_file: Path) -> None:
    hosts_file.write_text("not even JSON")
    assert await resolve("127.0.0.9") == "127.0.0.9"
    assert await resolve("[::1]") == "::1"


async def test_the_file_wins_and_is_read_again_when_it_changes(hosts_file: Path) -> None:
    hosts_file.write_text(json.dumps({"gantry-controller-0.gantry.default.svc": "127.77.0.1"}))
    name = "Gantry-Controller-0.gantry.default.svc."
    assert await resolve(name) == "127.77.0.1"
    replacement = hosts_file.with_name("new")
    replacement.write_text(json.dumps({"gantry-controller-0.gantry.default.svc": "127.77.0.2"}))
    replacement.replace(hosts_file)
    assert await resolve(name) == "127.77.0.2"


async def test_a_name_that_left_the_file_is_asked_of_dns(
    hosts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", _no_dns)
    hosts_file.write_text(json.dumps({"pod-0": "127.77.0.1"}))
    assert await resolve("pod-0") == "127.77.0.1"
    hosts_file.unlink()
    with pytest.raises(ResolveError, match="'pod-0' has no address"):
        await resolve("pod-0")


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', "\x00"])
async def test_a_broken_file_is_named(hosts_file: Path, text: str) -> None:
    hosts_file.write_text(text)
    with pytest.raises(ResolveError, match=r"hosts\.json \(named by GANTRY_HOSTS\)"):
        await resolve("pod-0")


async def test_dns_prefers_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOSTS_VARIABLE, raising=False)

    async def both(host: str, port: object, **_: object) -> list[Any]:
        return [
            (socket.AF_INET6, 0, 0, "", ("::5", 0, 0, 0)),
            (socket.AF_INET, 0, 0, "", ("10.0.0.5", 0)),
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", both)
    assert await resolve("somewhere") == "10.0.0.5"


async def test_a_name_no_dns_can_carry_is_an_error_not_a_crash() -> None:
    with pytest.raises(ResolveError):
        await resolve("a" * 300 + ".é")


@pytest.mark.parametrize(
    ("address", "default", "parts"),
    [
        ("host:1", None, ("host", 1)),
        (" host:65535 ", None, ("host", 65535)),
        ("host", 9878, ("host", 9878)),
        ("[::1]:9878", None, ("::1", 9878)),
        ("[::1]", 9878, ("::1", 9878)),
        ("::1", 9878, ("::1", 9878)),
        ("10.0.0.1:10911", 5, ("10.0.0.1", 10911)),
    ],
)
def test_addresses_are_taken_apart(address: str, default: int | None, parts: tuple) -> None:
    assert split_address(address, default) == parts
    assert split_address(join_address(*parts)) == parts


@pytest.mark.parametrize(
    "address",
    ["", ":1", "host", "host:", "host:0", "host:65536", "host:x", "host:1²", "[::1]", "::1"],
)
def test_other_texts_are_refused(address: str) -> None:
    with pytest.raises(ResolveError, match="write host:port"):
        split_address(address)


async def test_the_file_is_not_read_twice_for_nothing(
    hosts_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts_file.write_text(json.dumps({"pod-0": "127.77.0.1"}))
    reads = []
    original = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, *rest: reads.append(self) or original(self, *rest)
    )
    for _ in range(3):
        assert await resolve("pod-0") == "127.77.0.1"
    assert reads == [hosts_file]
    os.utime(hosts_file, ns=(0, 0))
    assert await resolve("pod-0") == "127.77.0.1"
    assert len(reads) == 2
