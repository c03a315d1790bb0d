"""The measurement of many groups starts as `make` starts it: nobody has set anything for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gantry_lab.measure import groups
from gantry_lab.measure.groups import GroupClient, is_even
from support.many_groups import ManyGroups


class StartedError(Exception):
    """Brokers would be started now."""


async def test_its_brokers_may_go_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def brokers(*_: object) -> None:
        raise StartedError(os.environ["GANTRY_ALLOW_UNAUTHENTICATED"])

    monkeypatch.setenv("GANTRY_ALLOW_UNAUTHENTICATED", "of the tests")
    monkeypatch.delenv("GANTRY_ALLOW_UNAUTHENTICATED")
    monkeypatch.setattr(groups, "ManyGroups", brokers)
    with pytest.raises(StartedError, match="true"):
        await groups.main(3)


async def test_what_a_writer_saw(tmp_path: Path) -> None:
    writer = GroupClient(ManyGroups(tmp_path, 3), "g-000", "127.0.0.1")
    writer.acks = [(0.0, 0.1), (1.0, 1.1), (1.2, 3.1), (3.2, 3.3), (4.0, 4.1)]
    assert writer.has_written_since(4.0)
    assert not writer.has_written_since(4.01)
    assert writer.again_ms(1.5) == pytest.approx(1800), "the send before was on its way already"
    assert writer.gap_ms(1.5, 3.5) == pytest.approx(2000)
    assert writer.gap_ms(3.2, 3.5) == pytest.approx(800)


async def test_even_is_equally_many_or_one_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ManyGroups(tmp_path, 4)
    first, second, third = cluster.ips
    masters = dict(zip(cluster.names, (first, second, third, third), strict=True))
    monkeypatch.setattr(cluster, "master_ip", masters.__getitem__)
    assert is_even(cluster)
    masters[cluster.names[0]] = second
    assert not is_even(cluster), "one leads nothing"
    masters[cluster.names[0]] = ""
    assert not is_even(cluster), "one has no master"
