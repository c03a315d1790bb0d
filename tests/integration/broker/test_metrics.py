"""docs/broker-metrics.md names every metric that a broker serves, and no other.

``GANTRY_REWRITE=1`` writes the table of the page anew; review the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import aiohttp
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from support.broker_cluster import send_command
from support.tiered_cluster import TieredCluster

PAGE = Path(__file__).resolve().parents[3] / "docs" / "broker-metrics.md"
HEAD = "| Metric | Labels | Meaning |\n| --- | --- | --- |\n"


def row(family: Metric) -> str:
    ending = "_total" if family.type == "counter" else ""
    labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
    names = " ".join(f"`{label}`" for label in labels)
    return f"| `{family.name}{ending}` | {names} | {family.documentation} |\n"


async def test_page_names_every_metric_and_no_other(tmp_path: Path) -> None:
    cluster = TieredCluster(tmp_path, tier_local_bytes=2**30)
    async with cluster:
        client = await cluster.client(cluster.master)
        assert (await client.call(send_command(b"x"), 5)).code == 0
        delayed = send_command(b"later")
        delayed.ext = {**(delayed.ext or {}), "i": "DELAY\x0118\x02"}  # two hours
        assert (await client.call(delayed, 5)).code == 0
        cluster.uploader.failures["timeout"] += 1  # a kind of failure is a label
        url = f"http://127.0.0.1:{cluster.master.server.http_port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            families = list(text_string_to_metric_families(await answer.text()))
    families.sort(key=lambda one: one.name)
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    table = HEAD + "".join(map(row, families))
    if os.environ.get("GANTRY_REWRITE"):
        text = PAGE.read_text("utf-8")
        PAGE.write_text(text[: text.index(HEAD)] + table, "utf-8")
    assert PAGE.read_text("utf-8").endswith(table), "write it anew with GANTRY_REWRITE=1"
