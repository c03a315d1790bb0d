"""Reading a directory and a bucket, and one Spark job over the bucket."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gantry_pipeline.source.objects import MissingObject, Objects, StoreError, open_objects
from gantry_protocol.errors import ConfigError
from support.moto_server import make_bucket, moto_server
from support.tier_directory import TierDirectory, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCY"
KEYS = {"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": SECRET, "region": "eu-west-1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with moto_server(tmp_path_factory.mktemp("moto") / "log") as port:
        yield port


def uploaded(port: int, root: Path) -> str:
    """The URL of a bucket with the files below ``root`` under the prefix `tier`."""
    bucket = make_bucket(port)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for path in sorted(root.rglob("*")):
        if path.is_file():
            key = path.relative_to(root)
            connection.request("PUT", f"/{bucket}/tier/{key}", path.read_bytes())
            response = connection.getresponse()
            response.read()
            assert response.status == 200
    connection.close()
    return f"s3://{bucket}/tier"


def opened(kind: str, port: int, root: Path) -> Objects:
    if kind == "file":
        return open_objects(root.as_uri())
    return open_objects(uploaded(port, root), {"endpoint": f"http://127.0.0.1:{port}", **KEYS})


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_what_reading_a_tier_needs(kind: str, server: int, tmp_path: Path) -> None:
    for key in ("c/aa/x/man/1", "c/aa/x/man/2", "c/aa/x/man/3", "c/aa/x/meta.json", "d/bb/y/z"):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(key.encode() * 2)
    objects = opened(kind, server, tmp_path)
    assert objects.children("") == ["c", "d"]
    assert objects.children("c/aa/") == ["x"]
    assert list(objects.keys("c/aa/x/man/")) == [(f"c/aa/x/man/{v}", 24) for v in (1, 2, 3)]
    assert [key for key, _ in objects.keys("c/aa/x/man/", after="c/aa/x/man/1")] == [
        "c/aa/x/man/2",
        "c/aa/x/man/3",
    ]
    assert list(objects.keys("c/aa/none/")) == []
    assert objects.get("d/bb/y/z") == b"d/bb/y/zd/bb/y/z"
    assert objects.get_range("d/bb/y/z", 2, 4) == b"bb"
    assert objects.tail("d/bb/y/z", 3) == (b"y/z", 16)
    assert objects.tail("d/bb/y/z", 99) == (b"d/bb/y/zd/bb/y/z", 16)
    for call in (
        lambda: objects.get("d/none"),
        lambda: objects.get_range("d/none", 0, 1),
        lambda: objects.tail("d/none", 1),
    ):
        with pytest.raises(MissingObject, match="d/none is missing in "):
            call()


def test_a_bucket_that_is_not_there_is_no_missing_object(server: int) -> None:
    objects = open_objects("s3://nobody", {"endpoint": f"http://127.0.0.1:{server}", **KEYS})
    for call in (lambda: objects.get("a/b"), lambda: objects.children("")):
        with pytest.raises(StoreError, match="s3://nobody cannot be read: 404 Not Found"):
            call()


def test_a_job_over_a_bucket(spark: SparkSession, server: int, tier_path: Path) -> None:
    tier = TierDirectory(tier_path)
    tier.claim(1)
    tier.append(messages("orders", 30))
    url = uploaded(server, tier_path)
    frame = (
        spark.read.format("tier").options(endpoint=f"http://127.0.0.1:{server}", **KEYS).load(url)
    )
    assert frame.groupBy("queue_id").count().orderBy("queue_id").collect() == [(0, 15), (1, 15)]
    plan = frame._jdf.queryExecution().toString()
    assert SECRET not in plan


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://bucket/prefix", "There are no credentials for s3://bucket/prefix: set AWS_ACCESS"),
        ("s3:///prefix", "s3:///prefix names no bucket"),
        ("s3://key:secret@bucket/", "holds credentials"),
        ("gs://bucket", "file:// and s3:// can"),
        ("file://host/directory", "three slashes"),
        ("/does/not/exist", "/does/not/exist is no directory"),
    ],
)
def test_a_url_that_cannot_be_meant(url: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(ConfigError, match=said) as refused:
        open_objects(url)
    assert "key:secret" not in str(refused.value)
