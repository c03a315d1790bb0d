"""Listeners with TLS of their own beside plain ports for those inside: real processes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.tls.process import NO_TLS, Tls
from gantry_protocol.tls.settings import TlsFiles, TlsMode, TlsSettings
from support.broker_cluster import send_command
from support.broker_processes import Group
from support.certificates import Authority
from support.client_kills import TOPIC
from support.json_summary import gantry
from support.outside_group import Outside
from support.patience import PATIENCE_S

pytestmark = pytest.mark.timeout(600)

PUBLIC = "mq.example.com"
DOOR, BROKER = 10930, 10940  # of the listener outside; of the listener later, the next ones


class World:
    """A group without TLS inside, and two listeners with it: one whose certificate is late."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        self.outside, self.later = directory / "outside", directory / "later"
        self.outside.mkdir()
        self.renew(self.outside)
        self.group = Group(directory)
        own = f"outside=enforcing:{self.outside},later=enforcing:{self.later}"
        self.group.env = {
            "GANTRY_LISTENERS": f"outside={BROKER},later={BROKER + 1}",
            "GANTRY_LISTENER_TLS": own,
        }
        self.group.door_env = self.group.env | {
            "GANTRY_LISTENERS": f"outside={DOOR},later={DOOR + 1}"
        }
        pair = self.authority.issue("nameserver")
        names = TlsSettings(
            tls_cert_file=pair.cert, tls_key_file=pair.key, tls_mode=TlsMode.ENFORCING
        )
        self.way_in = Outside(self.group, Tls(names), DOOR, BROKER)

    def renew(self, directory: Path) -> str:
        """A new certificate there; what it is shown as."""
        directory.mkdir(exist_ok=True)
        fresh = self.authority.issue(PUBLIC)
        for file, name in ((fresh.key, "tls.key"), (fresh.cert, "tls.crt")):
            file.replace(directory / name)
        der = ssl.PEM_cert_to_DER_cert((directory / "tls.crt").read_text())
        return ssl.DER_cert_to_PEM_cert(der)

    async def shown(self, port: int) -> set[str]:
        """The certificates of all pods there; those that show none are left out."""
        found = set()
        for ip in self.group.processes:
            try:
                found.add(await asyncio.to_thread(ssl.get_server_certificate, (ip, port)))
            except OSError:
                found.add("")
        return found

    async def show(self, port: int, wished: str) -> None:
        """Until all pods show this certificate there."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.shown(port) != {wished}:
                await asyncio.sleep(0.2)

    async def ask(
        self, ip: str, port: int, command: RemotingCommand, *, secure: bool
    ) -> RemotingCommand:
        believed = TlsFiles(tls_ca_file=self.authority.file, tls_server_name=PUBLIC)
        client = RemotingClient(tls=Tls(believed) if secure else NO_TLS)
        try:
            await client.connect(f"{ip}:{port}", PATIENCE_S)
            return await client.call(command, PATIENCE_S)
        finally:
            client.close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    try:
        await made.way_in.start()
        yield made
    finally:
        await made.way_in.stop()


async def test_each_listener_has_its_tls_and_those_inside_have_none(world: World) -> None:
    master = world.group.master_ip
    hello = request(105, {"topic": TOPIC})
    for ip in world.group.processes:
        for port in (10911, 10910):
            answer = await world.ask(ip, port, send_command(b"plain"), secure=False)
            assert answer.code == 0, f"{ip}:{port} is plain inside: {answer}"
            with pytest.raises(RemotingError):
                await world.ask(ip, port, hello, secure=True)
        for port in (DOOR, BROKER):
            answer = await world.ask(ip, port, send_command(b"secure"), secure=True)
            assert answer.code == 0, f"{ip}:{port} leads to the master by TLS: {answer}"
            with pytest.raises(RemotingError):
                await world.ask(ip, port, hello, secure=False)
        for port in (DOOR + 1, BROKER + 1):
            for secure in (True, False):
                with pytest.raises(RemotingError):
                    await world.ask(ip, port, hello, secure=secure)

    door = world.group.doors[master].log.read_text("utf-8")
    assert f"listeners=outside={DOOR},later={DOOR + 1}" in door.replace('"', "")
    said = world.group.processes[master].said
    assert f"listeners=outside={BROKER},later={BROKER + 1}" in said.replace('"', "")

    # A client from outside knows the name service and the authority, and nothing else.
    options = ("--tls-ca-file", str(world.authority.file))
    way_in = ("produce", TOPIC, "--count", "40", "--nameserver", world.way_in.way_in)
    code, said = await gantry(*way_in, *options)
    assert (code, said["acknowledged"]) == (0, 40)
    assert world.way_in.come > 0
    await world.group.kill(master)
    code, said = await gantry(*way_in, *options)
    assert (code, said["acknowledged"]) == (0, 40), "doors lead to the next master"


async def test_a_new_certificate_is_taken_without_a_restart(world: World) -> None:
    first = {(await world.shown(port)).pop() for port in (DOOR, BROKER)}
    assert len(first) == 1
    second = world.renew(world.outside)
    assert {second} != first
    for port in (DOOR, BROKER):
        await world.show(port, second)
    (world.outside / "tls.crt").write_text("half a certificate")
    await asyncio.sleep(1.5)  # one look later
    for port in (DOOR, BROKER):
        assert await world.shown(port) == {second}, "the last good one stays"

    # That of the other listener comes late, and its ports wait for it.
    assert await world.shown(DOOR + 1) == {""}
    third = world.renew(world.later)
    for port in (DOOR + 1, BROKER + 1):
        await world.show(port, third)
    running = [one.process.poll() for one in world.group.processes.values()]
    running += [door.process.poll() for door in world.group.doors.values()]
    assert set(running) == {None}
    _, page = await world.group.doors[world.group.master_ip].get("/metrics")
    figures = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[:1] != "#")
    name = "gantry_listener_tls_reload_failures_total"
    assert float(figures[f'{name}{{listener="outside"}}']) == 1
    assert float(figures[f'{name}{{listener="later"}}']) == 0
    ends = "gantry_listener_tls_certificate_expires_seconds"
    assert float(figures[f'{ends}{{listener="later"}}']) > 1.7e9
