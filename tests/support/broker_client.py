"""A client of a broker's request processor, without a socket."""

from __future__ import annotations

import asyncio

from gantry_broker.clients import ClientProcessor
from gantry_protocol.command import RemotingCommand, request
from support.group_view import FakeConnection
from support.patience import PATIENCE_S


class Client:
    """One connection, and its requests answered by the processor."""

    def __init__(self, processor: ClientProcessor, language: str = "JAVA") -> None:
        self.conn = FakeConnection()
        self.processor = processor
        self.language = language
        self.opaque = 100

    def ask(
        self, code: int, ext: dict[str, object] | None = None, body: bytes = b"", **options
    ) -> tuple[RemotingCommand, RemotingCommand | None]:
        """The request, and its answer if that came at once."""
        texts = None if ext is None else {key: _text(value) for key, value in ext.items()}
        asked = request(code, texts, body, **options)
        self.opaque += 1
        asked.opaque, asked.language = self.opaque, self.language
        answer = self.processor(self.conn, asked)
        if answer is None:
            found = [response for to, response in self.conn.replies if to is asked]
            answer = found[0] if found else None
        return asked, answer

    def call(self, code: int, ext: dict[str, object] | None = None, body: bytes = b""):
        """The answer, which must have come."""
        asked, answer = self.ask(code, ext, body)
        assert answer is not None
        assert answer.opaque == asked.opaque
        assert answer.is_response
        return answer

    async def answer(self, code: int, ext: dict[str, object] | None = None, body: bytes = b""):
        """The answer, which may come later."""
        asked, answer = self.ask(code, ext, body)
        async with asyncio.timeout(PATIENCE_S):
            while answer is None and not any(to is asked for to, _ in self.conn.replies):
                await asyncio.sleep(0.001)
        return answer or self.conn.answer_to(asked)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
