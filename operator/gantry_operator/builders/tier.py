"""Settings and files of the pods of a group with a tier.

Rule protected: a key of the bucket is nowhere but in the Secret and in the pods' memory; it is no
environment variable, which tools print and child processes inherit. The Secret is optional to the
kubelet: a pod must not fail to start, and a group must not stop serving, for want of a bucket's
keys; the broker says what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator import names
from gantry_operator.builders import pods

if TYPE_CHECKING:
    from gantry_operator.builders.meta import Manifest
    from gantry_operator.models import BrokerGroup

URL = "GANTRY_TIER_URL"


def tier_env(group: BrokerGroup) -> tuple[Manifest, ...]:
    """The settings; none without a tier."""
    tier = group.spec.tier
    if tier is None:
        return ()
    settings: dict[str, object] = {
        URL: tier.url,
        "GANTRY_TIER_SHARD": group.metadata.uid,
        "GANTRY_TIER_ENDPOINT": tier.endpoint,
        "GANTRY_TIER_REGION": tier.region,
        "GANTRY_TIER_CREDENTIALS_DIR": names.TIER_KEYS_DIR if tier.credentials_secret else None,
        "GANTRY_TIER_PACK_BYTES": tier.pack_bytes,
        "GANTRY_TIER_LINGER_MS": tier.linger_ms,
        "GANTRY_TIER_RETRY_MAX_MS": tier.retry_max_ms,
        "GANTRY_TIER_LOCAL_BYTES": tier.local_bytes,
    }
    return tuple(pods.value(name, str(text)) for name, text in settings.items() if text is not None)


def tier_keys(group: BrokerGroup) -> pods.MountedSecret | None:
    """The Secret with the bucket's keys; None if there is none."""
    tier = group.spec.tier
    if tier is None or tier.credentials_secret is None:
        return None
    source: Manifest = {
        "secretName": tier.credentials_secret.name,
        "items": [{"key": key, "path": key} for key in names.TIER_KEYS],
        "defaultMode": pods.READABLE_BY_GROUP,
        "optional": True,
    }
    return pods.MountedSecret("tier-keys", source, names.TIER_KEYS_DIR)
