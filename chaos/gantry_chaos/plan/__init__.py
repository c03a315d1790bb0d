"""What happens when: the time line of an experiment, the journal that heals it, and the engine."""
