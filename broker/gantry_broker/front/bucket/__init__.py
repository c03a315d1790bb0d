"""A group that has no master, served from its tier alone.

``group`` decides when, ``places`` where the tier is, ``tables`` what is known of the group as of
its head, ``store`` reads, ``clients`` answers. Nothing is ever written.
"""
