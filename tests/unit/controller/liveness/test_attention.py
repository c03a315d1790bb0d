"""Listening time stands still while the process does."""

from gantry_controller.liveness.core.attention import PULSE_S, STALL_S, Attention


class Listener:
    """An ``Attention`` and what it told."""

    def __init__(self) -> None:
        self.told: list[tuple[float, float]] = []
        self.attention = Attention(lambda stall_s, now_s: self.told.append((stall_s, now_s)))


def test_before_the_first_pulse_it_is_the_clock() -> None:
    listener = Listener()
    assert listener.attention.listening(1000.0) == 1000.0
    assert listener.told == []


def test_regular_pulses_are_no_stall() -> None:
    listener = Listener()
    for beat in range(100):
        listener.attention.pulse(beat * PULSE_S)
    listener.attention.listening(99 * PULSE_S + STALL_S)
    assert (listener.told, listener.attention.stalls) == ([], 0)


def test_stall_is_told_once_and_taken_out_of_the_time() -> None:
    listener = Listener()
    attention = listener.attention
    attention.pulse(100.0)
    assert attention.listening(130.0) == 100.0
    assert attention.listening(130.0) == 100.0
    assert abs(attention.pulse(130.1) - 100.1) < 1e-6
    assert listener.told == [(30.0, 100.0)]
    assert 130.2 <= attention.clock(100.2) < 130.21
    assert attention.stalls == 1


def test_stalls_add_up() -> None:
    listener = Listener()
    for clock_s in (0.0, 10.0, 20.0):
        assert listener.attention.pulse(clock_s) == 0.0
    assert listener.told == [(10.0, 0.0), (10.0, 0.0)]
