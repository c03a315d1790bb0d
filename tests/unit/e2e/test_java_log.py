"""What the Java clients print, and the pods they run in."""

import pytest
from harness.java import consumer_pod, producer_pod
from harness.java_log import Ack, JavaLog, JavaLogError, Received, Refusal, Totals

WHOLE = """\
OpenJDK 64-Bit Server VM warning: something
READY
WAIT MQClientException:_No_route_info 900
ACK 7F01 0 0 1000
ACK 7F02 1 0 1010
NACK FLUSH_DISK_TIMEOUT 1500
ACK 7F03 2 7 1900
END 3 1
"""


def acknowledged_at(*times_ms: int) -> JavaLog:
    return JavaLog.parse("".join(f"ACK key-{at} 0 0 {at}\n" for at in times_ms))


def test_every_kind_of_line_is_read() -> None:
    log = JavaLog.parse(WHOLE + "MSG 7F01 0 0 message  0\n")
    assert log.waits == [Refusal("MQClientException:_No_route_info", 900)]
    assert log.acks == [Ack("7F01", 0, 0, 1000), Ack("7F02", 1, 0, 1010), Ack("7F03", 2, 7, 1900)]
    assert log.nacks == [Refusal("FLUSH_DISK_TIMEOUT", 1500)]
    assert log.received == [Received("7F01", 0, 0, "message  0")]
    assert log.totals == Totals(3, 1)
    assert log.acknowledged() == {"7F01", "7F02", "7F03"}
    assert log.consumed() == {"7F01"}


def test_nothing_said_is_nothing_known() -> None:
    log = JavaLog.parse("")
    assert not log.acks
    assert log.totals is None
    assert log.longest_gap_ms(0) is None


def test_a_line_still_being_written_does_not_count() -> None:
    assert JavaLog.parse("ACK 7F01 0 0 1000\nACK 7F02 0 1 10").acknowledged() == {"7F01"}


@pytest.mark.parametrize(
    "line",
    ["ACK 7F01 0 0", "ACK 7F01 0 0 soon", "NACK 12", "MSG 7F01 0", "END 1", "WAIT a b 3", "ACK"],
)
def test_a_malformed_line_is_named(line: str) -> None:
    with pytest.raises(JavaLogError, match="line 2: "):
        JavaLog.parse(f"READY\n{line}\n")


def test_more_lines_than_any_client_prints_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.java_log.LINES_MAX", 3)
    assert JavaLog.parse("READY\n" * 3)
    with pytest.raises(JavaLogError, match="more than 3 lines"):
        JavaLog.parse("READY\n" * 4)


@pytest.mark.parametrize(
    ("after_ms", "until_ms", "gap_ms"),
    [
        pytest.param(0, 10_000, 900, id="the longest of all"),
        pytest.param(105, 10_000, 900, id="starts before the span"),
        pytest.param(1000, 10_000, 500, id="ends with the span's start: not in it"),
        pytest.param(999, 10_000, 900, id="ends right after the span's start"),
        pytest.param(0, 999, 10, id="ends after the span"),
        pytest.param(0, 1000, 900, id="ends with the span"),
        pytest.param(1520, 10_000, None, id="nothing came since"),
    ],
)
def test_the_longest_gap_that_ends_in_a_span(
    after_ms: float, until_ms: float, gap_ms: int | None
) -> None:
    log = acknowledged_at(90, 100, 1000, 1010, 1510, 1520)
    assert log.longest_gap_ms(after_ms, until_ms) == gap_ms


def test_refusals_do_not_end_a_gap() -> None:
    log = JavaLog.parse("ACK a 0 0 10\nNACK timeout 500\nACK b 0 1 1010\n")
    assert log.longest_gap_ms(0) == 1000


@pytest.mark.parametrize(
    ("pod", "args", "node"),
    [
        (
            producer_pod("p", "java:1", "names:9876", "t", 10, "node-a"),
            ["soak", "names:9876", "t", "10"],
            "node-a",
        ),
        (
            consumer_pod("c", "java:1", "names:9876", "t", 5),
            ["lite-pull", "names:9876", "t", "5"],
            None,
        ),
        (
            consumer_pod("c", "java:1", "names:9876", "t", 5, mode="pull"),
            ["pull", "names:9876", "t", "5"],
            None,
        ),
    ],
    ids=["producer", "lite-pull", "pull"],
)
def test_pods_may_do_nothing_but_their_work(pod: dict, args: list[str], node: str | None) -> None:
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert container["args"] == args
    assert spec.get("nodeName") == node
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    assert "emptyDir" in spec["volumes"][0]
    assert container["resources"]["requests"]
    assert container["resources"]["limits"]
