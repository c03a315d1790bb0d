"""A client that speaks gRPC with the proxy's own messages, and adds nothing as official ones do."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from typing import Any, Self

import grpc.aio
from gantry_proxy import messages
from gantry_proxy.messages import CODES, MESSAGE_TYPES
from gantry_proxy.service import NAME

NAMES = {number: name for name, number in CODES.items()}


def code(answer: Any) -> str:
    """The name of an answer's status."""
    return NAMES[answer.status.code]


def signed_metadata(client: str, user: str = "", secret: str = "") -> dict[str, str]:
    """A call's metadata, as official clients sign them; ``user`` empty: unsigned."""
    named = {"x-mq-client-id": client}
    if not user:
        return named
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    signature = hmac.new(secret.encode(), when.encode(), hashlib.sha1).hexdigest()
    text = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return named | {"x-mq-date-time": when, "authorization": text}


class FakeCall:
    """A call of a client that the proxy's library did not make."""

    def __init__(
        self, client: str = "c", user: str = "", secret: str = "", peer: str = "10.0.0.1:5000"
    ) -> None:
        self.metadata = signed_metadata(client, user, secret)
        self.peer = peer
        self.behalf: dict[str, str] = {}

    def left_s(self) -> float | None:
        return 1.0


class GrpcClient:
    """One client: a connection, and a name."""

    def __init__(
        self,
        address: str,
        name: str = "client-1",
        *,
        credentials: grpc.ChannelCredentials | None = None,
        named: str = "",
        user: str = "",
        secret: str = "",
    ) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host, int(port)
        self.metadata = tuple(signed_metadata(name, user, secret).items())
        if credentials is None:
            self.channel = grpc.aio.insecure_channel(address)
        else:  # a certificate for ``named`` is expected
            options = (("grpc.ssl_target_name_override", named),)
            self.channel = grpc.aio.secure_channel(address, credentials, options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def ask(self, method: str, wanted: Any, timeout_s: float = 10.0) -> Any:
        """The answer to a request of one."""
        call = self.channel.unary_unary(f"/{NAME}/{method}")
        data = await call(wanted.SerializeToString(), metadata=self.metadata, timeout=timeout_s)
        return getattr(messages, f"{method}Response").FromString(data)

    def queue(self, topic: str, broker_name: str, queue_id: int = -1) -> Any:
        """A ``MessageQueue``, within a request."""
        made = messages.ReceiveMessageRequest().message_queue
        made.topic.name, made.broker.name, made.id = topic, broker_name, queue_id
        return made

    async def route(self, topic: str) -> Any:
        """QueryRoute."""
        wanted = messages.QueryRouteRequest()
        wanted.topic.name = topic
        self._endpoints(wanted.endpoints)
        return await self.ask("QueryRoute", wanted)

    async def assignment(self, topic: str, group: str) -> Any:
        """QueryAssignment."""
        wanted = messages.QueryAssignmentRequest()
        wanted.topic.name, wanted.group.name = topic, group
        self._endpoints(wanted.endpoints)
        return await self.ask("QueryAssignment", wanted)

    def _endpoints(self, endpoints: Any) -> None:
        endpoints.scheme = 1
        endpoints.addresses.add(host=self._host, port=self._port)

    async def send(self, topic: str, *bodies: bytes, kind: str = "NORMAL", **system: object) -> Any:
        """SendMessage; the unique key of a message is the beginning of its body."""
        wanted = messages.SendMessageRequest()
        for body in bodies:
            message = wanted.messages.add(body=body)
            message.topic.name = topic
            message.system_properties.message_id = body[:64].decode()
            message.system_properties.message_type = MESSAGE_TYPES[kind]
            for name, value in system.items():
                if name == "delivery_timestamp":  # ms since 1970
                    message.system_properties.delivery_timestamp.FromMilliseconds(value)
                else:
                    setattr(message.system_properties, name, value)
        return await self.ask("SendMessage", wanted)

    def receiving(self, topic: str, group: str, place: str, **changes: Any) -> Any:
        """A ReceiveMessageRequest."""
        wanted = messages.ReceiveMessageRequest(batch_size=32)
        wanted.group.name = group
        wanted.message_queue.CopyFrom(self.queue(topic, place, changes.pop("queue_id", -1)))
        wanted.invisible_duration.FromMilliseconds(changes.pop("invisible_ms", 10_000))
        wanted.long_polling_timeout.FromMilliseconds(changes.pop("poll_ms", 0))
        wanted.filter_expression.type = 2 if changes.pop("is_sql", False) else 1
        wanted.filter_expression.expression = changes.pop("expression", "*")
        for name, value in changes.items():
            setattr(wanted, name, value)
        return wanted

    def stream(self, wanted: Any, timeout_s: float = 30.0) -> Any:
        """ReceiveMessage, as it goes on."""
        call = self.channel.unary_stream(f"/{NAME}/ReceiveMessage")
        return call(wanted.SerializeToString(), metadata=self.metadata, timeout=timeout_s)

    async def receive(
        self, topic: str, group: str, place: str, **changes: Any
    ) -> tuple[str, list[Any]]:
        """ReceiveMessage: the code, and the messages."""
        answers = [
            messages.ReceiveMessageResponse.FromString(data)
            async for data in self.stream(self.receiving(topic, group, place, **changes))
        ]
        assert answers[-1].WhichOneof("content") == "delivery_timestamp"
        return code(answers[0]), [item.message for item in answers[1:-1]]

    async def pull(
        self, topic: str, group: str, place: str, queue_id: int, offset: int, **changes: Any
    ) -> tuple[str, list[bytes], int | None]:
        """PullMessage: the code, the bodies, and the offset to pull next."""
        wanted = messages.PullMessageRequest(offset=offset, batch_size=changes.pop("batch", 32))
        wanted.group.name = group
        wanted.message_queue.CopyFrom(self.queue(topic, place, queue_id))
        wanted.long_polling_timeout.FromMilliseconds(changes.pop("poll_ms", 0))
        wanted.filter_expression.type = 1
        wanted.filter_expression.expression = changes.pop("expression", "*")
        call = self.channel.unary_stream(f"/{NAME}/PullMessage")
        answers = [
            messages.PullMessageResponse.FromString(data)
            async for data in call(wanted.SerializeToString(), metadata=self.metadata, timeout=30.0)
        ]
        bodies = [item.message.body for item in answers if item.WhichOneof("content") == "message"]
        is_told = answers[-1].WhichOneof("content") == "next_offset"
        return code(answers[0]), bodies, answers[-1].next_offset if is_told else None

    async def receive_code(self, topic: str, group: str, place: str) -> str:
        """ReceiveMessage: the code of the first answer."""
        stream = self.stream(self.receiving(topic, group, place))
        return code(messages.ReceiveMessageResponse.FromString(await anext(aiter(stream))))

    async def ack(self, topic: str, group: str, *handles: str) -> list[str]:
        """AckMessage: the code of each handle."""
        wanted = messages.AckMessageRequest()
        wanted.topic.name, wanted.group.name = topic, group
        for handle in handles:
            wanted.entries.add(receipt_handle=handle)
        answer = await self.ask("AckMessage", wanted)
        return [NAMES[entry.status.code] for entry in answer.entries]

    async def change(self, topic: str, group: str, handle: str, invisible_ms: int) -> Any:
        """ChangeInvisibleDuration."""
        wanted = messages.ChangeInvisibleDurationRequest(receipt_handle=handle)
        wanted.topic.name, wanted.group.name = topic, group
        wanted.invisible_duration.FromMilliseconds(invisible_ms)
        return await self.ask("ChangeInvisibleDuration", wanted)

    async def bury(self, topic: str, group: str, handle: str) -> Any:
        """ForwardMessageToDeadLetterQueue."""
        wanted = messages.ForwardMessageToDeadLetterQueueRequest(receipt_handle=handle)
        wanted.topic.name, wanted.group.name = topic, group
        return await self.ask("ForwardMessageToDeadLetterQueue", wanted)

    async def end(
        self, topic: str, transaction_id: str, resolution: int, *, was_asked: bool = False
    ) -> Any:
        """EndTransaction: 1 commits, 2 rolls back."""
        wanted = messages.EndTransactionRequest(
            transaction_id=transaction_id, resolution=resolution, source=2 if was_asked else 1
        )
        wanted.topic.name = topic
        return await self.ask("EndTransaction", wanted)

    def telemetry(self, *commands: Any) -> Telemetry:
        """A stream, on which these are said first."""
        return Telemetry(self, commands)


class Telemetry:
    """A stream of telemetry."""

    def __init__(self, client: GrpcClient, first: tuple[Any, ...]) -> None:
        self._said: asyncio.Queue[bytes | None] = asyncio.Queue()
        for command in first:
            self._said.put_nowait(command.SerializeToString())
        call = client.channel.stream_stream(f"/{NAME}/Telemetry")
        self._call = call(self._commands(), metadata=client.metadata)
        self._heard = self._call.__aiter__()

    async def _commands(self) -> AsyncIterator[bytes]:
        while (command := await self._said.get()) is not None:
            yield command

    async def hear(self) -> Any:
        """The next command of the server."""
        return messages.TelemetryCommand.FromString(await anext(self._heard))

    def leave(self) -> None:
        """Break the stream off."""
        self._call.cancel()


def settings(*, group: str = "", topics: tuple[str, ...] = ()) -> Any:
    """A command with the settings of a push consumer, or of a producer."""
    command = messages.TelemetryCommand()
    if group:
        command.settings.subscription.group.name = group
        for topic in topics:
            command.settings.subscription.subscriptions.add().topic.name = topic
    else:
        command.settings.publishing.SetInParent()
        for topic in topics:
            command.settings.publishing.topics.add().name = topic
    return command
