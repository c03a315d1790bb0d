"""Manifests of all kinds that are wrong, and the words of each answer.

Those in `REFUSED` the API server refuses; those in `ANSWERED` it takes, and the operator answers
them in the resource's status. Specs of BrokerGroups that older tests refuse are in `wrong_specs`
and `template_cases`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

Json = dict[str, Any]
VERSION: Final = "mq.gantry.dev/v1alpha1"
SPARE: Final = "spare"
"""A ControllerGroup that is there and paused: what refers to it gets no process."""
NO_DATE: Final = {"request": 1, "to": "yesterday", "topics": ["orders"]}


class Wrong(NamedTuple):
    """A manifest that is refused.

    Attributes:
        kind: of the resource.
        words: in the refusal.
        spec: of the resource; None for none at all.
        name: of the resource.
    """

    kind: str
    words: str
    spec: Any
    name: str = "wrong"

    @property
    def manifest(self) -> Json:
        """As it is applied."""
        return _manifest(self.kind, self.name, self.spec)


class Answered(NamedTuple):
    """A manifest that is taken, and answered by a condition.

    Attributes:
        kind: of the resource.
        reason: of the condition.
        words: in its message, which say what to do.
        spec: of the resource.
        name: of the resource.
        condition: its type.
        before: objects that are there already.
    """

    kind: str
    reason: str
    words: str
    spec: Json
    name: str
    condition: str = "Accepted"
    before: tuple[Json, ...] = ()

    @property
    def manifest(self) -> Json:
        """As it is applied."""
        return _manifest(self.kind, self.name, self.spec)


def _manifest(kind: str, name: str, spec: Any) -> Json:
    return {
        "apiVersion": VERSION,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def _group(words: str, name: str = "wrong", **spec: Any) -> Wrong:
    return Wrong("BrokerGroup", words, spec, name)


def _quorum(words: str, name: str = "wrong", **spec: Any) -> Wrong:
    return Wrong("ControllerGroup", words, spec, name)


def _fronts(words: str, name: str = "wrong", **spec: Any) -> Wrong:
    return Wrong("FrontGroup", words, spec, name)


def _topic(words: str, name: str = "wrong", **spec: Any) -> Wrong:
    return Wrong("Topic", words, spec, name)


def _user(words: str, name: str = "wrong", **spec: Any) -> Wrong:
    return Wrong("MessageUser", words, spec, name)


def _consumers(words: str, name: str = "wrong", **spec: Any) -> Wrong:
    return Wrong("ConsumerGroup", words, spec, name)


def _rule(**fields: Any) -> list[Json]:
    return [{"resource": "Topic:orders", "actions": ["Pub"]} | fields]


BUCKET: Final = {"url": "s3://bucket/prefix"}
BOTH_PEERS: Final = {"clientsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}
PLAIN: Final = {"name": "outside", "type": "NodePort"}
REFUSED: Final[dict[str, Wrong]] = {
    "group: capital letter": _group("RFC 1123", "Wrong"),
    "group: digit first": _group("must start with a letter", "1st"),
    "group: dot": _group("only lower-case letters", "a.b"),
    "group: long name": _group("at most 45 characters", "x" * 46),
    "group: list for a spec": Wrong("BrokerGroup", "spec", []),
    "group: unknown field": _group("spec.replica", replica=3),
    "group: text for a number": _group("spec.replicas", replicas="three"),
    "group: no replica": _group("spec.replicas", replicas=0),
    "group: shard too many": _group("spec.shards", shards=101),
    "group: shards by role": _group(
        "set it to Group or Pod", shards=2, clients={"route": "Master"}
    ),
    "group: shards moved": _group("move one by the admin API", shards=2, switchover={"id": "a"}),
    "group: shards audited": _group(
        "gantry pipeline audit for each",
        shards=2,
        tier=BUCKET,
        pipeline={"audit": {"schedule": "17 3 * * *"}},
    ),
    "group: shards forget": _group(
        "gantry forget SHARD", shards=2, forget={"id": "a", "brokerId": 1}
    ),
    "group: shards in a zone": _group("remove it", shards=2, preferredMaster={"zones": ["a"]}),
    "group: zone twice": _group("preferredMaster.zones", preferredMaster={"zones": ["a", "a"]}),
    "group: all fenced": _group("set hibernated to true instead", replicas=2, fenced=[0, 1]),
    "group: sleeps without a volume": _group(
        "set it to false", replicas=1, storage={"type": "EmptyDir"}, hibernated=True
    ),
    "group: quantity": _group("spec.storage.size", storage={"size": "twenty"}),
    "group: no class": _group("spec.storage.className", storage={"className": ""}),
    "group: keys in a url": _group("give keys by", tier={"url": "s3://key:secret@bucket"}),
    "group: tier at no store": _group("correct it", tier={"url": "ftp://bucket"}),
    "group: endpoint with a path": _group(
        "tier.endpoint must be", tier=BUCKET | {"endpoint": "http://store:9000/bucket"}
    ),
    "group: region of a directory": _group(
        "for s3:// only", tier={"url": "file:///tier", "region": "eu"}
    ),
    "group: retention beside a tier": _group(
        "set tier.localBytes", tier=BUCKET, retention={"hours": 4}
    ),
    "group: audit without a tier": _group(
        "set tier.url to s3://BUCKET", pipeline={"audit": {"schedule": "17 3 * * *"}}
    ),
    "group: audit of no time": _group(
        "spec.pipeline.audit.schedule", tier=BUCKET, pipeline={"audit": {"schedule": "daily"}}
    ),
    "group: listener in the open": _group("tls.mode Enforcing", clients={"listeners": [PLAIN]}),
    "group: listener's name": _group(
        "spec.clients.listeners[0].name", clients={"listeners": [PLAIN | {"name": "Out side"}]}
    ),
    "group: two peers in one": _group("name one kind", networkPolicy=BOTH_PEERS),
    "group: change of no id": _group(
        "spec.update.approved", update={"strategy": "Supervised", "approved": "yes!"}
    ),
    "group: memory": _group("resources.requests", resources={"requests": {"memory": "4 GiB"}}),
    "group: sidecar of our name": _group(
        "must not be named",
        template={"spec": {"sidecars": [{"name": "broker", "image": "a:1"}]}},
    ),
    "quorum: long name": _quorum("at most 41 characters", "x" * 42),
    "quorum: an even number": _quorum("spec.replicas", replicas=2),
    "quorum: too many": _quorum("spec.replicas", replicas=7),
    "quorum: no volume": _quorum("set replicas to 1", replicas=3, storage={"type": "EmptyDir"}),
    "quorum: unknown field": _quorum("spec.storage.class", storage={"class": "fast"}),
    "quorum: setting of ours": _quorum("sets itself", config={"data_dir": "/tmp"}),
    "quorum: no identity": _quorum("spec.clusterUid", clusterUid=""),
    "quorum: listener in the open": _quorum("tls.mode Enforcing", clients={"listeners": [PLAIN]}),
    "quorum: port of no node": _quorum(
        "nodePort", clients={"listeners": [PLAIN | {"nodePort": 40000, "allowPlain": True}]}
    ),
    "quorum: tls without a secret": _quorum("spec.tls.secretName", tls={"mode": "Enforcing"}),
    "quorum: affinity": _quorum(
        "spec.template.spec.affinity", template={"spec": {"affinity": "near"}}
    ),
    "fronts: long name": _fronts("at most 40 characters", "x" * 41),
    "fronts: none": _fronts("spec.replicas", replicas=0),
    "fronts: ports": _fronts("spec.ports", ports=65),
    "fronts: node port of no address": _fronts(
        "needs service.advertisedAddress", service={"type": "NodePort"}
    ),
    "fronts: node ports beyond": _fronts(
        "must not go beyond 32767",
        service={"type": "NodePort", "advertisedAddress": "a", "firstNodePort": 32767},
    ),
    "fronts: port in an address": _fronts(
        "spec.service.advertisedAddress", service={"advertisedAddress": "http://a/"}
    ),
    "fronts: fewer at most": _fronts(
        "raise maxReplicas", autoscaling={"enabled": True, "minReplicas": 5, "maxReplicas": 2}
    ),
    "fronts: tier of a key": _fronts("give keys by", tier={"url": "s3://a:b@bucket"}),
    "fronts: type of a service": _fronts("spec.service.type", service={"type": "External"}),
    "topic: no queue": _topic("spec.queues", queues=0),
    "topic: too many queues": _topic("spec.queues", queues=4097),
    "topic: fewer read": _topic("raise readQueues or lower queues", queues=8, readQueues=4),
    "topic: dotted name": _topic("set spec.topicName", "a.b"),
    "topic: name with a blank": _topic("spec.topicName", topicName="my topic"),
    "topic: permission": _topic("spec.permission", permission="RW"),
    "topic: type": _topic("spec.messageType", messageType="FIFO"),
    "topic: readers": _topic("spec.readers", readers="all"),
    "topic: policy": _topic("spec.deletionPolicy", deletionPolicy="Keep"),
    "user: ours": _user("take another name", "gantry"),
    "user: long name": _user("set spec.userName", "x" * 65),
    "user: name with a blank": _user("spec.userName", userName="John Doe"),
    "user: no action": _user("spec.rules[0].actions", rules=_rule(actions=[])),
    "user: unknown action": _user("spec.rules[0].actions[0]", rules=_rule(actions=["Send"])),
    "user: resource of no kind": _user("spec.rules[0].resource", rules=_rule(resource="orders")),
    "user: one rule twice": _user("duplicate entries", rules=_rule() + _rule(actions=["Sub"])),
    "user: secret in the open": _user("spec.secretKey", secretKey="hunter2hunter2"),
    "consumers: dotted name": _consumers("set spec.groupName", "a.b"),
    "consumers: name with a blank": _consumers("spec.groupName", groupName="my group"),
    "consumers: retries": _consumers("spec.maxRetries", maxRetries=-2),
    "consumers: reset to no moment": _consumers("spec.resetOffsets.to", resetOffsets=NO_DATE),
    "consumers: reset of no topic": _consumers(
        "spec.resetOffsets.topics", resetOffsets=NO_DATE | {"to": "Latest", "topics": []}
    ),
    "consumers: reset without a number": _consumers(
        "spec.resetOffsets.request", resetOffsets={"to": "Latest", "topics": ["orders"]}
    ),
}
NOWHERE: Final[Json] = {"controllerRef": {"name": "nowhere"}}
SPARED: Final[Json] = {"controllerRef": {"name": SPARE}}
_SECRET: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "said-short", "namespace": "default"},
    "stringData": {"secretKey": "short"},
}
ANSWERED: Final[dict[str, Answered]] = {
    "group: nobody's": Answered(
        "BrokerGroup", "ControllerGroupNotFound", "create it there", NOWHERE, "lost-group"
    ),
    "group: unknown setting": Answered(
        "BrokerGroup",
        "InvalidSpec",
        "log_segment_bytes",
        SPARED | {"config": {"log_segment_byte": "1"}},
        "unknown-setting",
    ),
    "group: setting out of range": Answered(
        "BrokerGroup",
        "InvalidSpec",
        "log_segment_bytes",
        SPARED | {"config": {"log_segment_bytes": "1"}},
        "small-setting",
    ),
    "group: setting in capitals": Answered(
        "BrokerGroup",
        "InvalidSpec",
        "rename the keys",
        SPARED | {"config": {"logSegmentBytes": "67108864"}},
        "capital-setting",
    ),
    "group: listener of no quorum": Answered(
        "BrokerGroup",
        "ListenerUnknown",
        "add it to its spec.clients",
        {"paused": True, "clients": {"listeners": [PLAIN | {"allowPlain": True}]}},
        "unknown-listener",
        condition="ListenersServed",
    ),
    "quorum: unknown setting": Answered(
        "ControllerGroup",
        "InvalidSpec",
        "election_timeout_ms",
        {"config": {"election_timeout": "400"}},
        "unknown-setting",
    ),
    "quorum: setting that is no number": Answered(
        "ControllerGroup",
        "InvalidSpec",
        "election_timeout_ms",
        {"config": {"election_timeout_ms": "fast"}},
        "wordy-setting",
    ),
    "fronts: nobody's": Answered(
        "FrontGroup", "ControllerGroupNotFound", "create it there", NOWHERE, "lost-fronts"
    ),
    "fronts: second": Answered(
        "FrontGroup",
        "ClusterHasFronts",
        "delete one of the two",
        SPARED,
        "second-fronts",
        before=(_manifest("FrontGroup", "first-fronts", SPARED | {"paused": True}),),
    ),
    "topic: nobody's": Answered(
        "Topic", "ControllerGroupNotFound", "create it there", NOWHERE, "lost-topic"
    ),
    "topic: second": Answered(
        "Topic",
        "AnotherOwnsIt",
        "delete one of the two",
        {"topicName": "shared"},
        "second-topic",
        before=(_manifest("Topic", "first-topic", {"topicName": "shared"}),),
    ),
    "topic: too many readers": Answered(
        "Topic", "InvalidSpec", "lower it", {"readers": "99"}, "many-readers"
    ),
    "user: nobody's": Answered(
        "MessageUser", "ControllerGroupNotFound", "create it there", NOWHERE, "lost-user"
    ),
    "user: source of no network": Answered(
        "MessageUser",
        "InvalidSpec",
        "correct them",
        {"rules": _rule(sources=["10.0.0.0/99"])},
        "no-network",
    ),
    "user: no secret": Answered(
        "MessageUser",
        "SecretNotUsable",
        "create it with the key secretKey",
        {"secretRef": {"name": "absent"}},
        "no-secret",
        condition="Ready",
    ),
    "user: secret without the key": Answered(
        "MessageUser",
        "SecretNotUsable",
        "has no key token: add it",
        {"secretRef": {"name": "said-short", "key": "token"}},
        "no-key",
        condition="Ready",
        before=(_SECRET,),
    ),
    "user: short secret": Answered(
        "MessageUser",
        "SecretNotUsable",
        "cannot be a user's secret",
        {"secretRef": {"name": "said-short"}},
        "short-secret",
        condition="Ready",
        before=(_SECRET,),
    ),
    "user: the quorum's secret": Answered(
        "MessageUser",
        "SecretNotUsable",
        "name another one",
        {"secretRef": {"name": "gantry-admin", "key": "token"}},
        "grasping",
        condition="Ready",
    ),
    "consumers: nobody's": Answered(
        "ConsumerGroup", "ControllerGroupNotFound", "create it there", NOWHERE, "lost-consumers"
    ),
    "consumers: second": Answered(
        "ConsumerGroup",
        "AnotherOwnsIt",
        "delete one of the two",
        {"groupName": "shared"},
        "second-consumers",
        before=(_manifest("ConsumerGroup", "first-consumers", {"groupName": "shared"}),),
    ),
}
