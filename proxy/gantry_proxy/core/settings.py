"""The settings that clients are told when they have told theirs. Upstream's defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_protocol.lite import LITE_TOPIC_CHARS_MAX

from gantry_proxy.core.lites import quota
from gantry_proxy.core.outgoing import BODY_BYTES_MAX
from gantry_proxy.messages import Settings

if TYPE_CHECKING:
    from gantry_protocol.bodies.client import SubscriptionGroupConfig

PRODUCER_ATTEMPTS = 3
PRODUCER_BACKOFF_MS = (10, 1_000, 2.0)  # first, longest, factor
RECEIVE_BATCH = 32
LONG_POLL_MS = 20_000
RETRY_AFTER_MS = tuple(
    1000 * s for s in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800)
)


def told(settings: Any, group: SubscriptionGroupConfig | None) -> Any:
    """The client's ``Settings``, with the server's word where it has one.

    Args:
        settings: as they came.
        group: of a consumer; None for a producer.
    """
    made = Settings()
    made.CopyFrom(settings)
    policy = made.backoff_policy
    if made.HasField("publishing"):
        policy.max_attempts = PRODUCER_ATTEMPTS
        first_ms, longest_ms, factor = PRODUCER_BACKOFF_MS
        policy.exponential_backoff.initial.FromMilliseconds(first_ms)
        policy.exponential_backoff.max.FromMilliseconds(longest_ms)
        policy.exponential_backoff.multiplier = factor
        made.publishing.validate_message_type = False
        made.publishing.max_body_size = BODY_BYTES_MAX
    elif made.HasField("subscription") and group is not None:
        made.subscription.receive_batch_size = RECEIVE_BATCH
        made.subscription.long_polling_timeout.FromMilliseconds(LONG_POLL_MS)
        made.subscription.fifo = group.consume_message_orderly
        made.subscription.lite_subscription_quota = quota(group)
        made.subscription.max_lite_topic_size = LITE_TOPIC_CHARS_MAX
        policy.max_attempts = group.retry_max_times + 1
        policy.ClearField("strategy")
        for after_ms in RETRY_AFTER_MS:
            policy.customized_backoff.next.add().FromMilliseconds(after_ms)
    made.metric.on = False
    return made
