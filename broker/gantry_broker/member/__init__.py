"""One member of a replication group, and what the members of one process share.

``group`` joins what a member is made of: the store, the replica core, its links, the controllers
and the tier. Nothing here is global, so that a process can hold hundreds of members.
"""
