"""Strangers beside a producer, on real sockets: nobody is deposed, and each hears why."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.frame import encode
from support.broker_cluster import BrokerCluster, eventually, pull_command, send_command
from support.wire import WirePeer


async def test_a_producer_goes_on_beside_strangers(tmp_path: Path) -> None:
    async with BrokerCluster(tmp_path, replicas=1, min_in_sync=1) as cluster:
        master = cluster.master
        epoch, port = master.group.epoch, master.member.port
        victim = await cluster.client(master)
        for _ in range(20):
            assert (await victim.call(send_command(b"x" * 10_000), 30)).code == 0

        huge = [await WirePeer.connect(port) for _ in range(8)]
        for peer in huge:
            peer.writer.write(struct.pack(">iI", 13_900_004, 13_900_000) + b'{"code":10,' * 1000)
        silent = [await WirePeer.connect(port) for _ in range(20)]
        pulls = encode(pull_command(0)) * 500
        for peer in silent:
            peer.writer.write(pulls)
        large = await WirePeer.connect(port)
        large.send(request(RequestCode.HEART_BEAT, {}, bytes(2_000_000)))

        for _ in range(50):
            assert (await victim.call(send_command(b"x"), 30)).code == 0
        assert all([await peer.ended() for peer in huge])
        assert (await large.receive()).code == ResponseCode.MESSAGE_ILLEGAL
        large.send(request(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}))
        assert (await large.receive()).code == 0, "its connection goes on"

        stats = master.member.remoting.stats
        await eventually(lambda: stats.unread_bytes > 0, "they do not read")
        assert (stats.malformed, stats.too_large) == (8, 1)
        assert master.member.remoting.turns.put_off
        assert master.group.serving
        assert master.group.epoch == epoch, "no election happened"
        for peer in (*huge, *silent, large):
            peer.writer.transport.abort()
        await asyncio.sleep(0)
