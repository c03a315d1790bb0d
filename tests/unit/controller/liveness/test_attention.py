"""Listening time stands still while the process does."""

from gantry_controller.liveness.attention import PULSE_S, STALL_S, Attention


def test_before_the_first_pulse_it_is_the_clock() -> None:
    attention = Attention()
    assert attention.notice(1000.0) == 0.0
    assert attention.listening(1000.0) == 1000.0


def test_regular_pulses_are_no_stall() -> None:
    attention = Attention()
    assert all(attention.pulse(beat * PULSE_S) == 0.0 for beat in range(100))
    assert attention.notice(99 * PULSE_S + STALL_S) == 0.0
    assert attention.stalls == 0


def test_stall_is_told_once_and_taken_out_of_the_time() -> None:
    attention = Attention()
    attention.pulse(100.0)
    assert attention.notice(130.0) == 30.0
    assert attention.notice(130.0) == 0.0
    assert attention.pulse(130.1) == 0.0
    assert abs(attention.listening(130.1) - 100.1) < 1e-6
    assert 130.2 <= attention.clock(100.2) < 130.21
    assert attention.stalls == 1


def test_stalls_add_up() -> None:
    attention = Attention()
    attention.pulse(0.0)
    attention.pulse(10.0)
    attention.pulse(20.0)
    assert (attention.listening(20.0), attention.stalls) == (0.0, 2)
