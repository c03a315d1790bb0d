"""What a broker is told about its tier becomes the limits of its uploads."""

from __future__ import annotations

from pathlib import Path

from gantry_broker.host.server import _tier
from gantry_broker.host.settings import BrokerSettings
from gantry_broker.tier.core.values import TierLimits


def test_settings_of_a_tier_are_the_limits_of_its_uploads(tmp_path: Path) -> None:
    settings = BrokerSettings(
        group="orders",
        controllers=["127.0.0.1:9878"],
        data_dir=tmp_path,
        tier_url="file:///tier",
        tier_shard="7c9e6679-7425-40de-944b-e07fc1f90ae7",
        tier_pack_bytes=8192,
        tier_linger_ms=500,
        tier_retry_max_ms=900,
    )
    options = _tier(settings)
    assert options is not None
    assert options.limits == TierLimits(pack_bytes=8192, linger_ms=500, retry_max_ms=900)
