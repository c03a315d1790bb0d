"""What a broker is told about its tier becomes the limits of its uploads."""

from __future__ import annotations

from pathlib import Path

import pytest
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
    options = _tier(settings, "orders")
    assert options is not None
    assert options.limits == TierLimits(pack_bytes=8192, linger_ms=500, retry_max_ms=900)
    assert (options.place.uid, options.groups) == (settings.tier_shard, 1)


def test_groups_of_one_process_have_places_of_their_own() -> None:
    names = ["a", "b", "%odd|name", "n" * 127]
    settings = BrokerSettings(
        groups=[f"{name}:{port}" for port, name in enumerate(names, 1)],
        controllers=["127.0.0.1:9878"],
        tier_url="file:///tier",
        tier_shard="7c9e6679-7425-40de-944b-e07fc1f90ae7",
    )
    made = [_tier(settings, name) for name in names]
    places = [one.place.uid for one in made if one is not None]
    assert places[:2] == [f"{settings.tier_shard}.a", f"{settings.tier_shard}.b"]
    assert len(set(places)) == 4
    assert {one._replace(place=made[0].place) for one in made if one and made[0]} == {made[0]}


BASE = {"controllers": ["127.0.0.1:9878"]}
TIER = {"tier_url": "file:///tier", "tier_shard": "old"}


def test_who_took_a_tier_over_and_from_whom() -> None:
    def owners(**more: str) -> tuple[str, str]:
        settings = BrokerSettings.model_validate({"group": "orders"} | BASE | TIER | more)
        options = _tier(settings, "orders")
        assert options is not None
        return options.owner, options.former

    assert owners() == ("", "old")
    assert owners(tier_owner="new") == ("new", "old")
    assert owners(tier_owner="third", tier_former_owner="new") == ("third", "new")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"group": "orders", "tier_owner": "new"}, "there is nothing to begin from"),
        ({"groups": ["a"], "tier_owner": "new"} | TIER, "one group only can begin"),
        ({"group": "orders", "tier_former_owner": "a"} | TIER, "nothing is taken over"),
    ],
)
def test_settings_that_cannot_be_meant(wrong: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        BrokerSettings.model_validate(BASE | wrong)
