"""A collector of spans, and a producer whose messages name the span that they are a part of.

The collector takes what brokers, controllers and fronts send, or refuses it, is slow, or is not
reached, while there are faults. What it takes is well formed: a part lies in its root and begins
when the root does or later, nothing ends before it begins, and a change of master has each of its
parts once. A send that is said to have been acknowledged stands in the queue that is said. A
producer's word counts: what it has traced is a part of its trace, and what it has not is never
seen. By way of a front the master's span is a part of the front's `call`, or of its `store`; of the
producer's own only where the front was to answer and lost its store. No process counts a span as
taken that was not; and once there is peace, spans come, those of a front and of its master as one.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from aiohttp import web
from gantry_cli.client.session import session
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.records import BatchMessage, encode_batch
from gantry_protocol.tracing.export import PATH
from sim.kernel.world import Violation
from sim.product.line import TOPIC, Line, send_ext
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Workload

HOST, PORT = "collector", 4318
ENDPOINT = f"http://{HOST}:{PORT}"
WITHIN_S = 4.0
SLOW_S = 7.0  # longer than anybody waits
SEND, STORE = "SendMessage", "StoreRecord"
PARTS = {"queue", "append", "replicate", "answer", "call", "store"}
ROOTS = {"failover", "hand-over", "election"}
WITHIN = {SEND: "call", STORE: "store"}  # of a front's parts, where the master's spans belong
FRONT = "gantry-front"

Attributes = dict[str, str | int | bool]


class Collected(Clients):
    """See the module.

    Args:
        cluster: where.
        workload: whose sends are traced, too.

    Attributes:
        taken: spans by the process that sent them.
    """

    unsettled = "no span comes, though the collector takes all"

    def __init__(self, cluster: Cluster, workload: Workload) -> None:
        super().__init__(cluster)
        self.taken: Counter[str] = Counter()
        self._workload = workload
        self._found: list[str] = []  # that must not be
        self._node = cluster.client(HOST, self._collect)
        cluster.network.names[HOST] = self._node.machine.address
        self._traced: set[str] = set()  # ids of traces that came
        self._parents: dict[str, str] = {}  # of the producer's own sends, by trace
        self._untraced: set[str] = set()
        self._changes: set[tuple[str, int]] = set()  # parts of changes of master
        self._roots: dict[str, tuple[int, int]] = {}  # of sends: from and to, by their span
        self._acknowledged: list[tuple[str, int]] = []  # message and queue, as spans say
        self._asked: dict[str, tuple[str, str]] = {}  # of fronts: trace and name, by the span
        self._masters: list[tuple[str, str, str]] = []  # theirs: trace, name and parent

    def start(self) -> None:
        """Begin."""
        self._node.boot()
        self._cluster.client("tracing-producer", self._send).boot()

    def judge(self) -> None:
        """Raises Violation: a span says what is not so, or is counted and was never taken."""
        super().judge()
        if self._found:
            raise Violation(self._found[0])
        messages = self._workload.ledger._messages
        for key, queue_id in self._acknowledged:
            places = messages[key].consumed_at if key in messages else ()
            if places and queue_id not in {place.queue_id for place in places}:
                raise Violation(f"{key} is said to be in queue {queue_id}, and came from {places}")
        for span in self._masters:
            self._judge_way(*span)
        cluster = self._cluster
        for node in (*cluster.brokers, *cluster.controllers, *cluster.fronts):
            exported = self._exported(node)
            if exported > self.taken[node.name]:
                raise Violation(f"{node.name} counts {exported} spans, {self.taken} were taken")

    def _judge_way(self, trace: str, name: str, parent: str) -> None:
        """Raises Violation: a master's span is in the wrong place of a front's trace."""
        found = self._asked.get(parent)
        if found is not None and found != (trace, WITHIN[name]):
            raise Violation(f"{name} of {trace} is a part of {found}")
        if name == STORE and self._parents.get(trace) == parent:
            raise Violation(f"{name} of {trace} is beside its front's part")

    def _exported(self, node: Node) -> int:
        """What a process says that the collector has taken of it."""
        kind = "FrontServer" if node in self._cluster.fronts else "Controller"
        kind = "BrokerServer" if node in self._cluster.brokers else kind
        server = self._cluster._object(node, kind)
        return 0 if server is None else int(server._spans.exported)

    # ---- the collector

    async def _collect(self, node: Node) -> None:
        rng = self._cluster.world.stream("collector")

        async def take(request: web.Request) -> web.Response:
            return await self._take(await request.read(), rng)

        server = HttpServer(ready=lambda: (True, ""))
        server.add_route("POST", PATH, take)
        await server.start(node.machine.address, PORT)
        await asyncio.Event().wait()

    async def _take(self, body: bytes, rng: Random) -> web.Response:
        fate = 1.0 if self._cluster.is_at_peace else rng.random()
        if fate < 0.05:
            await asyncio.sleep(SLOW_S)
        if fate < 0.15:
            self._cluster.world.count("spans-refused")
            return web.Response(status=rng.choice([400, 503, 429]))
        (found,) = json.loads(body)["resourceSpans"]
        process = _attributes(found["resource"])
        name = str(process["service.instance.id"])
        spans = [span for scope in found["scopeSpans"] for span in scope["spans"]]
        try:
            self._judge(spans, is_front=process["service.name"] == FRONT)
        except Violation as violation:  # the web server would answer it
            self._found.append(str(violation))
        rejected = rng.randrange(len(spans)) if fate < 0.25 else 0
        self.taken[name] += len(spans) - rejected
        self._cluster.world.count("spans-taken")
        return web.json_response({"partialSuccess": {"rejectedSpans": str(rejected)}})

    def _judge(self, spans: list[dict[str, Any]], *, is_front: bool) -> None:
        """Raises Violation: they are not well formed, or not what their names say."""
        for span in spans:
            self._traced.add(span["traceId"])
            start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
            if end < start:
                raise Violation(f"a span ends before it begins: {span}")
            if span["traceId"] in self._untraced:
                raise Violation(f"its producer does not trace it: {span}")
            name, trace = span["name"], span["traceId"]
            if name in WITHIN:
                is_outer = is_front or not self._cluster.fronts
                self._judge_send(span, start, end, is_outer=is_outer)
                if not is_outer:
                    self._masters.append((trace, name, span.get("parentSpanId", "")))
            elif name in PARTS:
                self._judge_part(span, start)
                if is_front:
                    self._asked[span["spanId"]] = trace, name
            else:
                self._judge_change(span)

    def _judge_send(self, span: dict[str, Any], start: int, end: int, *, is_outer: bool) -> None:
        self._roots[span["spanId"]] = start, end
        about = _attributes(span)
        wanted = self._parents.get(span["traceId"])
        if wanted is not None and is_outer and span.get("parentSpanId") != wanted:
            raise Violation(f"it is a part of {wanted}: {span}")
        is_error = bool(span["status"])
        if is_error != (about["gantry.response_code"] != ResponseCode.SUCCESS):
            raise Violation(f"a send is an error, or not, against its code: {span}")
        key = about.get("messaging.message.id")
        if not is_error and key is not None:
            queue_id = int(str(about["messaging.destination.partition.id"]))
            self._acknowledged.append((str(key), queue_id))
        self._cluster.world.count(f"span of a send: {about['gantry.response_code']}")

    def _judge_part(self, span: dict[str, Any], start: int) -> None:
        """Raises Violation. Wall clocks that jump amid a send spoil its order."""
        root = self._roots.get(span["parentSpanId"])  # None where its request was refused
        if root and self._cluster.clocks_agree and not root[0] <= start <= root[1]:
            raise Violation(f"a part outside of its root {root}: {span}")

    def _judge_change(self, span: dict[str, Any]) -> None:
        about = _attributes(span)
        part = str(span["name"]), int(about["gantry.master_epoch"])
        if ("parentSpanId" in span) == (part[0] in ROOTS):
            raise Violation(f"a change of master with a root that is none: {span}")
        if part in self._changes and part[0] in ("promote", "first write"):
            raise Violation(f"a second time: {span}")
        self._changes.add(part)
        self._cluster.world.count(f"span: {part[0]}")

    # ---- a producer that traces

    def _has_come(self, trace: str) -> bool:
        """Whether a trace is there; by way of a front, both parts of it."""
        if not self._cluster.fronts:
            return trace in self._traced
        theirs = [(one, parent) for one, _, parent in self._masters if one == trace]
        return any(self._asked.get(parent, ("", ""))[0] == one for one, parent in theirs)

    async def _send(self, node: Node) -> None:
        """Until the spans of its last send have come."""
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            while True:
                await asyncio.sleep(rng.random() * 0.5)
                trace, parent = (
                    f"{rng.getrandbits(127) + 1:032x}",
                    f"{rng.getrandbits(63) + 1:016x}",
                )
                is_traced = self._stops or rng.random() < 0.5
                if is_traced:
                    self._parents[trace] = parent
                else:
                    self._untraced.add(trace)
                said = f"traceparent\x0100-{trace}-{parent}-{'01' if is_traced else '00'}\x02"
                key, body = f"{rng.getrandbits(128):032X}", b"traced"
                ext = send_ext(TOPIC, key, 0, said)
                if self._cluster.fronts and (self._stops or rng.random() < 0.5):
                    ext["m"] = True  # a batch, which a front passes on
                    body = encode_batch([BatchMessage(body, f"UNIQ_KEY\x01{key}\x02")])
                sent = await line.ask(RequestCode.SEND_MESSAGE_V2, ext, body, WITHIN_S)
                if self._stops and sent is not None and sent.code == ResponseCode.SUCCESS:
                    await asyncio.sleep(2.0)
                    if self._has_come(trace):
                        break
        self._busy -= 1


def _attributes(of: dict[str, Any]) -> Attributes:
    """Attributes by name."""
    found: Attributes = {}
    for item in of["attributes"]:
        ((kind, value),) = item["value"].items()
        found[item["key"]] = int(value) if kind == "intValue" else value
    return found
