"""A store whose keys lie in files: the next request is signed with what they hold by then."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gantry_broker.tier.stores import StoreRefused, open_store
from gantry_broker.tier.stores.credentials import CredentialFiles

SECRETS = ("wJalrXUtnFEMIK7MDENGbPxRfiCY", "nEwNeWnEwNeWnEwNeWnEw")


class Server:
    """Refuses everybody, repeats a secret as no service should, and remembers who asked."""

    def __init__(self) -> None:
        self.port = 0
        self.said = ""
        self.askers: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asker = re.search(r"Credential=(\w+)/", head)
        self.askers.append(asker.group(1) if asker else "nobody")
        body = f"<Error><Code>{self.said}</Code><Message>{SECRETS}</Message></Error>"
        writer.write(
            f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            f"{body}".encode()
        )
        writer.close()


@asynccontextmanager
async def refusing() -> AsyncIterator[Server]:
    made = Server()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


async def test_a_changed_secret_signs_the_next_request(tmp_path: Path) -> None:
    async with refusing() as server:
        store = open_store(
            "s3://bucket", CredentialFiles(tmp_path), endpoint=f"http://127.0.0.1:{server.port}"
        )
        for number, secret in enumerate(SECRETS):
            (tmp_path / "accessKeyId").write_text(f"KEY{number}")
            (tmp_path / "secretAccessKey").write_text(secret)
            server.said = secret
            for _ in range(2):
                with pytest.raises(StoreRefused, match=r"403 Forbidden \(\*\*\*\)") as refused:
                    await store.get("a", max_bytes=1)
                assert not any(one in str(refused.value) for one in SECRETS[: number + 1])
    assert server.askers == ["KEY0", "KEY0", "KEY1", "KEY1"]
