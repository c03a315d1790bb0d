"""docs/metrics.md names every metric that a broker serves, and no other."""

from __future__ import annotations

from pathlib import Path

import aiohttp
from gantry_broker.clients.lag import Lag
from prometheus_client.parser import text_string_to_metric_families
from support.broker_cluster import send_command
from support.metrics_page import check_section, exposed, names_on_page, of_their_own
from support.tiered_cluster import TieredCluster


async def test_page_names_every_metric_and_no_other(tmp_path: Path) -> None:
    cluster = TieredCluster(tmp_path, tier_local_bytes=2**30)
    async with cluster:
        client = await cluster.client(cluster.master)
        assert (await client.call(send_command(b"x"), 5)).code == 0
        delayed = send_command(b"later")
        delayed.ext = {**(delayed.ext or {}), "i": "DELAY\x0118\x02"}  # two hours
        assert (await client.call(delayed, 5)).code == 0
        # Scraped text has the labels of families with a sample, so each gets one.
        cluster.uploader.failures["timeout"] += 1
        (hosted,) = cluster.master.server.hosted
        hosted.remoting.error_answers.counts["SEND_MESSAGE", "disk"] = 1
        assert hosted.processor is not None
        hosted.processor.drain.began_s = 0.0
        hosted.processor.lag.told["g", "T"] = Lag(1, 1_000)
        url = f"http://127.0.0.1:{cluster.master.server.http_port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            families = list(text_string_to_metric_families(await answer.text()))
        hosted.processor.drain.began_s = None
    check_section("Broker", of_their_own(families))
    assert {exposed(family) for family in families} <= names_on_page()
