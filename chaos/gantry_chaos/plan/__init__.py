"""The course of an experiment: its time line, the journal that heals it, and the engine."""
