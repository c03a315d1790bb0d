"""One Raft node as a process, for tests that kill it: ``python -m support.raft_process …``.

Serves a line protocol on a port of its own: a line is a command to be ordered, the answer is
``ok PLACE``, ``no LEADER`` (or ``no``); the line ``?`` is answered with all applied commands.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from gantry_controller.node import NodeOptions, RaftNode
from gantry_controller.raft.errors import NotLeader
from gantry_protocol.process import runtime
from gantry_protocol.types import NodeId
from support.raft_quorum import Journal, call


async def serve(arguments: argparse.Namespace, stop: asyncio.Event) -> None:
    peers = dict(part.split("=") for part in arguments.peers.split(","))
    node_id = NodeId(arguments.node)
    options = NodeOptions(
        cluster_uid="q",
        node_id=node_id,
        peers={NodeId(int(node)): address for node, address in peers.items()},
        directory=arguments.directory,
        port=int(peers[str(node_id)].rpartition(":")[2]),
        segment_size_bytes=64 * 1024,
    )
    journal = Journal()
    node = RaftNode(options, journal)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := (await reader.readline()).strip():
            if line == b"?":
                answer = b" ".join(journal.commands)
            else:
                answer = say(await call(node.propose, line))
            writer.write(answer + b"\n")
        writer.close()

    await node.start()
    server = await asyncio.start_server(talk, "127.0.0.1", arguments.port, limit=1 << 20)
    await stop.wait()
    server.close()
    await node.stop()


def say(outcome: object) -> bytes:
    if isinstance(outcome, NotLeader):
        return b"no" if outcome.leader is None else b"no %d" % outcome.leader
    if isinstance(outcome, Exception):
        return b"no"
    return f"ok {outcome}".encode()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--node", type=int, required=True)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    raise SystemExit(runtime.run(lambda stop: serve(arguments, stop)))


if __name__ == "__main__":
    main()
