"""Shards at a listener with TLS of its own: real brokers, as the operator builds and declares them.

Those inside speak plain meanwhile. Relays stand for node ports, and lead where the Services do.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from gantry_operator import names
from gantry_operator.builders import broker_objects
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.tls.process import NO_TLS, Tls
from gantry_protocol.tls.settings import TlsFiles
from integration.broker.test_shard_listeners import NAMES, OF_ALL, SHARDS, World, sent_to
from support.broker_cluster import send_command
from support.certificates import Authority, Pair
from support.client_kills import TOPIC
from support.json_summary import gantry
from support.patience import PATIENCE_S
from unit.operator.world import brokers, controllers

pytestmark = pytest.mark.timeout(600)

PUBLIC = "mq.example.com"
LISTENER = {"name": "outside", "type": "NodePort", "tls": {"secretName": "public"}}


def settings_of_pods(secret: Path) -> dict[str, str]:
    """The brokers' settings of listeners, as the operator writes them; the Secret is elsewhere."""
    wish = brokers(shards=SHARDS, clients={"listeners": [LISTENER]})
    made = broker_objects(wish, controllers(), image="i", replicas=3, shards=SHARDS)
    (container,) = made[-1]["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value", "") for one in container["env"]}
    found = {name: env[name] for name in ("GANTRY_LISTENERS", "GANTRY_LISTENER_TLS")}
    mounted = f"{names.LISTENER_TLS_DIR}/outside"
    return {name: text.replace(mounted, str(secret)) for name, text in found.items()}


class SecureWorld(World):
    """The same world, and the Secret of its listener."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        self.secret = directory / "secret"
        self._versions = 0
        self.first = self.renew()
        self.tls = Tls(TlsFiles(tls_ca_file=self.authority.file, tls_server_name=PUBLIC))
        super().__init__(
            directory,
            LISTENER,
            settings_of_pods(self.secret),
            listener_tls=f"outside=enforcing:{self.secret}",
        )

    def renew(self, *, key_of: Pair | None = None) -> str:
        """A new pair in the Secret, or another one's key; the certificate as ports show it.

        Both files change at once, by a link to another directory, as a kubelet does it.
        """
        self._versions += 1
        version = self.secret.with_name(f"secret-{self._versions}")
        version.mkdir()
        pair = self.authority.issue(PUBLIC, into=Pair(version / "tls.crt", version / "tls.key"))
        if key_of is not None:
            key_of.key.replace(pair.key)
        link = self.secret.with_name("next")
        link.symlink_to(version.name)
        link.replace(self.secret)
        der = ssl.PEM_cert_to_DER_cert((self.secret / "tls.crt").read_text())
        return ssl.DER_cert_to_PEM_cert(der)

    async def shown(self) -> set[str]:
        """The certificates of all ports of the listener; "" for none."""
        found = set()
        for place in ((ip, self.target(n)) for ip in self.ips for n in range(SHARDS)):
            try:
                found.add(await asyncio.to_thread(ssl.get_server_certificate, place))
            except OSError:
                found.add("")
        return found

    async def show(self, wished: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.shown() != {wished}:
                await asyncio.sleep(0.2)

    async def figure(self, ip: str, name: str) -> float:
        """One of the metrics of the listener."""
        url = f"http://{ip}:10913/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            lines = (await answer.text()).splitlines()
        key = f'gantry_listener_tls_{name}{{listener="outside"}} '
        return next(float(line.removeprefix(key)) for line in lines if line.startswith(key))

    def running(self) -> bool:
        return all(one.process.poll() is None for one in self.processes)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[SecureWorld]:
    made = SecureWorld(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def ask(address: str, tls: Tls) -> int:
    client = RemotingClient(tls=tls)
    try:
        await client.connect(address, PATIENCE_S)
        answer = await client.call(send_command(b"asked"), PATIENCE_S)
        return answer.code
    finally:
        client.close()


async def test_each_shard_is_reached_by_tls_at_a_port_of_its_own(world: SecureWorld) -> None:
    await world.until_whole()
    await world.declare()
    masters = {name: await world.master(name) for name in NAMES}
    wanted = {
        name: f"{world.ips[masters[name]]}:{OF_ALL + index}" for index, name in enumerate(NAMES)
    }
    assert await world.route(world.tls) == wanted
    with pytest.raises(RemotingError):
        await world.route()
    for name, address in wanted.items():
        assert await sent_to(address, world.tls) == name
        with pytest.raises(RemotingError):
            await ask(address, NO_TLS)
        inside = f"{world.ips[masters[name]]}:{names.shard_port(name)}"
        assert await ask(inside, NO_TLS) == 0, "those inside have none"
        with pytest.raises(RemotingError):
            await ask(inside, world.tls)

    # A client from outside knows the name service and the authority, and nothing else.
    controller = await world.quorum.led()
    way_in = f"127.0.0.1:{controller.ports['listener-outside']}"
    options = ("--nameserver", way_in, "--tls-ca-file", str(world.authority.file))
    code, said = await gantry("produce", TOPIC, "--count", "40", *options)
    assert (code, said["acknowledged"]) == (0, 40)

    killed = masters[NAMES[0]]
    world.kill(killed)
    for name in NAMES:
        async with asyncio.timeout(PATIENCE_S):
            while await world.master(name) in (-1, killed):
                await asyncio.sleep(0.05)
    for name, address in (await world.route(world.tls)).items():
        assert await sent_to(address, world.tls) == name


async def test_all_shards_take_a_new_certificate_and_keep_a_good_one(world: SecureWorld) -> None:
    await world.show(world.first)
    second = world.renew()
    assert second != world.first
    await world.show(second)

    # A key of another certificate, as a hand that copies the wrong file leaves it.
    world.renew(key_of=world.authority.issue("other"))
    for ip in world.ips:
        async with asyncio.timeout(PATIENCE_S):
            while await world.figure(ip, "reload_failures_total") < 1:
                await world.shown()
                await asyncio.sleep(0.2)
    assert await world.shown() == {second}, "the last good one stays"
    for process in world.processes:
        assert "is not that of the certificate" in process.said
        assert "PRIVATE KEY" not in process.said

    third = world.renew()
    await world.show(third)
    for ip in world.ips:
        assert await world.figure(ip, "reload_failures_total") == 1
    assert world.running(), "nothing restarted"


async def test_a_process_begins_with_a_key_of_another_certificate(tmp_path: Path) -> None:
    """Those inside are served; the listener's ports take the good pair when it comes."""
    world = SecureWorld(tmp_path)
    world.renew(key_of=world.authority.issue("other"))
    try:
        await world.start()
        await world.until_whole()
        assert await world.shown() == {""}
        name = NAMES[0]
        inside = f"{world.ips[await world.master(name)]}:{names.shard_port(name)}"
        assert await sent_to(inside) == name
        await world.show(world.renew())
        assert world.running()
    finally:
        await world.stop()


def test_the_ports_are_the_operators() -> None:
    found = settings_of_pods(Path("/s"))
    assert found == {
        "GANTRY_LISTENERS": "outside=11200",
        "GANTRY_LISTENER_TLS": "outside=enforcing:/s",
    }
