"""Subscriptions: what a consumer group wants of a topic, by tags or by a filter in SQL.

Upstream: ``FilterAPI`` and ``DefaultMessageFilter``. The broker compares 32-bit tag codes; clients
compare the texts again, so a collision costs a transfer and never a wrong delivery. Filters in SQL
are the broker's alone (``core.filters``).
"""

from gantry_protocol.bodies import SubscriptionData
from gantry_protocol.errors import BodyError
from gantry_protocol.records import tags_code

from gantry_broker.clients.core.filters.sql import FILTERS, SQL92

TAG = "TAG"
ALL = "*"


def is_tag(expression_type: str | None) -> bool:
    """Whether it is a filter by tags; absent counts as one."""
    return not expression_type or expression_type == TAG


def is_known(expression_type: str | None) -> bool:
    """Whether it is a kind of filter that this broker offers."""
    return is_tag(expression_type) or expression_type == SQL92


def parse(
    topic: str, expression: str | None, expression_type: str | None = TAG
) -> SubscriptionData:
    """The subscription in a request, of a known type.

    Raises:
        BodyError: the expression names no tag, or is no filter in SQL.
    """
    if not is_tag(expression_type):
        sql = FILTERS.get(expression or "").source
        return SubscriptionData(topic=topic, sub_string=sql, expression_type=SQL92)
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
    is_other = subscription.class_filter_mode or not is_tag(subscription.expression_type)
    if subscription.sub_string == ALL or is_other:
        return None
    return frozenset(subscription.code_set)


def wanted_sql(subscription: SubscriptionData) -> str | None:
    """The filter in SQL that messages must pass, which need not compile; None without any."""
    if subscription.class_filter_mode or is_tag(subscription.expression_type):
        return None
    return subscription.sub_string


def check_sql(subscription: SubscriptionData) -> None:
    """Compile the filter in SQL of a subscription, if it has one.

    Raises:
        BodyError: it is none.
    """
    sql = wanted_sql(subscription)
    if sql is not None:
        FILTERS.get(sql)
