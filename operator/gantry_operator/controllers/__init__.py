"""Talking to the controllers of a ControllerGroup: their admin API and its stream of changes."""
