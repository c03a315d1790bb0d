"""gRPC by ``grpcio``: the only module that knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import grpc
import grpc.aio
from gantry_protocol.errors import ConfigError
from gantry_protocol.hosts import join_address
from gantry_protocol.tls.process import NO_TLS, Tls

from gantry_proxy.rpc import CallAborted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from gantry_protocol.tls.contexts import Certificate

    from gantry_proxy.rpc import Duplex, Methods, Streaming, Unary

MESSAGE_BYTES_MAX = 8 * 1024 * 1024  # of a request; a body has 4 MiB at most
STREAMS_MAX = 1_000  # of one connection
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_metadata_size", 16 * 1024),
)


class GrpcCall:
    """A ``rpc.Call``."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.behalf: dict[str, str] = {}
        self.metadata: Mapping[str, str] = {
            item.key: item.value
            for item in context.invocation_metadata()
            if isinstance(item.value, str)
        }

    @property
    def peer(self) -> str:
        """``host:port``, of ``ipv4:host:port``."""
        return unquote(str(self._context.peer()).partition(":")[2])

    def left_s(self) -> float | None:
        """See ``rpc.Call``."""
        left: float | None = self._context.time_remaining()
        return left


class GrpcServer:
    """A port for gRPC.

    Args:
        services: what is served.
        concurrent_max: calls at once; further ones are refused.
        tls: of the process; where it has a certificate, TLS is all that is spoken.
    """

    def __init__(self, services: Sequence[Methods], concurrent_max: int, tls: Tls = NO_TLS) -> None:
        self._tls = tls
        self._server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=concurrent_max)
        self._server.add_generic_rpc_handlers(tuple(map(_handlers, services)))

    async def start(self, host: str, port: int) -> int:
        """Listen; the port.

        Raises:
            ConfigError: the address cannot be had.
        """
        address = join_address(host, port)
        try:
            if self._tls.is_served:
                bound = int(self._server.add_secure_port(address, _credentials(self._tls)))
            else:
                bound = int(self._server.add_insecure_port(address))
        except RuntimeError as error:
            raise ConfigError(f"Cannot listen at {address} for gRPC: {error}.") from error
        await self._server.start()
        return bound

    async def stop(self, grace_s: float) -> None:
        """Take no new call; end those that are not over after ``grace_s``."""
        await self._server.stop(grace_s)


def _handlers(methods: Methods) -> Any:
    handlers = {
        **{
            name: grpc.unary_unary_rpc_method_handler(_unary(one))
            for name, one in methods.unary.items()
        },
        **{
            name: grpc.unary_stream_rpc_method_handler(_streaming(one))
            for name, one in methods.streaming.items()
        },
        **{
            name: grpc.stream_stream_rpc_method_handler(_duplex(one))
            for name, one in methods.duplex.items()
        },
    }
    return grpc.method_handlers_generic_handler(methods.name, handlers)


def _credentials(tls: Tls) -> Any:
    """Credentials that are asked for anew at each handshake, by threads of the library."""
    shown = tls.for_server()

    def newest() -> Any:
        nonlocal shown
        found = tls.for_server()
        if found is shown:
            return None  # as it was
        shown = found
        return _configuration(found)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(shown),
        newest,
        require_client_authentication=shown.client_ca_pem is not None,
    )


def _configuration(shown: Certificate) -> Any:
    pair = (shown.key_pem, shown.pem)
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=shown.client_ca_pem)


def _unary(handler: Unary) -> Any:
    async def serve(data: bytes, context: Any) -> bytes:
        try:
            return await handler(data, GrpcCall(context))
        except CallAborted as aborted:
            await context.abort(grpc.StatusCode[aborted.code], str(aborted))
            raise  # which abort has done

    return serve


def _streaming(handler: Streaming) -> Any:
    async def serve(data: bytes, context: Any) -> AsyncIterator[bytes]:
        async for answer in handler(data, GrpcCall(context)):
            yield answer

    return serve


def _duplex(handler: Duplex) -> Any:
    async def serve(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for answer in handler(requests, GrpcCall(context)):
            yield answer

    return serve
