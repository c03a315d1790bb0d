from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.tier.stores import Credentials, PosixStore, open_store
from gantry_broker.tier.stores.objects import ObjectStore
from gantry_protocol.errors import ConfigError

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCY"


def test_directory(tmp_path: Path) -> None:
    (tmp_path / "with space").mkdir()
    store = open_store(f"file://{tmp_path}/with%20space")
    assert isinstance(store, PosixStore)
    assert store.url == f"file://{tmp_path}/with%20space"


@pytest.mark.parametrize(
    "url", ["s3://bucket", "s3://bucket/", "s3://bucket/a/b", "s3://bucket/a/b/"]
)
def test_bucket(url: str) -> None:
    store = open_store(url, Credentials("AKIA", SECRET), endpoint="http://127.0.0.1:1")
    assert isinstance(store, ObjectStore)
    assert store.url == url.rstrip("/")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is no store"),
        ("/data", "is no store"),
        ("gs://bucket", "is no store"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://ab", "names no bucket"),
        ("s3://Bucket", "names no bucket"),
        ("s3://bucket:9000/x", "names no bucket"),
        ("s3://bucket/../x", "prefix"),
        ("s3://bucket/a//b", "prefix"),
        ("s3://bucket/a%2fb", "prefix"),
        ("s3://bucket/x?region=eu", "options behind it"),
        ("s3://bucket/x#y", "options behind it"),
        ("file://host/data", "names a host"),
        ("file:data", "three slashes"),
        ("file:///no/such/directory", "is no directory"),
    ],
)
def test_url_that_is_none_is_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_store(url)


@pytest.mark.parametrize(
    "endpoint", ["", "localhost:9000", "ftp://x", "http://a:b@x", "http://x/y"]
)
def test_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"endpoint .* is none"):
        open_store("s3://bucket", endpoint=endpoint)


@pytest.mark.parametrize("url", [f"s3://AKIA:{SECRET}@bucket/x", f"s3://{SECRET}@bucket/x"])
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="holds credentials") as refused:
        open_store(url)
    assert SECRET not in str(refused.value)


def test_options_behind_a_url_are_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(f"s3://bucket/x?secret_access_key={SECRET}")
    assert SECRET not in str(refused.value)


def test_credentials_are_not_printed() -> None:
    credentials = Credentials("AKIA", SECRET, "token")
    assert repr(credentials) == "Credentials(***)"
    assert SECRET not in f"{credentials} {credentials!r}"
    assert repr(Credentials()) == "Credentials(anonymous)"


def test_credentials_from_the_environment() -> None:
    found = Credentials.from_environment(
        {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}
    )
    assert (found.access_key_id, found.secret_access_key, found.session_token) == ("a", "b", "c")
    assert Credentials.from_environment({}).is_anonymous
    with pytest.raises(ConfigError, match="AWS_SECRET_ACCESS_KEY is missing"):
        Credentials.from_environment({"AWS_ACCESS_KEY_ID": "a"})
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID is missing"):
        Credentials.from_environment({"AWS_SECRET_ACCESS_KEY": "b"})
