"""A bucket's keys from the files of a mounted Secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_pipeline.source import objects
from gantry_pipeline.source.objects import CREDENTIALS_DIR, open_objects
from gantry_protocol.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CREDENTIALS_DIR, str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def opened(monkeypatch: pytest.MonkeyPatch, **options: str) -> dict[str, object]:
    """What the S3 client is given."""
    given: dict[str, object] = {}

    def client(
        _url: str, _bucket: str, _prefix: str, settings: dict[str, object], **_: bool
    ) -> None:
        given.update(settings)

    monkeypatch.setattr(objects, "_s3_store", client)
    open_objects("s3://bucket/p", options)
    return given


def test_keys_are_those_of_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "accessKeyId").write_text("id\n")
    (folder / "secretAccessKey").write_text("secret\n")
    assert opened(monkeypatch) == {"access_key_id": "id", "secret_access_key": "secret"}
    (folder / "sessionToken").write_text("token")
    assert opened(monkeypatch)["session_token"] == "token"


@pytest.mark.parametrize("there", ["accessKeyId", "secretAccessKey"])
def test_a_missing_key_is_named(folder: Path, there: str) -> None:
    (folder / there).write_text("value")
    (missing,) = {"accessKeyId", "secretAccessKey"} - {there}
    with pytest.raises(ConfigError, match=f"{folder}/{missing} is missing or empty"):
        open_objects("s3://bucket/p")


def test_what_is_no_key_is_not_shown(folder: Path) -> None:
    (folder / "accessKeyId").write_bytes("schlüssel".encode())
    with pytest.raises(ConfigError, match="cannot be read as a key") as caught:
        open_objects("s3://bucket/p")
    assert "schl" not in str(caught.value)


@pytest.mark.usefixtures("folder")
def test_options_win_and_anonymous_reads_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(monkeypatch, anonymous="true") == {"skip_signature": True}
    given = opened(monkeypatch, accessKeyId="a", secretAccessKey="b")
    assert given == {"access_key_id": "a", "secret_access_key": "b"}
