"""The admin API of a harness."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from gantry_controller.admin.access import AccessApi
from gantry_controller.admin.api import AdminApi
from gantry_controller.admin.consumer_groups import ConsumerGroupsApi
from gantry_controller.admin.fronts import FrontsApi
from gantry_controller.admin.metrics import Metrics, RaftFigures
from gantry_controller.admin.offset_resets import OffsetResetsApi
from gantry_controller.admin.queue_maps import QueueMapsApi
from gantry_controller.admin.topics import TopicsApi
from gantry_controller.admin.watch import WatchHub
from gantry_controller.metadata.state import MetadataState
from gantry_controller.remoting.forwarder import Forwarder
from gantry_controller.remoting.notifier import Notifier
from gantry_protocol.admin import PeerView, QuorumView
from gantry_protocol.process.probes import HttpServer
from support.admin_api import LEADER, Api
from support.controller_dispatcher import Harness
from support.told_masters import ToldMasters


@pytest.fixture
async def admin(harness: Harness) -> AsyncIterator[Api]:
    hub = WatchHub(harness.machine, harness.quorum.read, harness.watchman.liveness_changes)
    quorum = QuorumView(
        cluster_uid="u",
        node_id=1,
        name="n",
        term=1,
        role="leader",
        commit_index=1,
        applied_index=1,
        peers=[PeerView(id=1, name="n", address="h:9879")],
    )
    served = AdminApi(
        harness.quorum,
        harness.machine,
        harness.watchman,
        hub,
        describe=lambda: quorum,
        leader_http=lambda: LEADER,
        peers_http=lambda: [LEADER, "http://third:9880"],
    )
    forwarder = Forwarder(lambda _: "h:1")
    notifier = Notifier(MetadataState(), lambda: True, lambda _: [])
    server = HttpServer(ready=lambda: (True, "ok"), token="secret")
    metrics = Metrics(
        lambda: RaftFigures(True, 1, 2, 3, 0, 0, {"lease": 7}, 5, True, 3, 1, 2),
        harness.machine,
        harness.watchman,
        harness.dispatcher,
        forwarder,
        notifier,
        hub,
    )
    server.registry.register(metrics)
    served.add_to(server)
    FrontsApi(served, harness.machine).add_to(server)
    QueueMapsApi(served, harness.machine, harness.watchman).add_to(server)
    TopicsApi(served, harness.machine, hub.gate).add_to(server)
    ConsumerGroupsApi(served, harness.machine, hub.gate).add_to(server)
    masters = ToldMasters()
    OffsetResetsApi(served, harness.machine, masters.ask).add_to(server)
    AccessApi(served, harness.machine, has_key=True).add_to(server)
    port = await server.start("127.0.0.1", 0)
    headers = {"Authorization": "Bearer secret"}
    base = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession(base, headers=headers) as session:
        yield Api(harness, session, hub, served, masters)
    hub.stop()
    await server.stop()
    await notifier.close()
    await forwarder.close()
