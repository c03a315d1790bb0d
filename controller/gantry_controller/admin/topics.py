"""The admin API's routes about topics: all of a cluster read at once, and one made what is wished.

A wish says what a topic is to be like in every group of its cluster. It becomes the events that
``mqadmin`` makes, one for all groups where they agree, else one for each that differs; a group that
has the topic as wished is left alone, so a wish that is fulfilled writes nothing.
"""

from collections.abc import Iterable, Mapping

from aiohttp import web
from gantry_protocol.admin_topics import TopicList, TopicVariant, TopicView, TopicWish
from gantry_protocol.process.probes import HttpServer
from msgspec.structs import replace

from gantry_controller.admin.api import AdminApi, ApiRefusal, Handler, read_body
from gantry_controller.admin.listing import page_of, page_wish, stamp_of
from gantry_controller.metadata.attributes import FIXED
from gantry_controller.metadata.events import CreateTopic, DeleteTopic
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.state import MetadataState
from gantry_controller.metadata.topic_table import BUILT_IN_TOPICS, Topic, TopicTable
from gantry_controller.requests import ADMIN
from gantry_controller.turns import TurnGate

Tables = dict[str, TopicTable]
"""By name of the group."""


class TopicsApi:
    """See the module.

    Args:
        api: the other routes, whose ways of waiting and refusing are shared.
        machine: the applied state.
        gate: lets one long answer go on in each turn of the loop.
    """

    def __init__(self, api: AdminApi, machine: MetadataStateMachine, gate: TurnGate) -> None:
        self._api = api
        self._machine = machine
        self._gate = gate

    def add_to(self, server: HttpServer) -> None:
        """Serves the routes on ``server``."""
        topics = "/v1/clusters/{cluster}/topics"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", topics, self._list),
            ("PUT", topics + "/{topic}", self._put),
            ("DELETE", topics + "/{topic}", self._delete),
        ]
        for method, path, handler in routes:
            server.add_route(method, path, self._api.guarded(handler, ADMIN[method, path]))

    async def _list(self, request: web.Request) -> web.Response:
        cluster, wish = request.match_info["cluster"], page_wish(request)
        with self._api.place_in_line():
            state = self._machine.state
            tables, new = tables_of(state, cluster), newcomers(state, cluster)
            mapped = set(state.maps_of(cluster).maps)
            stamp = _stamp(tables, mapped, new)
            if stamp == wish.known:
                told = TopicList(stamp=stamp, unchanged=True)
                return web.json_response(text=told.to_json())
            views, more = await page_of(
                wish,
                tables,
                lambda table: table.topics.keys() - BUILT_IN_TOPICS,
                lambda name: topic_view(name, tables, mapped=name in mapped),
                self._gate,
            )
            listed = TopicList(
                stamp=stamp,
                groups=list(tables),
                unheard=[name for name, table in tables.items() if table.is_partial],
                new=new,
                topics=views,
                more=more,
            )
            text = await self._gate.bit(listed.to_json)
        return web.json_response(text=text)

    async def _put(self, request: web.Request) -> web.Response:
        wish = await read_body(request, TopicWish)
        cluster, topic = request.match_info["cluster"], request.match_info["topic"]
        if topic in BUILT_IN_TOPICS:
            raise ApiRefusal(409, "INVALID_PARAMETER", f"{topic} is a topic of every group.")
        tables = tables_of(self._machine.state, cluster)
        _refuse_unsafe(topic, wish, tables)
        wanted: list[CreateTopic] = []
        for name, table in tables.items():
            known = table.topics.get(topic)
            config = _wished(wish, known)
            changes = modification(None if known is None else known.attributes, wish.attributes)
            if changes or known is None or config != _plain(known):
                wanted.append(_event(cluster, name, topic, config, changes))
        everywhere = [replace(event, name="") for event in wanted]
        if not tables:  # the state machine has the words for it
            wanted = [_event(cluster, "", topic, _wished(wish, None), "")]
        elif len(wanted) == len(tables) and all(event == everywhere[0] for event in everywhere):
            wanted = everywhere[:1]
        if any(event.attributes for event in wanted):
            self._api.all_must_know_its_events()
        for event in wanted:
            await self._api.write(event)
        state = self._machine.state
        mapped = state.queue_map(cluster, topic) is not None
        view = topic_view(topic, tables_of(state, cluster), mapped=mapped)
        return web.json_response(text=view.to_json())

    async def _delete(self, request: web.Request) -> web.Response:
        cluster, topic = request.match_info["cluster"], request.match_info["topic"]
        await self._api.write(DeleteTopic(cluster=cluster, name="", topic=topic))
        return web.Response(status=204)


