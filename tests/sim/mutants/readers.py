"""Bugs in reads at replicas: what they answer, whom masters suggest, what routes name."""

from __future__ import annotations

from sim.mutants.mutant import Mutant, Seeds, UnitTests
from sim.mutants.planting import Edit

RULES = "gantry_broker.clients.core.readers"
PLACING = "gantry_broker.clients.core.placing"
READS = "gantry_broker.member.replica_reads"
REPLICA = "unit/broker/member/test_replica_reads.py"
CORE = "unit/broker/clients/core/test_readers.py"
PLACES = "unit/broker/clients/core/test_placing.py"
SUGGESTED = "unit/broker/clients/test_suggestions.py"
NAMES = "unit/controller/nameserver/test_names.py::TestRoute"


def _mutant(name: str, what: str, place: str, text: str, other: str, killer: str) -> Mutant:
    return Mutant(name, "readers", what, (Edit(place, text, other),), UnitTests(killer))


MUTANTS = (
    Mutant(
        "a-replica-judges-like-upstreams",
        "readers",
        "a replica that lags tells a consumer to go back, which gets messages again",
        (
            Edit(
                f"{RULES}:may_answer",
                "return held.first <= offset < held.end or (offset == held.end and can_wait)",
                "return True",
            ),
            Edit(f"{READS}:_OwnRecords._was_read", "is_empty or result.status in _MINE", "True"),
        ),
        Seeds("product-readers", 12),
    ),
    _mutant(
        "reads-beyond-its-end",
        "a replica that lags keeps a consumer waiting for what the master has long confirmed",
        f"{RULES}:may_answer",
        "(offset == held.end and can_wait)",
        "(offset >= held.end and can_wait)",
        f"{CORE}::test_a_replica_answers_from_the_part_that_it_has",
    ),
    _mutant(
        "the-end-is-nothing-new",
        "a pull that cannot wait is told that there is nothing, by a replica that cannot know",
        f"{RULES}:may_answer",
        "(offset == held.end and can_wait)",
        "offset == held.end",
        f"{CORE}::test_a_replica_answers_from_the_part_that_it_has",
    ),
    _mutant(
        "reads-out-of-the-set",
        "a replica that the master does not count on serves what it had when it was lost",
        f"{RULES}:Ties.is_fresh",
        "self.is_counted",
        "True",
        f"{CORE}::test_a_replica_that_is_out_of_touch_is_not_fresh",
    ),
    _mutant(
        "reads-under-a-deposed-master",
        "a replica that follows a deposed master serves its consumers for as long as that lives",
        f"{RULES}:Ties.is_fresh",
        "and self.controllers_silent_ms <= CONTROLLERS_SILENT_MS",
        "",
        f"{CORE}::test_a_replica_that_is_out_of_touch_is_not_fresh",
    ),
    _mutant(
        "a-lease-without-end",
        "consumers stay at a replica for ever, whatever load it has",
        f"{RULES}:Leases.holds",
        "return until_s is None or until_s > now_s",
        "return True",
        f"{REPLICA}::test_a_consumer_asks_the_master_once_in_a_while",
    ),
    _mutant(
        "ignorance-moves-an-offset",
        "a replica tells a consumer that its offset is wrong, or that there was an error",
        f"{READS}:_OwnRecords._was_read",
        "done(GetResult(GetStatus.OFFSET_IN_TIER, wanted.offset, 0, end, remark=_NOT_HERE))",
        "done(result)",
        f"{REPLICA}::test_what_a_replica_cannot_read_is_the_masters_to_judge",
    ),
    _mutant(
        "waits-at-a-lost-replica",
        "a consumer waits at a replica that is cut off while messages come elsewhere",
        f"{READS}:ReplicaReads.look",
        "or now_s - self._fresh_s > GRACE_S",
        "",
        f"{REPLICA}::test_who_waits_is_sent_to_the_master_once_the_replica_is_out_of_touch",
    ),
    _mutant(
        "waits-at-a-leaving-replica",
        "a replica that ends cuts its consumers instead of sending them to the master",
        f"{READS}:ReplicaReads.look",
        "and not group.writes.leaving",
        "",
        f"{REPLICA}::test_a_replica_that_leaves_sends_everybody_away_at_once",
    ),
    _mutant(
        "everybody-moves-to-the-lightest",
        "consumers go back and forth between members",
        f"{PLACING}:Placing._choose",
        "* STAYS_UP_TO + weight",
        "",
        f"{PLACES}::test_nobody_goes_back_and_forth",
    ),
    _mutant(
        "all-consumers-weigh-the-same",
        "the two consumers that read most are served by one member",
        f"{PLACING}:_measured",
        "return max((now + before) / 2, 1.0)",
        "return 1.0",
        f"{PLACES}::test_a_consumer_that_reads_more_counts_for_more",
    ),
    _mutant(
        "orderly-groups-are-sent-away",
        "consumers in order read from replicas",
        "gantry_broker.clients.suggestions:Suggestions.suggest",
        "or self._view.consumers.locks.is_held(group)",
        "",
        f"{SUGGESTED}::test_a_group_that_consumes_in_order_stays_at_the_master",
    ),
    _mutant(
        "replicas-read-mapped-queues",
        "a replica reads a queue of its own group for one that another group has by now",
        "gantry_broker.clients.pull_asides:PullAsides.pull",
        " or MAPPED in topic.attributes",
        "",
        f"{REPLICA}::test_queues_of_mapped_topics_are_read_at_masters",
    ),
    _mutant(
        "a-client-for-each-connection",
        "a consumer that comes by over its replica is counted, and placed, a second time",
        "gantry_broker.clients.suggestions:Suggestions._client",
        'f"#{connection_id}" if member is None else member.client_id',
        'f"#{connection_id}"',
        f"{SUGGESTED}::test_a_client_is_the_same_over_each_of_its_connections",
    ),
    _mutant(
        "a-reader-is-a-second-member",
        "each consumer that connects to a replica makes its whole group divide the queues anew",
        "gantry_broker.clients.sessions:Sessions._join",
        "(is_here or self._was_one(group.name, member.client_id))",
        "self._was_one(group.name, member.client_id)",
        "unit/broker/clients/test_membership.py"
        "::test_a_clients_second_connection_is_no_change_of_its_group",
    ),
    _mutant(
        "confirm-comes-with-the-heartbeat",
        "consumers at replicas get each message up to a fifth of a second later",
        "gantry_broker.replica.core:ReplicaCore.confirm_news",
        "return [] if self.serving is None else self.serving.confirm_news(self._now_ms)",
        "return []",
        "unit/broker/replica/test_stream.py"
        "::test_members_in_sync_hear_of_confirm_at_once_where_somebody_waits_for_it",
    ),
    _mutant(
        "routes-name-lost-members",
        "consumers are led to a member that is not in sync, or gone",
        "gantry_controller.nameserver.routes:_readers",
        "if member.broker_id in group.sync_state_set and",
        "if",
        f"{NAMES}::test_names_no_reader_that_is_not_in_sync",
    ),
    _mutant(
        "clusters-without-a-route",
        "a proxy of RocketMQ finds no broker of the cluster, and does not start",
        "gantry_controller.nameserver.routes:_keys_with",
        ", *of_cluster",
        "",
        f"{NAMES}::test_names_of_clusters_and_groups_have_one",
    ),
    _mutant(
        "groups-without-a-route",
        "a proxy of RocketMQ finds no broker for a receipt, and no message is acknowledged",
        "gantry_controller.nameserver.routes:_keys_with",
        "*state.named(name), ",
        "",
        f"{NAMES}::test_names_of_clusters_and_groups_have_one",
    ),
    _mutant(
        "names-hide-topics",
        "consumers of a topic that is called as its cluster is are led where it is not",
        "gantry_controller.nameserver.routes:_keys_with",
        "all(key in state.imports for key in having)",
        "True",
        f"{NAMES}::test_a_topic_of_a_cluster_s_name_is_at_the_groups_that_have_it",
    ),
    _mutant(
        "readers-before-the-roll-out-ends",
        "an older controller refuses what the others apply, and stops",
        "gantry_controller.remoting.topics:TopicRequests._create_topic",
        "and not self._watchman.may_raise()",
        "and False",
        f"{NAMES}::test_readers_wait_for_the_last_controller",
    ),
    _mutant(
        "readers-without-members",
        "a topic asks for more readers than there can be, and nobody says so",
        "gantry_controller.metadata.topic_index:too_many_readers",
        "most <= max(members, 1)",
        "True",
        f"{NAMES}::test_more_readers_than_members_are_refused",
    ),
)
