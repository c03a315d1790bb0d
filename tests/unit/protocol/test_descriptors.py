"""What clients may take of the process's file descriptors."""

import resource

import pytest
from gantry_protocol.process import descriptors
from gantry_protocol.remoting.limits import ConnectionLimits, fair_limits


@pytest.mark.parametrize(
    ("soft", "expected"),
    [
        (resource.RLIM_INFINITY, 1000),
        (100_000, 1000),
        (1024, 768),
        (64, descriptors.FOR_CLIENTS_MIN),
    ],
)
def test_clients_leave_descriptors_for_the_log(
    monkeypatch: pytest.MonkeyPatch, soft: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert descriptors.for_clients(1000) == expected


@pytest.mark.parametrize("error", [None, ValueError(), OSError()])
def test_the_limit_is_lifted_or_must_do(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    asked: list[tuple[int, int]] = []

    def lift(_: int, limits: tuple[int, int]) -> None:
        asked.append(limits)
        if error is not None:
            raise error

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", lift)
    descriptors.raise_limit()
    assert asked == [(4096, 4096)]


def test_a_quarter_is_out_of_reach_of_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1256, 1256))
    limits = fair_limits()
    assert (limits.total, limits.per_source) == (1000, 750)
    assert sum(limits.admit("a") for _ in range(1000)) == 750
    assert sum(limits.admit("b") for _ in range(1000)) == 250
    assert (limits.open, limits.refused_source, limits.refused_total) == (1000, 250, 750)
    limits.release("a")
    assert limits.admit("a")


def test_sources_that_left_are_forgotten() -> None:
    limits = ConnectionLimits(2, 1)
    for number in range(1000):
        assert limits.admit(str(number))
        limits.release(str(number))
    assert not limits._by_source
