"""The admin API's routes about queue maps: shown, made, and evened out (ADR 0072)."""

import asyncio
from collections import Counter

from aiohttp import web
from gantry_protocol.admin import (
    MAPPED_TOPICS_SHOWN,
    MappedTopicView,
    MovesView,
    MoveView,
    QueueMapsView,
    QueuesWish,
    QueueView,
    RebalanceRequest,
    SegmentView,
)
from gantry_protocol.process.probes import HttpServer
from gantry_protocol.queue_map import QueueMap

from gantry_controller.admin.api import AdminApi, ApiRefusal, Handler, read_body
from gantry_controller.liveness.watchman import Watchman
from gantry_controller.metadata.candidates import candidates, had_masters
from gantry_controller.metadata.events import MapQueues
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.placement import even_out
from gantry_controller.metadata.queue_maps import events_of, places_for
from gantry_controller.metadata.state import MetadataState
from gantry_controller.requests import ADMIN


class QueueMapsApi:
    """See the module.

    Args:
        api: the other routes, whose ways of waiting and refusing are shared.
        machine: the applied state.
        watchman: who is alive.
    """

    def __init__(self, api: AdminApi, machine: MetadataStateMachine, watchman: Watchman) -> None:
        self._api = api
        self._machine = machine
        self._serves = watchman.may_serve

    def add_to(self, server: HttpServer) -> None:
        """Serves the routes on ``server``."""
        cluster = "/v1/clusters/{cluster}"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", cluster + "/queues", self._get),
            ("PUT", cluster + "/queues/{topic}", self._put),
            ("POST", cluster + "/queues-rebalance", self._rebalance),
        ]
        for method, path, handler in routes:
            server.add_route(method, path, self._api.guarded(handler, ADMIN[method, path]))

    async def _get(self, request: web.Request) -> web.Response:
        return self._view(request.match_info["cluster"], request.query.get("topic"))

    async def _put(self, request: web.Request) -> web.Response:
        wish = await read_body(request, QueuesWish)
        cluster, topic = request.match_info["cluster"], request.match_info["topic"]
        self._api.all_must_know_its_events()
        places = places_for(
            self._machine.state, cluster, topic, wish.queues, wish.places, self._serves
        )
        event = MapQueues(cluster=cluster, topic=topic, queues=wish.queues, places=places)
        await self._api.write(event)
        return self._view(cluster, topic)

    async def _rebalance(self, request: web.Request) -> web.Response:
        wish = await read_body(request, RebalanceRequest)
        cluster = request.match_info["cluster"]
        state = self._machine.state
        maps = state.maps_of(cluster).maps
        groups = candidates(state, cluster, self._serves, wish.without)
        if maps and not groups:
            message = f"No broker group of cluster {cluster} is left that could have the queues."
            raise ApiRefusal(409, "INVALID_REQUEST", message)
        # The master of a group that is away for a moment says where its queues end once it is back.
        away = set(had_masters(state, cluster, wish.without)).difference(groups)
        moves = await asyncio.to_thread(even_out, dict(maps), groups, away)  # 4 s for a million
        if not wish.dry_run:
            self._api.all_must_know_its_events()
            for event in events_of(self._machine.state, cluster, moves):
                await self._api.write(event)
        view = MovesView(
            moves=[
                MoveView(topic=move.topic, queue=move.queue, group=move.group, target=move.target)
                for move in moves
            ]
        )
        return web.json_response(text=view.to_json())

    def _view(self, cluster: str, topic: str | None) -> web.Response:
        view = queue_maps_view(self._machine.state, cluster, topic)
        return web.json_response(text=view.to_json())


def queue_maps_view(state: MetadataState, cluster: str, topic: str | None) -> QueueMapsView:
    """The maps of ``cluster``, or that of one topic with each of its queues."""
    maps = state.maps_of(cluster)
    names = sorted(maps.maps) if topic is None else [topic] * (topic in maps.maps)
    return QueueMapsView(
        topics=[
            _topic_view(name, maps.maps[name], detailed=topic is not None)
            for name in names[:MAPPED_TOPICS_SHOWN]
        ],
        load={group.name: maps.load[group.name] for group in state.serving_by_name(cluster)},
    )


def _topic_view(name: str, queues: QueueMap, *, detailed: bool) -> MappedTopicView:
    return MappedTopicView(
        topic=name,
        epoch=queues.epoch,
        queues=len(queues.queues),
        by_group=dict(sorted(Counter(queue.open.group for queue in queues.queues).items())),
        moving=sum(bool(queue.target) for queue in queues.queues),
        detail=[
            QueueView(
                number=number,
                segments=[
                    SegmentView(group=item.group, start=item.start, queue_id=item.queue_id)
                    for item in queue.segments
                ],
                target=queue.target,
            )
            for number, queue in enumerate(queues.queues if detailed else ())
        ],
    )
