"""`spec.tier` and `status.tier`: where a group uploads its log to, and how far it has come.

Rules protected: no key is ever written into a resource, only the name of the Secret that holds it;
and a URL is fixed once something lies behind it, because what local retention has removed from the
replicas' volumes is in that place and nowhere else.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from gantry_operator.models.base import Model, Rule
from gantry_operator.models.known_settings import field_of
from gantry_operator.models.parts import NOT_NULLABLE

DIRECTORY = "file://"
_BUCKET = "s3://"
_MIB = 1024 * 1024

# Bucket and folder names as brokers take them; RE2 and Python read these the same.
_FOLDERS = "(/[A-Za-z0-9][A-Za-z0-9._-]*)*/?"
URL = f"^(s3://[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9]{_FOLDERS}|file:///[^?#]*)$"
ENDPOINT = "^https?://[^/@?#]+/?$"


class CredentialsSecret(Model):
    """The Secret with the keys of the bucket."""

    name: str = Field(
        min_length=1,
        max_length=253,
        description=(
            "Name of a Secret in the same namespace with the entries accessKeyId, secretAccessKey "
            "and, for temporary keys, sessionToken. A changed Secret takes effect without a "
            "restart, within about a minute. The operator never reads it. While it is missing "
            "nothing is uploaded, TierHealthy says so, and the group serves on."
        ),
    )


STORE_RULES: tuple[Rule, ...] = (
    Rule(
        f"self.url.matches('{URL}')",
        "tier.url must be s3://BUCKET or s3://BUCKET/PREFIX, with neither keys nor options in "
        "it: correct it, and give keys by tier.credentialsSecret",
        lambda tier: re.fullmatch(URL, tier.url) is not None,
    ),
    Rule(
        f"!has(self.endpoint) || self.endpoint.matches('{ENDPOINT}')",
        "tier.endpoint must be http://HOST:PORT or https://HOST:PORT and nothing more: correct it",
        lambda tier: tier.endpoint is None or re.fullmatch(ENDPOINT, tier.endpoint) is not None,
    ),
    Rule(
        f"self.url.startsWith('{_BUCKET}') || !has(self.endpoint) && !has(self.region)"
        " && !has(self.credentialsSecret)",
        "tier.endpoint, tier.region and tier.credentialsSecret are for s3:// only: remove them",
        lambda tier: (
            tier.url.startswith(_BUCKET)
            or (tier.endpoint is None and tier.region is None and not tier.credentials_secret)
        ),
    ),
)
"""What must be right about the place of a tier, whoever is told it."""


class FrontTier(Model):
    """The object store that fronts read while a broker group has no master."""

    url: str = field_of(
        "tier_url",
        default=...,
        description=(
            "spec.tier.url of the BrokerGroups: one store for all of them. Fronts serve, to be "
            "read, what a group's tier holds while no broker of it is there. No default."
        ),
    )
    endpoint: str | None = field_of("tier_endpoint", unset="AWS, by the region")
    region: str | None = field_of("tier_region", unset="us-east-1")
    credentials_secret: CredentialsSecret | None = Field(
        default=None,
        description=(
            "The Secret with the bucket's keys; the right to list and to read is enough. Default "
            "none: requests are not signed."
        ),
        json_schema_extra=NOT_NULLABLE,
    )

    rules: ClassVar[tuple[Rule, ...]] = STORE_RULES


class Tier(Model):
    """The object store that the master uploads the confirmed log to."""

    url: str = field_of(
        "tier_url",
        default=...,
        description=(
            "s3://BUCKET or s3://BUCKET/PREFIX; many groups may share it, each has a place of its "
            "own in it. The store must honour If-None-Match on writes (AWS, MinIO and Ceph do); "
            "one that does not is refused. file:///DIRECTORY is for gantry local only. No default. "
            "It cannot change once something has been uploaded, since messages that left the "
            "replicas' volumes are kept there and nowhere else."
        ),
    )
    endpoint: str | None = field_of("tier_endpoint", unset="AWS, by the region")
    region: str | None = field_of("tier_region", unset="us-east-1")
    credentials_secret: CredentialsSecret | None = Field(
        default=None,
        description=(
            "The Secret with the bucket's keys. Default none: requests are not signed, which only "
            "public buckets and test servers accept; the rights of the node are never used."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    pack_bytes: int = field_of("tier_pack_bytes")
    linger_ms: int = field_of("tier_linger_ms")
    retry_max_ms: int = field_of("tier_retry_max_ms")
    local_bytes: int | None = field_of("tier_local_bytes", ge=_MIB, unset="everything is kept")

    rules: ClassVar[tuple[Rule, ...]] = STORE_RULES

    @property
    def is_directory(self) -> bool:
        """Whether it lies in files that all replicas have to share."""
        return self.url.startswith(DIRECTORY)


class TierStatus(Model):
    """The progress of the group's tier."""

    uploader: int | None = Field(
        default=None,
        description="Ordinal of the replica that uploads, the master, where its pod is known.",
    )
    epoch: int = Field(
        description="Master epoch under which the uploader holds the tier; 0 with shards."
    )
    committed_offset: int | None = Field(
        default=None,
        description=(
            "The log below this offset is in the tier, in bytes from the log's beginning; with "
            "shards the sum."
        ),
        json_schema_extra=NOT_NULLABLE,
    )
    lag_seconds: int | None = Field(
        default=None,
        description=(
            "Age of the oldest acknowledged message that is not in the tier; 0 if there is none. "
            "With shards the greatest."
        ),
    )
    observed_at: str = Field(
        description=(
            "When this was so. It is written again every half minute, and at once when the "
            "uploader, the epoch or the health changes."
        ),
        json_schema_extra={"format": "date-time"},
    )


URL_IS_FIXED = Rule(
    "!has(oldSelf.spec.tier) || !has(oldSelf.status) || !has(oldSelf.status.tier)"
    " || !has(oldSelf.status.tier.committedOffset) || oldSelf.status.tier.committedOffset == 0"
    " || has(self.spec.tier) && self.spec.tier.url == oldSelf.spec.tier.url",
    "spec.tier.url is fixed, and spec.tier stays, once something has been uploaded, because older "
    "messages may be there and nowhere else: set it back, and create a new BrokerGroup for another "
    "place",
)
"""A rule of the whole resource, since it needs its status."""
