"""How long a test waits for what must happen: a guard against waiting for ever, and no judgement.

On a machine with thirty processes per core the start of one takes a minute, and a hundred turns of
an event loop take seconds. Whatever judges a time says so by a name of its own, with its reason.
"""

PATIENCE_S = 120.0
STARTS_WITHIN_S = 300.0  # several processes that start at once
