"""The admin API's route about resets of offsets: masters carry them out, and this leader asks them.

Offsets are the brokers'. A request has a number, which each of them keeps with the offsets (222,
``gantryRequest``): so nothing of it is kept here, and whoever asks again, after a death of himself,
of a leader or of a master, moves nothing twice. What is not done within ``WITHIN_S`` is told, and
done when it is asked for again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from aiohttp import web
from gantry_protocol.admin_topics import OffsetResetView, OffsetResetWish
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.command import request as new_request
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.brokeradmin import RESET_QUEUES, ResetOffsetRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.process.probes import HttpServer

from gantry_controller.admin.api import AdminApi, read_body
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.state import MetadataState
from gantry_controller.requests import ADMIN

WITHIN_S = 2.0  # the client waits for three seconds
AT_ONCE = 32  # questions
TOLD_MAX = 8  # reasons in an answer
_ROUTE = ("POST", "/v1/clusters/{cluster}/consumer-groups/{group}/resets")

Ask = Callable[[str, RemotingCommand], Awaitable[RemotingCommand]]
"""The answer of the broker at an address; see ``remoting.masters``."""


class _Refused(Exception):  # noqa: N818 - an outcome
    """A master will not carry it out, however often it is asked."""


class _Waits(Exception):  # noqa: N818 - an outcome
    """It is not carried out yet."""


class OffsetResetsApi:
    """See the module.

    Args:
        api: the other routes, whose ways of waiting and refusing are shared.
        machine: the applied state.
        ask: asks a master.
    """

    def __init__(self, api: AdminApi, machine: MetadataStateMachine, ask: Ask) -> None:
        self._api = api
        self._machine = machine
        self._ask = ask

    def add_to(self, server: HttpServer) -> None:
        """Serves the route on ``server``."""
        server.add_route(*_ROUTE, self._api.guarded(self._reset, ADMIN[_ROUTE]))

    async def _reset(self, request: web.Request) -> web.Response:
        wish = await read_body(request, OffsetResetWish)
        cluster, group = request.match_info["cluster"], request.match_info["group"]
        with self._api.place_in_line():
            view = await self._carry_out(cluster, group, wish)
        return web.json_response(text=view.to_json())

    async def _carry_out(self, cluster: str, group: str, wish: OffsetResetWish) -> OffsetResetView:
        places = list(_places(self._machine.state, cluster, wish.topics))
        found = {topic for topic, _, _ in places}
        waiting = [f"no broker group has {topic}" for topic in wish.topics if topic not in found]
        refused = []
        turns, queues = asyncio.Semaphore(AT_ONCE), 0
        outcomes = await asyncio.gather(
            *(self._at_one(turns, place, group, wish) for place in places), return_exceptions=True
        )
        for (topic, name, _), outcome in zip(places, outcomes, strict=True):
            if isinstance(outcome, _Refused):
                refused.append(f"{topic} in {name}: {outcome}")
            elif isinstance(outcome, _Waits):
                waiting.append(f"{topic} in {name}: {outcome}")
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                queues += outcome
        return OffsetResetView(
            request=wish.request,
            queues=queues,
            waiting=waiting[:TOLD_MAX],
            refused="; ".join(refused[:TOLD_MAX]),
        )

    async def _at_one(
        self,
        turns: asyncio.Semaphore,
        place: tuple[str, str, str | None],
        group: str,
        wish: OffsetResetWish,
    ) -> int:
        """The number of queues in which one master has carried it out.

        Raises:
            _Refused, _Waits: it has not.
        """
        topic, _, address = place
        if address is None:
            raise _Waits("it has no master")
        header = ResetOffsetRequestHeader(
            topic, group, wish.timestamp, is_force=True, request=wish.request
        )
        command = new_request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, to_ext(header))
        try:
            async with asyncio.timeout(WITHIN_S), turns:
                answer = await self._ask(address, command)
        except TimeoutError:
            raise _Waits("its master has not answered") from None
        except GantryError as error:
            raise _Waits(str(error)) from error
        return _queues(answer)


def _places(
    state: MetadataState, cluster: str, topics: list[str]
) -> Iterator[tuple[str, str, str | None]]:
    """Topic, broker group, and the address of its master, if it has one."""
    for group in state.serving_by_name(cluster):
        master, table = group.master, state.topic_table(group.key)
        address = None if master is None else master.address
        for topic in dict.fromkeys(topics):
            if topic in table.topics or table.is_partial:
                yield topic, group.name, address


def _queues(answer: RemotingCommand) -> int:
    if answer.code == ResponseCode.INVALID_PARAMETER:
        raise _Refused(answer.remark or f"its master answers {answer.code}")
    if answer.code != ResponseCode.SUCCESS:
        raise _Waits(answer.remark or f"its master answers {answer.code}")
    queues = (answer.ext or {}).get(RESET_QUEUES, "")
    if not queues.isdecimal():  # it has reset them, and would do so again
        raise _Refused("its broker is older than this controller and keeps no number: upgrade it")
    return int(queues)