def tables_of(state: MetadataState, cluster: str) -> Tables:
    """The topics of each group that clients may be sent to."""
    return {group.name: state.topic_table(group.key) for group in state.serving_by_name(cluster)}


def topic_view(topic: str, tables: Tables, *, mapped: bool) -> TopicView:
    """A topic in all groups; equal ones are told once."""
    variants: list[tuple[Topic, list[str]]] = []
    for name, table in tables.items():
        found = table.topics.get(topic)
        if found is None:
            continue
        found = replace(found, since=0)
        same = next((names for other, names in variants if other == found), None)
        if same is None:
            variants.append((found, [name]))
        else:
            same.append(name)
    return TopicView(
        name=topic,
        mapped=mapped,
        variants=[
            TopicVariant(
                groups=[] if len(names) == len(tables) else names,
                read_queues=found.read_queue_nums,
                write_queues=found.write_queue_nums,
                perm=found.perm,
                order=found.order,
                attributes=found.attributes,
            )
            for found, names in variants
        ],
    )


def modification(known: Mapping[str, str] | None, wished: Mapping[str, str]) -> str:
    """The change that makes the attributes of a topic those that are wished.

    Those that upstream lets nobody change stay as they are.
    """
    before = dict(known or {})
    added = {name: value for name, value in wished.items() if before.get(name) != value}
    gone = [name for name in before if name not in wished and name not in FIXED]
    return ",".join(
        [f"+{name}={value}" for name, value in sorted(added.items())]
        + [f"-{name}" for name in sorted(gone)]
    )


def _refuse_unsafe(topic: str, wish: TopicWish, tables: Tables) -> None:
    for name, table in tables.items():
        known = table.topics.get(topic)
        if known is None and table.is_partial:
            message = f"The master of {name} has not said yet which topics its log has."
            raise ApiRefusal(503, "NOT_READY", message)
        if known is not None and wish.read_queues < known.read_queue_nums and not wish.fewer_reads:
            message = (
                f"Topic {topic} has {known.read_queue_nums} queues to read in {name}, and "
                f"{wish.read_queues} are asked for: what is in the others would be read by nobody."
            )
            raise ApiRefusal(409, "QUEUES_WOULD_SHRINK", message)


def _wished(wish: TopicWish, known: Topic | None) -> Topic:
    """Flags that no wish names stay as they are."""
    return Topic(
        read_queue_nums=wish.read_queues,
        write_queue_nums=wish.write_queues,
        perm=wish.perm,
        topic_sys_flag=0 if known is None else known.topic_sys_flag,
        order=known is not None and known.order,
    )


def _event(cluster: str, name: str, topic: str, config: Topic, changes: str) -> CreateTopic:
    return CreateTopic(cluster=cluster, name=name, topic=topic, config=config, attributes=changes)


def _plain(topic: Topic) -> Topic:
    return replace(topic, since=0, attributes={})


def newcomers(state: MetadataState, cluster: str) -> list[str]:
    """The groups that clients may be sent to and that never had a master."""
    return [group.name for group in state.serving_by_name(cluster) if not group.had_master]


def _stamp(tables: Tables, mapped: Iterable[str], new: list[str]) -> str:
    """Of versions alone: each change of a table has its own."""
    facts = [(name, table.version, table.is_partial) for name, table in tables.items()]
    return stamp_of(facts, sorted(mapped), new)
