"""Consumers at the controller: subscription groups, and members as masters report them.

A subscription group is committed here first, as a topic is; the group's master reads the table when
it learns of a newer version. A membership is what the master reports of its clients, and so is who
owns which queue.
"""

from functools import partial

from gantry_protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    decode_body,
    decode_request,
    encode_body,
)
from gantry_protocol.bodies.consumers import (
    ChangedConsumers,
    ClusterClient,
    ClusterMembership,
    ConsumerClient,
    ConsumerMembership,
    ConsumerReport,
    ConsumerSubscription,
    ConsumerTable,
    LockedQueue,
    LockList,
    LockReport,
)
from gantry_protocol.bodies.route import DataVersion
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers import from_ext, to_ext
from gantry_protocol.headers.brokeradmin import DeleteSubscriptionGroupRequestHeader
from gantry_protocol.headers.consumers import (
    GetChangedConsumersRequestHeader,
    GetConsumersRequestHeader,
    GetLocksRequestHeader,
    ReportConsumersRequestHeader,
    ReportLocksRequestHeader,
    SubscriptionGroupRequestHeader,
    SubscriptionsVersionHeader,
)
from gantry_protocol.types import Index
from msgspec.structs import replace

from gantry_controller.metadata.attributes import AttributesError
from gantry_controller.metadata.clients import Client, ConsumerGroup, QueueOwner, Subscription
from gantry_controller.metadata.consumer_view import ClusterGroup
from gantry_controller.metadata.events import (
    DeleteSubscriptionGroup,
    PutSubscriptionGroup,
    ReportConsumers,
    ReportLocks,
)
from gantry_controller.metadata.group_attributes import changed
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.state import BrokerGroup
from gantry_controller.remoting.dispatcher import Dispatcher, Exchange, Serve


