"""The order in which rules count, which is upstream's (AclAuthorizationHandler)."""

import pytest
from gantry_protocol.access.judgement import Demand, Judge
from gantry_protocol.access.rules import Action, ResourceKind, User, make_rule

HERE = "10.1.2.3"
PUB, SUB, GET = Action.PUB, Action.SUB, Action.GET
GROUP = ResourceKind.GROUP


def allows(rules: list[tuple], *demands: Demand, source: str = HERE) -> bool:
    user = User("secret-secret", rules=tuple(make_rule(*rule) for rule in rules))
    return Judge(user).refused(demands, source) is None


def on(name: str | None, *actions: Action, kind: ResourceKind = ResourceKind.TOPIC) -> Demand:
    return Demand(kind, name, actions)


ALLOW, DENY = "Allow", "Deny"


@pytest.mark.parametrize(
    ("rules", "demand", "expected"),
    [
        pytest.param([], on("t", PUB), False, id="no rule: denied"),
        pytest.param([("Topic:t", ["Pub"])], on("t", PUB), True, id="by name"),
        pytest.param([("Topic:t", ["Pub"])], on("t2", PUB), False, id="another name"),
        pytest.param([("Topic:t", ["Pub"])], on("t", SUB), False, id="another action"),
        pytest.param([("Topic:t", ["Pub"])], on("t", PUB, kind=GROUP), False, id="kind"),
        pytest.param([("Topic:t", ["All"])], on("t", SUB), True, id="all actions"),
        pytest.param([("Topic:t", ["Get"])], on("t", SUB, GET), True, id="one of two is enough"),
        pytest.param([("Topic:or*", ["Pub"])], on("orders", PUB), True, id="prefix"),
        pytest.param([("Topic:or*", ["Pub"])], on("or", PUB), True, id="prefix itself"),
        pytest.param([("Topic:or*", ["Pub"])], on("o", PUB), False, id="shorter than the prefix"),
        pytest.param([("Topic:*", ["Pub"])], on("x", PUB), True, id="all of a kind"),
        pytest.param([("Topic:*", ["Pub"])], on("x", PUB, kind=GROUP), False, id="but it"),
        pytest.param([("*", ["Pub"])], on("x", PUB, kind=GROUP), True, id="everything"),
        pytest.param(
            [("Topic:t", ["Pub"], [], DENY), ("Topic:*", ["Pub"])],
            on("t", PUB), False, id="a name before all of a kind",
        ),
        pytest.param(
            [("Topic:t", ["Pub"]), ("Topic:*", ["Pub"], [], DENY)],
            on("t", PUB), True, id="a name that allows before all that are denied",
        ),
        pytest.param(
            [("Topic:ord*", ["Pub"], [], DENY), ("Topic:or*", ["Pub"])],
            on("orders", PUB), False, id="the longer prefix first",
        ),
        pytest.param(
            [("Topic:or*", ["Pub"], [], DENY), ("Topic:ord*", ["Pub"])],
            on("orders", PUB), True, id="the longer prefix first, allowing",
        ),
        pytest.param(
            [("Topic:*", ["Pub"], [], DENY), ("*", ["Pub"])],
            on("t", PUB), False, id="a kind before everything",
        ),
        pytest.param(
            [("Topic:o*", ["Pub"], [], DENY), ("*", ["Pub"])],
            on("other", PUB), False, id="a prefix before everything",
        ),
        pytest.param(
            [("*", ["Pub"]), ("Topic:t", ["Pub"], [], DENY, "Default")],
            on("t", PUB), True, id="custom rules before default ones, however near",
        ),
        pytest.param(
            [("Topic:u", ["Pub"]), ("Topic:t", ["Pub"], [], ALLOW, "Default")],
            on("t", PUB), True, id="default ones where no custom one fits",
        ),
        pytest.param(
            [("Topic:t", ["Sub"], [], DENY), ("*", ["All"])],
            on("t", PUB), True, id="a rule on another action says nothing",
        ),
        pytest.param([("Topic:t", ["Pub"])], on(None, PUB), False, id="all topics: not by one"),
        pytest.param([("Topic:t*", ["Pub"])], on(None, PUB), False, id="nor by a prefix"),
        pytest.param([("Topic:*", ["Pub"])], on(None, PUB), True, id="by all of them"),
        pytest.param(
            [("Topic:*", ["All"]), ("Topic:t", ["Sub", "Get"], [], DENY)],
            on(None, SUB, GET), False, id="not where one of them is denied",
        ),
        pytest.param(
            [("*", ["All"]), ("Topic:t*", ["All"], [], DENY)],
            on(None, SUB, GET), False, id="nor where some are",
        ),
        pytest.param(
            [("Topic:*", ["All"]), ("Topic:t", ["Pub"], [], DENY), ("Group:g", ["All"], [], DENY)],
            on(None, SUB, GET), True, id="what else is denied is nothing to it",
        ),
    ],
)  # fmt: skip
def test_order(rules: list[tuple], demand: Demand, expected: bool) -> None:
    assert allows(rules, demand) is expected
    assert allows(list(reversed(rules)), demand) is expected


@pytest.mark.parametrize(
    ("sources", "source", "expected"),
    [
        (["10.1.2.3"], HERE, True),
        (["10.1.0.0/16"], HERE, True),
        (["10.2.0.0/16"], HERE, False),
        (["10.2.0.0/16", "10.1.2.0/24"], HERE, True),
        (["10.1.0.0/16"], "::ffff:10.1.2.3", True),
        (["2001:db8::/32"], "2001:db8::7", True),
        (["2001:db8::/32"], HERE, False),
        (["0.0.0.0/0"], "", False),
        ([], "", True),
    ],
)
def test_source_addresses(sources: list[str], source: str, expected: bool) -> None:
    assert allows([("Topic:t", ["Pub"], sources)], on("t", PUB), source=source) is expected


def test_a_denial_from_elsewhere_says_nothing_here() -> None:
    rules = [("Topic:t", ["Pub"], ["192.168.0.0/16"], DENY), ("Topic:*", ["Pub"])]
    assert allows(rules, on("t", PUB))
    assert not allows(rules, on("t", PUB), source="192.168.3.4")


def test_every_demand_must_be_allowed() -> None:
    rules = [("Topic:t", ["Sub"])]
    assert not allows(rules, on("t", SUB), on("g", SUB, kind=GROUP))
    rules.append(("Group:g", ["Sub"]))
    assert allows(rules, on("t", SUB), on("g", SUB, kind=GROUP))
