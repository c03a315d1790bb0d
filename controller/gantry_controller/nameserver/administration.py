"""Requests of administrators to name servers: key-values, settings, write permissions.

``mqadmin`` sends each of its writes to every name server it knows. Here they all reach one log, so
the second and third find it done and change nothing. The settings (318) are the quorum's, too;
what a listing (319) shows besides are those of the node that was asked.
"""

from collections.abc import Callable

from gantry_protocol import settings_text
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.route import KVTable
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers import from_ext, to_ext
from gantry_protocol.headers.nameserver import (
    AddWritePermOfBrokerResponseHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
    WritePermOfBrokerRequestHeader,
)
from gantry_protocol.process import log
from msgspec import Struct

from gantry_controller.metadata.events import ChangeSettings, DeleteKv, PutKv, SetWritable
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.names import DEFAULTS, setting
from gantry_controller.metadata.results import Result
from gantry_controller.remoting.dispatcher import Dispatcher, Exchange, Serve

_log = log.get("names")


class NameAdministration:
    """Handlers of administrators' codes on one node.

    Args:
        dispatcher: the way into the log and back.
        machine: the applied state.
        listing: the settings of this node, ``key=value`` by key.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        machine: MetadataStateMachine,
        listing: Callable[[], dict[str, str]],
    ) -> None:
        self._dispatcher = dispatcher
        self._machine = machine
        self._listing = listing

    def handlers(self) -> dict[RequestCode, Serve]:
        """The handlers of this module's requests."""
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_back,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    def _put_kv(self, exchange: Exchange) -> None:
        header = from_ext(PutKVConfigRequestHeader, exchange.request.ext)
        event = PutKv(namespace=header.namespace, key=header.key, value=header.value)
        self._dispatcher.write(
            exchange, event, lambda result: reply(exchange.request, result.code, result.remark)
        )

    def _delete_kv(self, exchange: Exchange) -> None:
        header = from_ext(GetKVConfigRequestHeader, exchange.request.ext)
        event = DeleteKv(namespace=header.namespace, key=header.key)
        self._dispatcher.write(
            exchange, event, lambda result: reply(exchange.request, result.code, result.remark)
        )

    def _get_kv(self, exchange: Exchange) -> None:
        header = from_ext(GetKVConfigRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            namespace = self._machine.state.kv.get(header.namespace)
            value = None if namespace is None else namespace.entries.get(header.key)
            if value is None:
                remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
                return reply(exchange.request, ResponseCode.QUERY_NOT_FOUND, remark)
            return reply(exchange.request, ext=to_ext(GetKVConfigResponseHeader(value)))

        self._dispatcher.read(exchange, answer)

    def _list_kv(self, exchange: Exchange) -> None:
        header = from_ext(GetKVListByNamespaceRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            namespace = self._machine.state.kv.get(header.namespace)
            if namespace is None:
                remark = f"No config item, Namespace: {header.namespace}"
                return reply(exchange.request, ResponseCode.QUERY_NOT_FOUND, remark)
            table = KVTable(dict(sorted(namespace.entries.items())))
            return reply(exchange.request, body=encode_body(table))

        self._dispatcher.read(exchange, answer)

    def _wipe(self, exchange: Exchange) -> None:
        self._set_writable(exchange, WipeWritePermOfBrokerResponseHeader, writable=False)

    def _add_back(self, exchange: Exchange) -> None:
        self._set_writable(exchange, AddWritePermOfBrokerResponseHeader, writable=True)

    def _set_writable(
        self, exchange: Exchange, answered: Callable[[int], Struct], *, writable: bool
    ) -> None:
        header = from_ext(WritePermOfBrokerRequestHeader, exchange.request.ext)
        event = SetWritable(
            cluster=header.cluster_name or "", name=header.broker_name, writable=writable
        )

        def answer(result: Result) -> RemotingCommand:
            if result.topic_count is None:
                return reply(exchange.request, result.code, result.remark)
            if result.changed:
                _log.info("writes through routes", broker_name=event.name, allowed=writable)
            return reply(exchange.request, ext=to_ext(answered(result.topic_count)))

        self._dispatcher.write(exchange, event, answer)

    def _update_config(self, exchange: Exchange) -> None:
        event = ChangeSettings(settings=settings_text.parse(exchange.request.body))

        def answer(result: Result) -> RemotingCommand:
            if result.changed:
                _log.info("name service settings changed", names=", ".join(sorted(event.settings)))
            return reply(exchange.request, result.code, result.remark)

        self._dispatcher.write(exchange, event, answer)

    def _get_config(self, exchange: Exchange) -> None:
        def answer() -> RemotingCommand:
            state = self._machine.state
            shared = {name: settings_text.flag(setting(state, name)) for name in DEFAULTS}
            return reply(exchange.request, body=settings_text.write(self._listing() | shared))

        self._dispatcher.read(exchange, answer)
