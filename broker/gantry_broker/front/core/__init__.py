"""The decisions of a front, without I/O."""
