"""A whole cluster of the product: controllers, broker groups and clients, each in its process.

Addresses: controllers are 10.0.1.N, brokers 10.0.2.N (each with a door beside it if there are any),
fronts 10.0.3.N, clients 10.0.9.N. Whoever ends or is killed is started again by the
machine after a while, as a kubelet does it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import shutil
import signal
import tempfile
from functools import partial
from http import HTTPStatus
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import gantry_broker.door.server
import gantry_broker.front.server
import gantry_broker.host.server
import gantry_controller.server
from gantry_broker.door.settings import DOOR_PORT, DoorSettings
from gantry_broker.front.settings import FIRST_PORT, FrontSettings
from gantry_broker.host.settings import REMOTING_PORT, BrokerSettings
from gantry_cli.client.session import session
from gantry_cli.client.topics import create_topic
from gantry_controller.settings import ControllerSettings
from gantry_protocol.errors import GantryError
from gantry_protocol.process.runtime import Main, _operating_error, _Supervisor
from sim.kernel.disk import DiskOptions
from sim.kernel.network import NetworkOptions
from sim.kernel.world import MS, SECOND, Violation, World
from sim.product import loop as loops
from sim.product.bindings import bound
from sim.product.bucket import Bucket, BucketOptions
from sim.product.files import Volume
from sim.product.logs import Logs
from sim.product.machines import Machine, Process, enter_world
from sim.product.tcp import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from gantry_protocol.process.live_settings import SettingsFile

CLUSTER = "c"
GROUP = "g"
TOKEN = "token-of-the-simulated-quorum"
SEGMENT_BYTES = 64 * 1024
STORE_PORT = 10915
MANY_PORT = 21_000  # of the first group of many
SERVICE = "10.0.4.1"  # where clients are sent if not to the master itself; others have the next
LOOK_US = 20 * MS
CONTROLLER_HTTP, BROKER_HTTP = 9880, 10913


class Node:
    """A program that its machine keeps running.

    Attributes:
        process: its present life, or None.
        wanted: whether it is started again when it ends.
        exits: how its lives ended by themselves.
    """

    def __init__(self, cluster: Cluster, machine: Machine, name: str, program: Program) -> None:
        self.cluster = cluster
        self.machine = machine
        self.name = name
        self.process: Process | None = None
        self.wanted = True
        self.exits: list[BaseException | None] = []
        self._program = program

    def boot(self) -> None:
        """Start it, unless it runs or has no power."""
        if not self.wanted or not self.machine.is_up or self.is_running:
            return
        rng = self.machine.world.stream(f"drift/{self.name}/{len(self.exits)}")
        self.process = Process(
            self.machine,
            self.name,
            lambda: self._program(self),
            exited=self._exited,
            drift=rng.uniform(-self.cluster.drift, self.cluster.drift),
        )
        self.process.last_look = self.cluster.look

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()

    def terminate(self) -> None:
        """SIGTERM."""
        if self.process is not None and not self.process.is_dead:
            self.process.loop.signal(signal.SIGTERM)

    def _exited(self, process: Process, error: BaseException | None) -> None:
        self.exits.append(error)
        foreseen = isinstance(error, asyncio.CancelledError) or _operating_error(error)
        if error is not None and not foreseen:
            raise Violation(f"{self.name} ended with a programmer's error") from error
        self.cluster.node_exited(self, error)


if TYPE_CHECKING:
    Program = Callable[[Node], Coroutine[Any, Any, None]]


class Cluster:
    """See the module.

    Args:
        world: of the run.
        controllers, brokers: how many.
        doors: whether there is one beside each broker, to which clients are sent.
        fronts: how many fronts serve clients, from the stores of brokers where they can.
        groups: names of the broker groups, all of them in each broker.
        late: those at the end that nobody has yet.
        keyed: whether controllers and brokers show each other the quorum's key.

    Attributes:
        drift: how far the rates of monotonic clocks differ.
        restart_us: least and greatest time until a process that ended is started again.
    """

    network_class = Network
    more_faults: Mapping[str, Callable[[Any, Any], None]] = {}

    def __init__(
        self,
        world: World,
        *,
        controllers: int = 3,
        brokers: int = 3,
        doors: bool = False,
        fronts: int = 0,
        groups: Sequence[str] = (GROUP,),
        late: Sequence[str] = (),
        keyed: bool = False,
        min_in_sync: int = 2,
        network: NetworkOptions | None = None,
        disk: DiskOptions | None = None,
        drift: float = 0.0,
        broker_settings: dict[str, Any] | None = None,
        controller_settings: dict[str, Any] | None = None,
        front_settings: dict[str, Any] | None = None,
        bucket: BucketOptions | None = None,
    ) -> None:
        self.world = world
        self.drift = drift
        self.restart_us = (200 * MS, 1_500 * MS)
        self.is_at_peace = False
        self.looks: list[Callable[[], None]] = []  # of watches, besides those by the clock
        self.is_set_up = False  # groups and topics are made
        self.flipped: dict[str, set[int]] = {}  # bytes of logs that rotted, by node
        self.late = set(late)
        self.left: set[str] = set()  # groups that nobody is sent to any more
        self.put_back: dict[str, tuple[int, int]] = {}  # node: epochs when its volume became older
        self.logs = Logs(self)
        self._starts: dict[tuple[str, int], int] = {}
        self.topics = ["orders"]
        self.replicas = brokers
        self.min_in_sync = min_in_sync
        self.network = self.network_class(self.world, network or NetworkOptions())
        self.network.bucket = Bucket(world, bucket or BucketOptions())
        self.root = Path(tempfile.mkdtemp(prefix="gantry-sim-", dir="/dev/shm"))
        self._disk = disk or DiskOptions()
        self._rng = self.world.stream("cluster")
        self._broker_settings = broker_settings or {}
        self._controller_settings = controller_settings or {}
        self._front_settings = front_settings or {}
        self.groups = list(groups)
        (self.root / "token").write_text(TOKEN + "\n")
        self._key: dict[str, Any] = {"allow_unauthenticated": True}
        if keyed:
            (self.root / "key").write_text(TOKEN + "\n")
            self._key = {"quorum_key_file": self.root / "key"}
        self.controllers = [
            self._node(f"10.0.1.{number}", f"controller-{number - 1}", self._controller)
            for number in range(1, controllers + 1)
        ]
        self.brokers = [
            self._node(f"10.0.2.{number}", f"broker-{number - 1}", self._broker)
            for number in range(1, brokers + 1)
        ]
        self.doors = [
            Node(self, broker.machine, f"door-{number}", self._door)
            for number, broker in enumerate(self.brokers if doors else ())
        ]
        self.fronts = [
            self._node(f"10.0.3.{number}", f"front-{number - 1}", self._front)
            for number in range(1, fronts + 1)
        ]
        self.operators: list[Node] = []
        self.rejoins: set[str] = set()  # controllers that are started with --rejoin
        self.clients: list[Node] = []
        self._services: dict[str, str] = {}  # addresses, by group
        for place, name in enumerate(self.groups if doors or fronts else ()):
            self._services[name] = str(IPv4Address(SERVICE) + place)
            self.network.services[self._services[name]] = partial(self._service, place)

    # ---- nodes

    def _node(self, address: str, name: str, program: Program) -> Node:
        options = DiskOptions(**vars(self._disk))
        machine = Machine(
            self.world,
            self.network,
            address,
            Volume(self.world, self.root, name, options),
        )
        return Node(self, machine, name, program)

    def client(self, name: str, program: Program) -> Node:
        """A process beside the cluster that is not started again."""
        node = self._node(f"10.0.9.{len(self.clients) + 1}", name, program)
        self.clients.append(node)
        return node

    @property
    def nodes(self) -> list[Node]:
        return [*self.controllers, *self.brokers, *self.doors, *self.fronts]

    @property
    def name_servers(self) -> list[str]:
        return [f"{node.machine.address}:9876" for node in self.controllers]

    async def _controller(self, node: Node) -> None:
        number = self.controllers.index(node) + 1
        settings = ControllerSettings(
            name=node.name,
            node_id=number,
            peers=",".join(
                f"{index}={other.machine.address}"
                for index, other in enumerate(self.controllers, start=1)
            ),
            bind=node.machine.address,
            data_dir=node.machine.directory / "data",
            admin_token_file=self.root / "token",
            rejoin=node.name in self.rejoins,
            **self._key,
            **self._controller_settings,
        )
        await supervised(partial(gantry_controller.server.serve, settings))

    async def _broker(self, node: Node) -> None:
        hosted: dict[str, Any] = {"group": self.groups[0]}
        if self.hosts_many:
            there = [name for name in self.groups if name not in self.late]
            hosted = {"groups": there, "remoting_port": MANY_PORT}
        flags = {
            "name": node.name,
            "cluster": CLUSTER,
            "controllers": self._controller_addresses,
            "bind": node.machine.address,
            "data_dir": node.machine.directory / "data",
            **hosted,
            **self._key,
            "log_segment_bytes": SEGMENT_BYTES,
            "store_port": STORE_PORT if self.fronts else None,
        }
        settings, file = self.settings_of(flags, {"disk_spare_bytes": 0, **self._broker_settings})
        await supervised(partial(gantry_broker.host.server.serve, settings, file=file))

    def settings_of(
        self, flags: dict[str, Any], more: dict[str, Any]
    ) -> tuple[BrokerSettings, SettingsFile[BrokerSettings] | None]:
        """What a broker begins with, and the file where other settings may come from."""
        return BrokerSettings(**flags, **more), None

    async def _door(self, node: Node) -> None:
        settings = DoorSettings(
            name=node.name,
            group=GROUP,
            cluster=CLUSTER,
            controllers=self._controller_addresses,
            bind=node.machine.address,
        )
        await supervised(partial(gantry_broker.door.server.serve, settings))

    async def _front(self, node: Node) -> None:
        settings = FrontSettings(
            name=node.name,
            cluster=CLUSTER,
            controllers=self._controller_addresses,
            bind=node.machine.address,
            store_port=STORE_PORT,
            **self._key,
            **self._front_settings,
        )
        await supervised(partial(gantry_broker.front.server.serve, settings))

    def _service(self, place: int) -> list[tuple[str, int]]:
        """Where a group's Service leads: who is ready, and sometimes who was so a moment ago.

        A front has a port for each group of the cluster, by their names.
        """
        nodes = self.doors or self.fronts
        ready = [node for node in nodes if self._is_ready(node)]
        if not ready or self._rng.random() < 0.1:
            ready = nodes
        port = DOOR_PORT if self.doors else FIRST_PORT + place
        return [(node.machine.address, port) for node in ready]

    def _is_ready(self, node: Node) -> bool:
        server = self._object(node, "DoorServer" if self.doors else "FrontServer")
        return server is not None and bool(server.ready()[0])

    @property
    def _controller_addresses(self) -> list[str]:
        return [f"{node.machine.address}:9878" for node in self.controllers]

    async def _administrator(self, node: Node) -> None:
        """Declares the groups, starts who serves, and makes topics."""
        if not self.brokers:
            return
        for name in self.groups:
            if name not in self.late:
                await self.declare(name)
        for node in (*self.brokers, *self.doors, *self.fronts):
            self.world.after(self._rng.randrange(300 * MS), node.boot)
        while self.late and not self.is_whole:
            await asyncio.sleep(0.1)  # nobody else is to come after the topics
        async with session(self.name_servers) as client:
            for topic in self.topics:
                while True:
                    try:
                        await create_topic(client, topic, queues=2, cluster=CLUSTER)
                        break
                    except GantryError:
                        await asyncio.sleep(0.2)
        self.is_set_up = True

    def uid(self, name: str) -> str:
        """Of a group's declaration."""
        return f"u{1 + self.groups.index(name)}"

    async def declare(self, name: str) -> None:
        """Have a group, as the operator does, until some controller takes it."""
        service = self._services.get(name)
        wish = {
            "uid": self.uid(name),
            "replicas": self.replicas,
            "minInSyncReplicas": self.min_in_sync,
            "routeAddress": f"{service}:{REMOTING_PORT}" if service else None,
        }
        turn = 0
        while True:
            address = self.controllers[turn % len(self.controllers)].machine.address
            turn += 1
            try:
                async with asyncio.timeout(1.0):
                    status, _ = await http(address, "PUT", f"/v1/groups/{CLUSTER}/{name}", wish)
            except (OSError, EOFError):  # TimeoutError is one
                status = 0
            if status == 200:
                return
            await asyncio.sleep(0.2)

    # ---- what the product's own objects say

    @property
    def hosts_many(self) -> bool:
        """Whether each broker is in several groups."""
        return len(self.groups) > 1

    def store_of(self, node: Node, name: str) -> Path:
        """Where a broker keeps the log of one of its groups."""
        data = node.machine.directory / "data"
        return (data / "groups" / name if self.hosts_many else data) / "store"

    def group_of(self, node: Node, name: str | None = None) -> Any:
        """The ``ReplicationGroup`` of a broker, of its first group; None while it has none."""
        server = self._object(node, "BrokerServer")
        place = 0 if name is None else self.groups.index(name)
        if server is None or place >= len(server.hosted):
            return None
        return server.hosted[place].group

    def _has_lost_a_group(self, node: Node) -> bool:
        server = self._object(node, "BrokerServer")
        return server is not None and any(hosted.failure.done() for hosted in server.hosted)

    def front_of(self, node: Node) -> Any:
        """The ``FrontServer`` of a node; None while it has none."""
        return self._object(node, "FrontServer")

    def controller_of(self, node: Node) -> Any:
        """The ``Controller`` of a node; None while it has none."""
        return self._object(node, "Controller")

    def _object(self, node: Node, name: str) -> Any:
        process = node.process
        return None if process is None or process.is_dead else process.globals.get(name)

    @property
    def has_one_state(self) -> bool:
        """Every controller has applied what every other one has."""
        found = [self.controller_of(node) for node in self.controllers]
        return None not in found and len({one.machine.state.index for one in found}) == 1

    def first_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that a group's queue begins with; 0 but for segments of mapped ones."""
        for controller in map(self.controller_of, self.controllers):
            known = (
                None if controller is None else controller.machine.state.queue_map(CLUSTER, topic)
            )
            for queue in known.queues if known is not None else ():
                for segment in queue.segments:
                    if segment.queue_id == queue_id:
                        self._starts[topic, queue_id] = segment.start
        return self._starts.get((topic, queue_id), 0)

    def master(self, name: str | None = None) -> Node | None:
        """Who serves the newest epoch of a group, of the first one."""
        serving = []
        for node in self.brokers:
            group = self.group_of(node, name)
            if group is not None and group.core is not None and group.core.serving is not None:
                serving.append((int(group.core.serving.epoch), node))
        return max(serving, key=lambda pair: pair[0])[1] if serving else None

    @property
    def is_whole(self) -> bool:
        """Everybody runs, the masters serve, and their sets have everybody in them."""
        return all(node.is_running for node in self.nodes) and all(
            self._stands(name) for name in self.groups if self.has_clients(name)
        )

    def has_clients(self, name: str) -> bool:
        """Whether clients are sent to a group."""
        return name not in self.late | self.left

    def _stands(self, name: str) -> bool:
        master = self.master(name)
        if master is None:
            return False
        group = self.group_of(master, name)
        return group.core.serving.in_sync == self.replicas and bool(group.serving)

    @property
    def clocks_agree(self) -> bool:
        """Whether nobody's wall clock is set: times of two masters mean something only then."""
        return not any(node.machine.wall_offset_s for node in (*self.brokers, *self.fronts))

    def may_lose(self, node: Node) -> bool:
        """Whether the volume of ``node`` is one too many just now."""
        master = self.master()
        if master is None or node is master or not self.is_whole:
            return False
        if self.hosts_many:
            return False  # one member of another group may be its master
        log = self.group_of(master).core.log
        return self.min_in_sync < self.replicas and log.confirm == log.end

    def may_rot(self, node: Node) -> bool:
        """Whether every other member is well, so that it can mend ``node``."""
        master = self.master()
        if master is None or not self.is_whole or self.flipped.keys() - {node.name}:
            return False
        if self.hosts_many:
            return False
        log = self.group_of(master).core.log
        return bool(log.confirm == log.end)

    def flip(self, node: Node, offset: int, *, unreadable: bool = False) -> None:
        """Flip a bit of the log, on the medium; or have the medium not give it any more."""
        self.look()  # while it still reads as it was confirmed
        folder = node.machine.directory / "data" / "store" / "commitlog"
        begins = sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())
        begin = max(begin for begin in begins if begin <= offset)
        with (folder / f"{begin:020d}").open("r+b") as file:
            file.seek(offset - begin)
            before = file.read(1)
            file.seek(offset - begin)
            file.write(bytes([before[0] ^ 16]))
            if unreadable:
                inode = os.fstat(file.fileno()).st_ino
                node.machine.volume.unreadable.setdefault(inode, set()).add(offset - begin)
        self.flipped.setdefault(node.name, set()).add(offset)
        self.world.count("flipped")
        self.world.note(node.name, "flipped", offset)

    # ---- running

    def node_exited(self, node: Node, error: BaseException | None) -> None:
        """A program ended by itself; its machine starts it again."""
        if node in self.nodes:
            self.world.after(self._rng.randint(*self.restart_us), node.boot)
        elif error is not None:
            raise Violation(f"{node.name} ended: {error}") from error

    def boot(self) -> None:
        """Start the controllers, declare the group, then start the brokers."""
        for node in self.controllers:
            self.world.after(self._rng.randrange(300 * MS), node.boot)
        self.client("administrator", self._administrator).boot()

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Run for so long, or until ``until()``; True if it came to that, or if there is none."""
        enter_world()
        held = self.world.run(for_us=int(seconds * SECOND), until=until, every_us=LOOK_US)
        if loops.failures:
            name, context = loops.failures[0]
            error = context.get("exception")
            raise Violation(
                f"seed {self.world.seed}: {name}: {context.get('message')}: {error!r}"
            ) from error
        return held

    def look(self) -> None:
        """Let every watch look now. Raises Violation."""
        for look in self.looks:
            look()

    def make_peace(self) -> None:
        """End all faults, and start what is down."""
        self.world.note("peace")
        self.is_at_peace = True
        self.network.heal()
        self.network.options.calm()
        self.network.bucket.options.calm()
        for node in self.nodes:
            node.machine.volume.mend()
            node.machine.restore_power()
            if node.process is not None and node.process.frozen and not node.process.is_dead:
                node.process.thaw()
            if self._has_lost_a_group(node):  # it says so at /readyz: a person starts it again
                node.kill()
            self.world.after(self._rng.randrange(500 * MS), node.boot)

    def close(self) -> None:
        """Forget the world: nothing of it runs again."""
        self.looks.clear()
        for node in [*self.nodes, *self.clients]:
            node.wanted = False
            if node.process is not None:
                node.process.kill(silently=True)
        self.logs.close()
        shutil.rmtree(self.root)


class Simulation:
    """``with Simulation(world, …) as cluster``: the product is bound to the world inside."""

    def __init__(self, world: World, make: type[Cluster] = Cluster, **named: Any) -> None:
        self._arguments = (world, named)
        self._make = make
        self._bound = bound()

    def __enter__(self) -> Cluster:
        self._bound.__enter__()
        gc.disable()  # a run is short, and most of it lives until its end
        loops.failures.clear()
        world, named = self._arguments
        self.cluster = self._make(world, **named)
        return self.cluster

    def __exit__(self, *exception: object) -> None:
        self.cluster.close()
        self._bound.__exit__(None, None, None)
        gc.enable()


async def supervised(main: Main) -> None:
    """As ``runtime.run`` does it, but for the making of the event loop.

    Raises:
        BaseException: what the process died of, first one wins.
    """
    supervisor = _Supervisor(main)
    try:
        await supervisor.run()
    except BaseException as error:  # noqa: BLE001 - as the process reports it
        raise supervisor.failure or error from None


async def http(
    address: str, method: str, path: str, body: object = None, *, port: int = CONTROLLER_HTTP
) -> tuple[int, bytes]:
    """One request to a controller's admin API, or to another HTTP port.

    Raises:
        OSError, EOFError: no whole answer.
    """
    reader, writer = await asyncio.open_connection(address, port)
    try:
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
            "Connection: close\r\n\r\n"
        )
        writer.write(head.encode() + data)
        answer = await reader.read()
        first, _, rest = answer.partition(b"\r\n")
        if not rest:
            raise EOFError(f"{address} hung up")
        return int(first.split()[1]), rest.partition(b"\r\n\r\n")[2]
    finally:
        writer.transport.abort()


async def ask_leader(
    address: str, method: str, path: str, body: object = None
) -> tuple[int, bytes]:
    """The same of a controller, or of the leader that it names: it may be one that came later.

    Raises:
        OSError, EOFError: no whole answer.
    """
    status, answer = await http(address, method, path, body)
    if status != HTTPStatus.MISDIRECTED_REQUEST:
        return status, answer
    leader = urlsplit(json.loads(answer)["leader"] or "").hostname
    return await http(leader, method, path, body) if leader else (status, answer)


def show_logs(cluster: Cluster, level: str = "INFO") -> None:
    """Print what the product says, with virtual times."""
    from gantry_protocol.process.log import LineFormatter
    from sim.product.machines import running

    class Lines(LineFormatter):
        def format(self, record: logging.LogRecord) -> str:
            thread = running()
            name = "" if thread is None else thread.process.name
            line = super().format(record).split(" ", 1)[1].replace("component=sim ", "")
            return f"{cluster.world.now_us / 1e6:10.6f} {name:14} {line}"

    handler = logging.StreamHandler()
    handler.setFormatter(Lines("sim"))
    log = logging.getLogger("gantry")
    log.handlers[:] = [handler]
    log.setLevel(level)
