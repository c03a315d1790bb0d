"""Tag subscriptions: what a consumer group wants of a topic.

Upstream: ``FilterAPI`` and ``DefaultMessageFilter``. The broker compares 32-bit tag codes; clients
compare the texts again, so a collision costs a transfer and never a wrong delivery.
"""

from gantry_protocol.bodies import SubscriptionData
from gantry_protocol.errors import BodyError
from gantry_protocol.records import tags_code

TAG = "TAG"
ALL = "*"


def is_tag(expression_type: str | None) -> bool:
    """Whether it is the one kind of filter this broker offers; absent counts as TAG."""
    return not expression_type or expression_type == TAG


def parse(topic: str, expression: str | None) -> SubscriptionData:
    """The subscription in a pull request.

    Raises:
        BodyError: the expression names no tag.
    """
    if not expression or expression == ALL:
        return SubscriptionData(topic=topic, sub_string=ALL)
    tags = [tag.strip() for tag in expression.split("||") if tag.strip()]
    if not tags:
        raise BodyError(f"The subscription {expression[:64]!r} names no tag.")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set=[tags_code(tag) for tag in tags],
    )


def wanted_codes(subscription: SubscriptionData) -> frozenset[int] | None:
    """The tag codes to deliver; None delivers everything."""
    if subscription.sub_string == ALL or subscription.class_filter_mode:
        return None
    return frozenset(subscription.code_set)
