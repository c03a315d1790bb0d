"""Checkers: histories in, verdicts out. Pure; a checker that could not decide has not passed."""
