"""Settings of quotas and watermarks: what cannot be meant is one sentence."""

from __future__ import annotations

import pytest
from gantry_broker.host.settings import BrokerSettings
from gantry_broker.retention.core.rules import RetentionBounds
from gantry_protocol.errors import ConfigError
from gantry_protocol.process.config import load_settings
from gantry_protocol.settings.quotas import Quota

REQUIRED = {"GANTRY_GROUP": "orders", "GANTRY_CONTROLLERS": "127.0.0.1:9878"}


def _settings(**env: str) -> BrokerSettings:
    return load_settings(BrokerSettings, env={**REQUIRED, **env})


def test_nobody_has_a_quota_unless_somebody_says_so() -> None:
    assert _settings().parsed_quotas is None
    quotas = _settings(GANTRY_QUOTAS='{"tenants": {"a": {"sendsPerSecond": 5}}}').parsed_quotas
    assert quotas is not None
    assert quotas.tenants == {"a": Quota(sends_per_second=5)}
    assert quotas.per_tenant == Quota()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"GANTRY_QUOTAS": '{"tenant": {}}'}, "GANTRY_QUOTAS"),
        ({"GANTRY_QUOTAS": '{"perTenant": {"sendsPerSecond": -1}}'}, "negative"),
        ({"GANTRY_DISK_REFUSE_PERCENT": "80"}, "must be below"),
        ({"GANTRY_DISK_REFUSE_PERCENT": "101"}, "GANTRY_DISK_REFUSE_PERCENT"),
    ],
)
def test_what_cannot_be_meant_is_refused(env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _settings(**env)


@pytest.mark.parametrize(
    ("env", "kept"),
    [
        ({}, RetentionBounds(72.0, None, gives_way=True)),
        ({"GANTRY_RETENTION_HOURS": "0", "GANTRY_RETENTION_BYTES": "7"}, RetentionBounds(None, 7)),
        ({"GANTRY_RETENTION_WHEN_FULL": "refuse"}, RetentionBounds(72.0, gives_way=False)),
    ],
)
def test_how_much_of_a_log_is_kept(env: dict[str, str], kept: RetentionBounds) -> None:
    assert _settings(**env).kept == kept
