"""One Spark session for all tests here: starting it takes longer than all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of each kind pays for what Spark starts: a JVM, workers, a stream."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from gantry_pipeline import session

    try:
        session.java()
    except session.NoSparkError as error:
        pytest.skip(f"NO SPARK TEST RAN: {error}")
    found = session.start(
        "tests",
        master="local[2]",
        driver_memory_mib=1024,
        log=tmp_path_factory.mktemp("spark") / "spark.log",
        # Much is compiled here and little is computed: the quick compiler and the small collector.
        java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        settings={
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(tmp_path_factory.mktemp("local")),
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield found
    found.stop()


@pytest.fixture
def tier_path(tmp_path: Path) -> Path:
    found = tmp_path / "tier"
    found.mkdir()
    return found
