"""Plain counters of a remoting endpoint; whoever exports metrics reads them."""


class ServerStats:
    """Counters of a server; everything but the first five only grows.

    Attributes:
        connections: open now.
        in_flight: requests handed to the handler and not answered yet, oneway ones excluded.
        in_flight_bytes: their bodies.
        partial_bytes: bytes held of incomplete frames, over all connections.
        unread_bytes: of answers that peers have not taken yet, at each connection's last write.
        refused: connections closed at once because there were too many.
        busy: requests answered ``SYSTEM_BUSY`` without asking the handler.
        malformed: connections ended by a malformed frame.
        idle_closed: connections ended because nothing moved.
        slow_closed: connections ended because the peer did not read what it asked for.
        stalled_closed: connections ended because the peer sent no whole frame in time.
        too_large: requests refused since their bodies were larger than their codes may have.
        too_old: requests refused since they had waited for their turn too long.
        stray_responses: response frames nobody waited for.
    """

    __slots__ = (
        "accepted",
        "busy",
        "bytes_in",
        "bytes_out",
        "connections",
        "handler_errors",
        "idle_closed",
        "in_flight",
        "in_flight_bytes",
        "malformed",
        "oneways",
        "partial_bytes",
        "refused",
        "replies",
        "requests",
        "slow_closed",
        "spliced",
        "stalled_closed",
        "stray_responses",
        "too_large",
        "too_old",
        "unread_bytes",
    )

    def __init__(self) -> None:
        self.connections = 0
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.partial_bytes = 0
        self.unread_bytes = 0
        self.accepted = 0
        self.refused = 0
        self.requests = 0
        self.oneways = 0
        self.replies = 0
        self.busy = 0
        self.handler_errors = 0
        self.malformed = 0
        self.idle_closed = 0
        self.slow_closed = 0
        self.stalled_closed = 0
        self.too_large = 0
        self.too_old = 0
        self.spliced = 0
        self.stray_responses = 0
        self.bytes_in = 0
        self.bytes_out = 0


class ClientStats:
    """Counters of a client (or a pool of them); ``in_flight`` is the number of calls open now."""

    __slots__ = ("busy", "calls", "closed", "connects", "in_flight", "late_replies", "timeouts")

    def __init__(self) -> None:
        self.in_flight = 0
        self.calls = 0
        self.timeouts = 0
        self.late_replies = 0
        self.busy = 0
        self.connects = 0
        self.closed = 0