class ConsumerRequests:
    """Handlers of the consumers' codes on one node."""

    def __init__(self, dispatcher: Dispatcher, machine: MetadataStateMachine) -> None:
        self._dispatcher = dispatcher
        self._machine = machine

    def handlers(self) -> dict[RequestCode, Serve]:
        """The handlers of this module's requests."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._put,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
            RequestCode.GANTRY_REPORT_CONSUMERS: self._report,
            RequestCode.GANTRY_GET_CONSUMERS: self._members,
            RequestCode.GANTRY_GET_CHANGED_CONSUMERS: self._changes,
            RequestCode.GANTRY_REPORT_LOCKS: self._report_locks,
            RequestCode.GANTRY_GET_LOCKS: self._locks,
        }

    # Subscription groups.

    def _put(self, exchange: Exchange) -> RemotingCommand | None:
        header = from_ext(SubscriptionGroupRequestHeader, exchange.request.ext)
        config = decode_request(SubscriptionGroupConfig, exchange.request.body)
        cluster, name = header.cluster_name or "", header.broker_name or ""
        try:
            known = self._attributes(cluster, name, config.group_name)
            attributes = changed(known, config.attributes)
        except AttributesError as error:
            return reply(exchange.request, ResponseCode.INVALID_PARAMETER, str(error))
        event = PutSubscriptionGroup(
            cluster=cluster,
            name=name,
            group=config.group_name,
            config=encode_body(replace(config, attributes=attributes)),
        )
        self._dispatcher.write(exchange, event, lambda result: _changed(exchange.request, result))
        return None

    def _attributes(self, cluster: str, name: str, group: str) -> dict[str, str]:
        """Those that a consumer group has in a broker group, or in the first of a cluster."""
        place = (
            self._machine.group(cluster, name)
            if name
            else next(self._machine.state.serving_by_name(cluster), None)
        )
        table = None if place is None else self._machine.state.subscription_table(place.key)
        known = None if table is None else table.groups.get(group)
        return {} if known is None else decode_body(SubscriptionGroupConfig, known).attributes

    def _delete(self, exchange: Exchange) -> None:
        header = from_ext(DeleteSubscriptionGroupRequestHeader, exchange.request.ext)
        event = DeleteSubscriptionGroup(
            cluster=header.cluster_name or "",
            name=header.broker_name or "",
            group=header.group_name,
        )
        self._dispatcher.write(exchange, event, lambda result: _changed(exchange.request, result))

    def _list(self, exchange: Exchange) -> None:
        header = from_ext(SubscriptionGroupRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            group = self._machine.group(header.cluster_name, header.broker_name or "")
            if group is None:
                return self._no_group(exchange, header.cluster_name, header.broker_name or "")
            table = self._machine.state.subscription_table(group.key)
            body = SubscriptionGroupTable(
                {
                    name: decode_body(SubscriptionGroupConfig, config)
                    for name, config in sorted(table.groups.items())
                },
                DataVersion(counter=table.version),
            )
            ext = to_ext(SubscriptionsVersionHeader(table.version))
            return reply(exchange.request, ext=ext, body=encode_body(body))

        self._dispatcher.read(exchange, answer)

    # Memberships.

    def _report(self, exchange: Exchange) -> None:
        header = from_ext(ReportConsumersRequestHeader, exchange.request.ext)
        report = decode_body(ConsumerReport, exchange.request.body)
        groups: dict[str, ConsumerGroup | None] = dict.fromkeys(report.gone)
        groups.update({name: _as_value(item) for name, item in report.groups.items()})
        event = ReportConsumers(
            cluster=header.cluster_name,
            name=header.broker_name,
            broker_id=header.broker_id,
            master_epoch=header.master_epoch,
            incarnation=header.incarnation,
            groups=groups,
        )
        self._dispatcher.write(
            exchange, event, lambda result: reply(exchange.request, result.code, result.remark)
        )

    def _members(self, exchange: Exchange) -> None:
        header = from_ext(GetConsumersRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            group = self._machine.group(header.cluster_name, header.broker_name)
            if group is None:
                return self._no_group(exchange, header.cluster_name, header.broker_name)
            return self._table(exchange, group, header.consumer_group)

        self._dispatcher.read(exchange, answer)

    def _changes(self, exchange: Exchange) -> None:
        header = from_ext(GetChangedConsumersRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            state = self._machine.state
            page = state.cluster_consumers(header.cluster_name).page(
                Index(header.since), header.after, partial(state.cluster_group, header.cluster_name)
            )
            groups = {name: _in_cluster(group) for name, group in page.groups.items()}
            body = ChangedConsumers(page.since, page.after, page.is_whole, page.more, groups)
            return reply(exchange.request, body=encode_body(body))

        self._dispatcher.read(exchange, answer)

    # Owners of queues.

    def _report_locks(self, exchange: Exchange) -> None:
        header = from_ext(ReportLocksRequestHeader, exchange.request.ext)
        report = decode_body(LockReport, exchange.request.body)
        event = ReportLocks(
            cluster=header.cluster_name,
            name=header.broker_name,
            broker_id=header.broker_id,
            master_epoch=header.master_epoch,
            incarnation=header.incarnation,
            serial=header.serial,
            groups={
                name: tuple(QueueOwner(item.topic, item.queue_id, item.client_id) for item in items)
                for name, items in report.groups.items()
            },
        )
        self._dispatcher.write(
            exchange, event, lambda result: reply(exchange.request, result.code, result.remark)
        )

    def _locks(self, exchange: Exchange) -> None:
        header = from_ext(GetLocksRequestHeader, exchange.request.ext)

        def answer() -> RemotingCommand:
            group = self._machine.group(header.cluster_name, header.broker_name)
            if group is None:
                return self._no_group(exchange, header.cluster_name, header.broker_name)
            table = self._machine.state.lock_table(group.key)
            groups = {
                name: [LockedQueue(item.topic, item.queue_id, item.client_id) for item in items]
                for name, items in sorted(table.groups.items())
            }
            body = LockList(groups, table.epoch, table.serial)
            return reply(exchange.request, body=encode_body(body))

        self._dispatcher.read(exchange, answer)

    def _table(self, exchange: Exchange, group: BrokerGroup, wanted: str | None) -> RemotingCommand:
        table = self._machine.state.consumer_table(group.key)
        groups = {
            name: _as_body(item)
            for name, item in sorted(table.groups.items())
            if wanted is None or name == wanted
        }
        return reply(exchange.request, body=encode_body(ConsumerTable(groups, table.version)))

    def _no_group(self, exchange: Exchange, cluster: str | None, name: str) -> RemotingCommand:
        remark = self._machine.state.ambiguity(cluster, name)
        code = ResponseCode.CONTROLLER_INVALID_REQUEST
        if remark is None:
            code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
            remark = f"There is no broker group {name}"
        return reply(exchange.request, code, remark)


def _changed(to: RemotingCommand, result: Result) -> RemotingCommand:
    ext = to_ext(SubscriptionsVersionHeader(result.subscriptions_version))
    return reply(to, result.code, result.remark, ext)


def _as_value(members: ConsumerMembership) -> ConsumerGroup:
    return ConsumerGroup(
        clients=tuple(
            Client(client.client_id, client.language, client.version) for client in members.clients
        ),
        subscriptions=tuple(
            Subscription(subscription.topic, subscription.expression, subscription.expression_type)
            for subscription in members.subscriptions
        ),
        message_model=members.message_model,
        consume_type=members.consume_type,
        consume_from_where=members.consume_from_where,
    )


def _as_body(group: ConsumerGroup) -> ConsumerMembership:
    return ConsumerMembership(
        clients=[
            ConsumerClient(client.client_id, client.language, client.version)
            for client in group.clients
        ],
        subscriptions=[
            ConsumerSubscription(
                subscription.topic, subscription.expression, subscription.expression_type
            )
            for subscription in group.subscriptions
        ],
        message_model=group.message_model,
        consume_type=group.consume_type,
        consume_from_where=group.consume_from_where,
    )


def _in_cluster(group: ClusterGroup) -> ClusterMembership:
    latest = group.latest or ConsumerGroup(())
    return ClusterMembership(
        generation=group.generation,
        clients=[
            ClusterClient(client.client_id, client.language, client.version, list(heard_by))
            for client, heard_by in group.clients
        ],
        subscriptions=[
            ConsumerSubscription(wanted.topic, wanted.expression, wanted.expression_type)
            for wanted in group.subscriptions
        ],
        message_model=latest.message_model,
        consume_type=latest.consume_type,
        consume_from_where=latest.consume_from_where,
    )
