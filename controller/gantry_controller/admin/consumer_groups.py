"""The admin API's routes about the settings of consumer groups: as those about topics are.

A wish names what brokers act on; all else in a group's settings stays as it is, in each broker
group by itself. Offsets are no settings: they are the brokers', and no route here touches them.
"""

from functools import partial

from aiohttp import web
from gantry_protocol.admin_topics import (
    ConsumerGroupList,
    ConsumerGroupVariant,
    ConsumerGroupView,
    ConsumerGroupWish,
)
from gantry_protocol.bodies import SubscriptionGroupConfig, decode_body, encode_body
from gantry_protocol.process.probes import HttpServer
from msgspec.structs import replace

from gantry_controller.admin.api import AdminApi, Handler, read_body
from gantry_controller.admin.listing import page_of, page_wish, stamp_of
from gantry_controller.admin.topics import newcomers
from gantry_controller.metadata.clients import SubscriptionTable
from gantry_controller.metadata.events import DeleteSubscriptionGroup, PutSubscriptionGroup
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.state import MetadataState
from gantry_controller.requests import ADMIN
from gantry_controller.turns import TurnGate

Tables = dict[str, SubscriptionTable]
"""By name of the broker group."""


class ConsumerGroupsApi:
    """See the module; the arguments are those of ``TopicsApi``."""

    def __init__(self, api: AdminApi, machine: MetadataStateMachine, gate: TurnGate) -> None:
        self._api = api
        self._machine = machine
        self._gate = gate

    def add_to(self, server: HttpServer) -> None:
        """Serves the routes on ``server``."""
        groups = "/v1/clusters/{cluster}/consumer-groups"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", groups, self._list),
            ("PUT", groups + "/{group}", self._put),
            ("DELETE", groups + "/{group}", self._delete),
        ]
        for method, path, handler in routes:
            server.add_route(method, path, self._api.guarded(handler, ADMIN[method, path]))

    async def _list(self, request: web.Request) -> web.Response:
        cluster, wish = request.match_info["cluster"], page_wish(request)
        with self._api.place_in_line():
            state = self._machine.state
            tables, new = _tables_of(state, cluster), newcomers(state, cluster)
            stamp = _stamp(tables, new)
            if stamp == wish.known:
                told = ConsumerGroupList(stamp=stamp, unchanged=True)
                return web.json_response(text=told.to_json())
            views, more = await page_of(
                wish, tables, lambda table: table.groups, partial(_view, tables=tables), self._gate
            )
            listed = ConsumerGroupList(
                stamp=stamp, groups=list(tables), new=new, consumer_groups=views, more=more
            )
            text = await self._gate.bit(listed.to_json)
        return web.json_response(text=text)

    async def _put(self, request: web.Request) -> web.Response:
        wish = await read_body(request, ConsumerGroupWish)
        cluster, group = request.match_info["cluster"], request.match_info["group"]
        tables = _tables_of(self._machine.state, cluster)
        wanted: dict[bytes, list[str]] = {}
        for name, table in tables.items():
            config = _wished(group, wish, table.groups.get(group))
            if config != table.groups.get(group):
                wanted.setdefault(config, []).append(name)
        if not tables:  # the state machine has the words for it
            wanted = {_wished(group, wish, None): [""]}
        for config, names in wanted.items():
            for name in [""] if len(names) == len(tables) else names:
                event = PutSubscriptionGroup(cluster=cluster, name=name, group=group, config=config)
                await self._api.write(event)
        view = _view(group, _tables_of(self._machine.state, cluster))
        return web.json_response(text=view.to_json())

    async def _delete(self, request: web.Request) -> web.Response:
        cluster, group = request.match_info["cluster"], request.match_info["group"]
        await self._api.write(DeleteSubscriptionGroup(cluster=cluster, name="", group=group))
        return web.Response(status=204)


def _tables_of(state: MetadataState, cluster: str) -> Tables:
    return {
        group.name: state.subscription_table(group.key) for group in state.serving_by_name(cluster)
    }


def _wished(group: str, wish: ConsumerGroupWish, known: bytes | None) -> bytes:
    config = (
        SubscriptionGroupConfig(group)
        if known is None
        else decode_body(SubscriptionGroupConfig, known)
    )
    return encode_body(replace(config, **wish.model_dump(exclude_none=True)))


def _view(group: str, tables: Tables) -> ConsumerGroupView:
    variants: dict[tuple[bool, bool, int, int, bool], list[str]] = {}
    for name, table in tables.items():
        text = table.groups.get(group)
        if text is not None:
            config = decode_body(SubscriptionGroupConfig, text)
            key = (
                config.consume_enable,
                config.consume_broadcast_enable,
                config.retry_queue_nums,
                config.retry_max_times,
                config.consume_message_orderly,
            )
            variants.setdefault(key, []).append(name)
    return ConsumerGroupView(
        name=group,
        variants=[
            ConsumerGroupVariant(
                groups=[] if len(names) == len(tables) else names,
                consume_enable=enable,
                consume_broadcast_enable=broadcast,
                retry_queue_nums=queues,
                retry_max_times=times,
                consume_message_orderly=orderly,
            )
            for (enable, broadcast, queues, times, orderly), names in variants.items()
        ],
    )


def _stamp(tables: Tables, new: list[str]) -> str:
    return stamp_of([(name, table.version) for name, table in tables.items()], new)
