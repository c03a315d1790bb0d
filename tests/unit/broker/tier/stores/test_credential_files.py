"""Keys in files: read as they are now, and never silently missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.tier.stores import StoreRefused, open_store
from gantry_broker.tier.stores.credentials import CredentialFiles, Credentials
from gantry_protocol.errors import ConfigError

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCY"


def written(directory: Path, **keys: str) -> CredentialFiles:
    for name, text in keys.items():
        (directory / name).write_text(text)
    return CredentialFiles(directory)


def test_keys_are_read_without_the_newline_that_editors_add(tmp_path: Path) -> None:
    files = written(tmp_path, accessKeyId="AKIA\n", secretAccessKey=f"{SECRET}\n")
    assert files.read() == Credentials("AKIA", SECRET)


def test_a_changed_key_is_the_next_answer(tmp_path: Path) -> None:
    files = written(tmp_path, accessKeyId="AKIA", secretAccessKey=SECRET)
    before = files.read()
    written(tmp_path, secretAccessKey="other", sessionToken="token")
    assert files.read() == Credentials("AKIA", "other", "token") != before


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        ({}, "accessKeyId"),
        ({"accessKeyId": "AKIA"}, "secretAccessKey"),
        ({"accessKeyId": " ", "secretAccessKey": SECRET}, "accessKeyId"),
    ],
    ids=["no Secret", "half a Secret", "an empty key"],
)
def test_a_missing_key_is_named(tmp_path: Path, keys: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigError, match=f"{missing} is missing or empty") as refused:
        written(tmp_path, **keys).read()
    assert SECRET not in str(refused.value)


def test_what_is_no_text_is_no_key(tmp_path: Path) -> None:
    (tmp_path / "accessKeyId").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="accessKeyId is no key"):
        CredentialFiles(tmp_path).read()


async def test_a_store_without_its_keys_says_so_and_asks_nobody(tmp_path: Path) -> None:
    store = open_store("s3://bucket", CredentialFiles(tmp_path), endpoint="http://127.0.0.1:1")
    with pytest.raises(StoreRefused, match="accessKeyId is missing or empty"):
        await store.get("a", max_bytes=1)
