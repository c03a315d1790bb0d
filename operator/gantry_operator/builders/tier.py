"""Settings and files of pods that use a tier: those of a broker group, and fronts.

Rule protected: a key of the bucket is nowhere but in the Secret and in the pods' memory; it is no
environment variable, which tools print and child processes inherit. The Secret is optional to the
kubelet: a pod must not fail to start, and a group must not stop serving, for want of a bucket's
keys; the broker says what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.process.config import variable_name

from gantry_operator import names
from gantry_operator.builders import pods
from gantry_operator.models.known_settings import settings_of

if TYPE_CHECKING:
    from gantry_operator.builders.meta import Manifest
    from gantry_operator.models import BrokerGroup, FrontGroup
    from gantry_operator.models.tier import FrontTier, Tier

URL = variable_name("tier_url")


def tier_env(group: BrokerGroup) -> tuple[Manifest, ...]:
    """The settings; none without a tier."""
    tier = group.spec.tier
    if tier is None:
        return ()
    return pods.settings(_place(group) | _store_settings(tier))


def place_of(group: BrokerGroup) -> str:
    """The group's name in the store: its uid, or the place that it took over."""
    bootstrap = group.spec.bootstrap
    return group.metadata.uid if bootstrap is None else bootstrap.from_tier.shard


def _place(group: BrokerGroup) -> dict[str, str]:
    settings = {"tier_shard": place_of(group)}
    if group.spec.bootstrap is not None:
        settings["tier_owner"] = group.metadata.uid
        former = group.spec.bootstrap.from_tier.former_owner
        if former is not None:
            settings["tier_former_owner"] = former
    return settings


def front_tier_env(group: FrontGroup) -> tuple[Manifest, ...]:
    """The settings of fronts that read tiers; none if they do not.

    The names of groups in the store are told to fronts by the controllers.
    """
    tier = group.spec.tier
    return () if tier is None else pods.settings(_store_settings(tier))


def _store_settings(tier: Tier | FrontTier) -> dict[str, str]:
    settings = settings_of(tier, "tier")
    if tier.credentials_secret:
        settings["tier_credentials_dir"] = names.TIER_KEYS_DIR
    return settings


def tier_keys(tier: Tier | FrontTier | None) -> pods.MountedSecret | None:
    """The Secret with the bucket's keys; None if there is none."""
    if tier is None or tier.credentials_secret is None:
        return None
    source: Manifest = {
        "secretName": tier.credentials_secret.name,
        "items": [{"key": key, "path": key} for key in names.TIER_KEYS],
        "defaultMode": pods.READABLE_BY_GROUP,
        "optional": True,
    }
    return pods.MountedSecret("tier-keys", source, names.TIER_KEYS_DIR)
