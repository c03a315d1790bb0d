"""The broker groups of a cluster, and questions that each of them is asked.

The rule protected here: half of a listing, or a change on some of the groups only, must not look
like all of it. A change fails with the name of the group that does not answer; what is shown leaves
such a group out and names it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.bodies import TopicRouteData, decode_body
from gantry_protocol.bodies.route import MASTER_ID
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import ConnectError, GantryError, RemotingError, ResolveError, WireError
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.headers.nameserver import GetRouteInfoRequestHeader

from gantry_cli.client.routes import refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from typing import TypeVar

    from gantry_cli.client.routes import Routes
    from gantry_cli.client.session import Session

    AnswerT = TypeVar("AnswerT")
    ItemT = TypeVar("ItemT")

TEMPLATE = "TBW102"  # a topic of every group, by which producers create topics
TIMEOUT_S = 3.0
REFUSED_TRIES, REFUSED_RETRY_S = 20, 0.25  # of a connection; nothing was sent
TOGETHER_MAX = 16  # questions under way at once


class BrokerError(GantryError):
    """A broker group did not answer, or said no."""


class GroupAddress(msgspec.Struct, frozen=True, order=True):
    """One group and the address its master is reached at."""

    name: str
    cluster: str
    address: str


async def broker_groups(routes: Routes, *, only: str | None = None) -> list[GroupAddress]:
    """Every group that can be reached, by name; or the one called ``only``.

    Raises:
        NameServiceError: nobody answers.
        BrokerError: there is no such group.
    """
    header = GetRouteInfoRequestHeader(TEMPLATE, accept_standard_json_only=True)
    answer = await routes.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, to_ext(header)))
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        raise BrokerError("There is no broker group yet; see gantry status.")
    if answer.code != ResponseCode.SUCCESS:
        raise refusal(answer, "The broker groups are not known")
    found = sorted(
        GroupAddress(broker.broker_name, broker.cluster, broker.broker_addrs[MASTER_ID])
        for broker in decode_body(TopicRouteData, answer.body).broker_datas
        if MASTER_ID in broker.broker_addrs
    )
    if only is None:
        return found
    chosen = [group for group in found if group.name == only]
    if not chosen:
        names = ", ".join(group.name for group in found)
        raise BrokerError(f"There is no broker group {only!r}; there is: {names}.")
    return chosen


async def answering(
    client: Session, groups: Sequence[GroupAddress]
) -> tuple[list[GroupAddress], list[GroupAddress]]:
    """The groups whose master answers, and those where nobody does.

    Raises:
        BrokerError: nobody answers anywhere.
    """

    async def answers(group: GroupAddress) -> bool:
        command = request(RequestCode.GET_BROKER_RUNTIME_INFO)
        try:
            await client.calls.call(group.address, command, TIMEOUT_S)
        except (RemotingError, ResolveError, WireError):
            return False
        return True

    found = await together(groups, answers)
    living = [group for group, well in zip(groups, found, strict=True) if well]
    silent = [group for group, well in zip(groups, found, strict=True) if not well]
    if groups and not living:
        names = ", ".join(f"{group.name} at {group.address}" for group in silent)
        raise BrokerError(f"No broker group answers: {names}. See gantry status.")
    return living, silent


async def ask(
    client: Session,
    group: GroupAddress,
    command: RemotingCommand,
    what: str,
    *,
    but: Sequence[int] = (),
) -> RemotingCommand:
    """The answer of a group's master, of code 0 or one of ``but``.

    A connection that is refused is tried again for a while. In Kubernetes the address of a group
    that is just ready, or of a master that is just elected, is refused until each node knows it.

    Raises:
        BrokerError: ``what`` did not happen, and why.
    """
    try:
        answer = await _call(client, group.address, command)
    except (RemotingError, ResolveError, WireError) as error:
        raise BrokerError(
            f"{what}: broker group {group.name} at {group.address} does not answer ({error})."
        ) from error
    if answer.code != ResponseCode.SUCCESS and answer.code not in but:
        reason = answer.remark or "no reason given"
        raise BrokerError(f"{what} on {group.name}: {reason} (code {answer.code}).")
    return answer


async def _call(client: Session, address: str, command: RemotingCommand) -> RemotingCommand:
    left = REFUSED_TRIES
    while True:
        left -= 1
        try:
            return await client.calls.call(address, command, TIMEOUT_S)
        except ConnectError as error:
            if not (error.refused and left):
                raise
        await asyncio.sleep(REFUSED_RETRY_S)


async def everywhere(
    find: Callable[[], Awaitable[Sequence[GroupAddress]]],
    change: Callable[[GroupAddress], Awaitable[object]],
) -> int:
    """The number of groups that were changed: all that ``find`` finds, also once these are.

    A group that gets its first master meanwhile has taken over what the others had before
    (``gantry_controller.metadata.newcomers``), and would stay as it is.

    Raises:
        GantryError: the first change that failed; others may have been made.
    """
    done: set[tuple[str, str]] = set()
    while some := [group for group in await find() if (group.cluster, group.name) not in done]:
        await together(some, change)
        done.update((group.cluster, group.name) for group in some)
    return len(done)


async def together(
    items: Iterable[ItemT], question: Callable[[ItemT], Awaitable[AnswerT]]
) -> list[AnswerT]:
    """``question`` of each item, some at a time; the answers in the order of the items.

    Raises:
        GantryError: the first that failed; the others are given up.
    """
    gate = asyncio.Semaphore(TOGETHER_MAX)

    async def one(item: ItemT) -> AnswerT:
        async with gate:
            return await question(item)

    # No TaskGroup: where a task of one fails, Python 3.11.2 leaves a request to cancel its parent
    # behind, and the parent's next time-out is no TimeoutError.
    asked = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return await asyncio.gather(*asked)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
