"""The admin API's routes about fronts, to which clients of a cluster are led.

A cluster has one declaration, which its owner may repeat: what changes nothing is no event. What
would is refused before all controllers know it, since one of an older version would stop at it.
"""

from aiohttp import web
from gantry_protocol.admin import DeclaredFronts, FrontIndex, FrontsDeclaration, FrontsView
from gantry_protocol.process.probes import HttpServer

from gantry_controller.admin.api import AdminApi, Handler, read_body
from gantry_controller.metadata.events import DeclareFronts, RemoveFronts
from gantry_controller.metadata.front_indexes import Fronts
from gantry_controller.metadata.fronts import at_fronts, fronted
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.state import MetadataState
from gantry_controller.requests import ADMIN


class FrontsApi:
    """See the module.

    Args:
        api: the other routes, whose ways of waiting and refusing are shared.
        machine: the applied state.
    """

    def __init__(self, api: AdminApi, machine: MetadataStateMachine) -> None:
        self._api = api
        self._machine = machine

    def add_to(self, server: HttpServer) -> None:
        """Serves the routes on ``server``."""
        fronts = "/v1/clusters/{cluster}/fronts"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", fronts, self._get),
            ("PUT", fronts + "/{name}", self._put),
            ("DELETE", fronts + "/{name}", self._delete),
        ]
        for method, path, handler in routes:
            server.add_route(method, path, self._api.guarded(handler, ADMIN[method, path]))

    async def _get(self, request: web.Request) -> web.Response:
        return self._view(request.match_info["cluster"])

    async def _put(self, request: web.Request) -> web.Response:
        wish = await read_body(request, FrontsDeclaration)
        cluster, name = request.match_info["cluster"], request.match_info["name"]
        fronts = Fronts(name, wish.address, wish.first_port, wish.ports)
        if self._machine.state.fronts.get(cluster) != fronts:
            self._api.all_must_know_its_events()
            await self._api.write(
                DeclareFronts(
                    cluster=cluster,
                    name=name,
                    address=wish.address,
                    first_port=wish.first_port,
                    ports=wish.ports,
                )
            )
        return self._view(cluster)

    async def _delete(self, request: web.Request) -> web.Response:
        cluster, name = request.match_info["cluster"], request.match_info["name"]
        known = self._machine.state.fronts.get(cluster)
        if known is not None and known.name == name:
            await self._api.write(RemoveFronts(cluster=cluster, name=name))
        return web.Response(status=204)

    def _view(self, cluster: str) -> web.Response:
        view = fronts_view(self._machine.state, cluster)
        return web.json_response(text=view.to_json())


def fronts_view(state: MetadataState, cluster: str) -> FrontsView:
    """The fronts of ``cluster``, and the groups that they may have a port for, by index."""
    known = state.fronts.get(cluster)
    declared = []
    if known is not None:
        declared.append(
            DeclaredFronts(
                name=known.name,
                address=known.address,
                first_port=known.first_port,
                ports=known.ports,
            )
        )
    groups = [
        FrontIndex(
            group=group.name,
            index=index,
            served_by_fronts=at_fronts(state, group.key) is not None,
        )
        for index, group in fronted(state, cluster)
    ]
    return FrontsView(fronts=declared, groups=groups)
