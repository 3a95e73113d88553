"""The definitions of docs/lab/analyse.md, applied to the headers that tshark reads.

Independent of crates/trace and slow: bytes are intervals, and all packets are in memory. Facts
about packets help kinds.py to recognise why other programs differ.
"""

from dataclasses import dataclass, field

MAX_WINDOW = 1 << 30  # bytes, RFC 7323, section 2.3
NEAR = 1 << 24  # bytes between two packets of a connection whose start is not in the trace
IDLE = 1.0  # seconds before a keep-alive with a garbage byte
LINGER = 60.0  # seconds during which a closed connection accepts late packets
COPY = 0.001  # seconds between two captures of one packet
COPY_WITHOUT_ID = 0.0001
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


@dataclass
class Packet:
    """A TCP header as tshark reads it. `skip` is why the analyser does not read the packet."""

    number: int
    at: float
    source: tuple
    target: tuple
    stream: int
    seq: int
    ack: int
    length: int
    flags: int
    window: int
    sack: list
    timestamps: str
    ip_id: str
    interface: str
    marks: set
    skip: str = ""
    kind: str = ""  # new, bundled, retransmitted, keep-alive, probe, control, stray, copy, reset
    duplicate_ack: bool = False
    dsack: bool = False
    facts: set = field(default_factory=set)
    tshark_length: int = 0
    payload: int = 0  # bytes that count as sent

    def reset(self):
        """Forgets the result of an earlier analysis."""
        self.kind, self.payload = "", 0
        self.duplicate_ack = self.dsack = False
        self.facts &= {"fragment", "extension", "two tags"}

    @property
    def tuple(self):
        return tuple(sorted((self.source, self.target)))

    @property
    def fingerprint(self):
        return (
            self.source,
            self.target,
            self.seq,
            self.ack,
            self.length,
            self.flags & (SYN | FIN | RST | PSH | ACK),
            self.window,
            self.ip_id,
            self.timestamps,
            tuple(self.sack),
        )


class Intervals:
    """Disjoint intervals in order."""

    def __init__(self):
        self.parts = []

    def covered(self, start, end):
        return sum(max(0, min(end, e) - max(start, s)) for s, e in self.parts)

    def add(self, start, end):
        if start >= end:
            return
        apart = []
        for s, e in self.parts:
            if e < start or s > end:
                apart.append((s, e))
            else:
                start, end = min(s, start), max(e, end)
        self.parts = sorted(apart + [(start, end)])


class Half:
    """One direction.

    Positions are bytes after the initial sequence number, so the first byte is at 1.
    """

    def __init__(self):
        self.initial = None
        self.oversized = False  # a packet had more bytes than its frame
        self.renumbered = False  # after a packet of an older connection
        self.offered = []  # initial sequence numbers of all SYNs
        self.sent = Intervals()
        self.segments = set()
        self.sacked = Intervals()
        self.next = 1  # after the highest byte sent or acknowledged
        self.shown = 1  # the same for all packets, empty ones included
        self.acked = 1
        self.window = None
        self.last_data = None
        self.fin = None
        self.fin_acked = False
        self.fin_sacked = False
        self.probe = None  # position and packet of a window probe with a new byte
        self.payload = self.retransmitted = self.duplicate_acks = self.dsacks = 0

    def position(self, near, number):
        """The position of a sequence number that is closest to `near`."""
        distance = (number - (self.initial + near)) & 0xFFFFFFFF
        return near + (distance - (1 << 32) if distance >= 1 << 31 else distance)

    @property
    def fresh(self):
        """Whether nothing was sent or acknowledged."""
        return not self.sent.parts and self.next == 1


class Connection:
    def __init__(self, first):
        self.packets = []
        self.stray = None
        self.closed_at = None
        self.reset = False
        self.reset_seen = False
        self.chosen = False
        self.established = not first.flags & SYN
        answers = first.flags & SYN and first.flags & ACK
        self.originator = first.target if answers else first.source
        self.syn_acks = 0
        self.halves = {first.source: Half(), first.target: Half()}

    def accepts(self, packet):
        """Whether a packet with this connection's addresses and ports can belong to it."""
        if self.stray and continues(self.stray, packet):
            return False
        half = self.halves[packet.source]
        if half.initial is None:
            return True
        if packet.flags & SYN:
            syn = self.halves[packet.target].initial
            answers = half.fresh or syn is not None and packet.ack == (syn + 1) & 0xFFFFFFFF
            return packet.flags & ACK and answers or half.initial == packet.seq
        if not packet.length or packet.flags & RST:
            return True
        position = half.position(half.next, packet.seq)
        return abs(position - half.next) <= MAX_WINDOW and position >= half.acked - NEAR

    def continues_after_gap(self, packet):
        """Whether a packet outside the windows acknowledges what the other end sent last."""
        peer = self.halves[packet.target]
        if peer.initial is None or not packet.flags & ACK or self.closed_at is not None:
            return False
        return abs(peer.position(peer.next, packet.ack) - peer.next) <= NEAR

    def skip_gap(self, packet):
        """Continues with this packet's bytes, which are later by up to 4 GiB."""
        half = self.halves[packet.source]
        half.next += (packet.seq - half.initial - half.next) & 0xFFFFFFFF

    def learn(self, packet):
        """Takes initial sequence numbers from a packet."""
        half, peer = self.halves[packet.source], self.halves[packet.target]
        if packet.flags & SYN:
            if packet.seq in half.offered:
                packet.facts.add("repeated")
            half.offered.append(packet.seq)
            if half.initial is None or half.fresh and not self.chosen:
                half.renumbered = half.initial not in (None, packet.seq)
                half.initial = packet.seq
        elif packet.flags & RST:
            return
        elif half.initial is None:
            half.initial = (packet.seq - 1) & 0xFFFFFFFF
        if packet.flags & ACK and not packet.flags & SYN:
            before = (packet.ack - 1) & 0xFFFFFFFF
            if peer.initial is None:
                peer.initial = before
            elif peer.fresh and not self.chosen and before in peer.offered:
                # The ACK chooses among SYN-ACKs, RFC 9293, section 3.10.7.3.
                peer.initial, self.chosen = before, True

    def add(self, packet):
        self.packets.append(packet)
        self.learn(packet)
        half, peer = self.halves[packet.source], self.halves[packet.target]
        self.send(half, peer, packet)
        if packet.flags & ACK and not packet.flags & RST:
            self.acknowledge(half, peer, packet)
        if packet.flags & SYN and packet.flags & ACK:
            self.syn_acks += 1
        elif self.syn_acks and packet.flags & ACK and not packet.flags & RST:
            self.established = True
        if packet.flags & RST:
            self.reset_seen = True
            refused = packet.source != self.originator and packet.flags & ACK
            self.reset = self.reset or self.established or bool(refused)
        if self.closed_at is None and (self.reset or half.fin_acked and peer.fin_acked):
            self.closed_at = packet.at

    def send(self, half, peer, packet):
        if packet.flags & RST or half.initial is None:
            packet.kind = "reset" if packet.flags & RST else "control"
            return
        at = half.position(half.next, packet.seq)
        if abs(at - half.next) > MAX_WINDOW:
            packet.kind = "stray"
            return
        start = at + bool(packet.flags & SYN)
        end = start + packet.length
        shown = half.shown
        half.shown = max(shown, end)
        if packet.flags & FIN:
            # Also a FIN with the number of the SYN or of a byte.
            if half.fin == end or end < half.next:
                packet.facts.add("repeated")
            half.fin = end
        if self.probes(half, peer, packet, start):
            return
        if not packet.length:
            packet.kind = "control"
            return
        if half.probe and start <= half.probe[0] < end:
            half.probe = None
        half.last_data = packet.at
        before = max(0, min(end, 1) - start)
        seen = half.sent.covered(max(start, 1), end)
        old = seen + before
        if not seen:
            packet.facts.add("unseen")
        if half.renumbered:
            packet.facts.add("renumbered")
        if half.oversized:
            packet.facts.add("after oversized")
        half.oversized |= packet.length > packet.tshark_length and "fragment" not in packet.facts
        if self.reset_seen:
            packet.facts.add("after RST")
        if start < max(half.next, shown):
            packet.facts.add("below")
        if before:
            packet.facts.add("before")
        if start >= 1 << 32:
            packet.facts.add("wrapped")
        if not old:
            packet.kind = "new"
        elif end > half.next:
            packet.kind = "bundled"
        else:
            packet.kind = "retransmitted"
            half.retransmitted += 1
        if old and (start, end) not in half.segments:
            packet.facts.add("other boundaries")
        half.segments.add((start, end))
        half.sent.add(max(start, 1), end)
        half.next = max(half.next, end)
        half.payload += packet.length
        packet.payload = packet.length

    @staticmethod
    def probes(half, peer, packet, start):
        """Whether the packet is a keep-alive or a window probe."""
        if packet.flags & (SYN | FIN) or packet.length > 1:
            return False
        before_all = start == half.acked - 1
        tests = before_all or packet.length and start in (half.acked, half.next)
        idle = half.last_data is None or packet.at - half.last_data >= IDLE
        if peer.window == 0 and tests:
            packet.kind = "probe"
            half.probe = (start, packet) if packet.length and start == half.next else None
            return True
        if before_all and (not packet.length or half.acked == half.next and idle):
            packet.kind = "keep-alive"
            return True
        return False

    def acknowledge(self, own, half, packet):
        """Applies an ACK of `own` to the data of `half`."""
        first, same_window = own.window is None, own.window == packet.window
        own.window = packet.window
        if half.initial is None:
            return
        if first and not half.offered and half.acked == 1:
            # Bytes from before the trace may be outstanding.
            half.acked = min(1, half.position(1, packet.ack))
        position = half.position(half.next, packet.ack)
        if abs(position - half.next) > MAX_WINDOW:
            return
        outstanding = half.next > half.acked
        if half.fin is not None and position > half.fin:
            half.fin_acked = True
        acked = position if half.fin is None else min(position, half.fin)
        if half.probe and half.probe[0] < acked:
            start, probe = half.probe
            half.sent.add(start, start + 1)
            half.next = max(half.next, start + 1)
            half.payload += 1
            probe.payload = 1
            half.probe = None
        same_ack = position == half.acked
        half.acked = max(half.acked, acked)
        half.next = max(half.next, acked)
        news = self.sack(half, packet, position, acked)
        bare = not packet.length and not packet.flags & (SYN | FIN)
        informs = news if packet.sack else same_window
        # New SACK bytes are outstanding, also if the trace does not show them.
        open_bytes = outstanding or news
        packet.duplicate_ack = bool(bare and open_bytes and same_ack and informs and not first)
        if not outstanding:
            packet.facts.add("idle")
        if packet.sack:
            packet.facts.add("new sack" if news else "no new sack")
        own.duplicate_acks += packet.duplicate_ack
        own.dsacks += packet.dsack

    @staticmethod
    def sack(half, packet, position, acked):
        """Applies SACK blocks. Returns whether they report bytes for the first time."""
        news = False
        # The SACK option has room for four blocks.
        blocks = []
        for left, right in packet.sack[:4]:
            left = half.position(position, left)
            blocks.append((left, half.position(left, right)))
        for index, (left, right) in enumerate(blocks):
            if right <= left or right > half.next + MAX_WINDOW:
                continue
            # RFC 2883, section 4: below the ACK, or inside of the second block.
            inside = len(blocks) > 1 and blocks[1][0] <= left and right <= blocks[1][1]
            duplicate = index == 0 and (right <= position or inside)
            if half.fin is not None and left <= half.fin < right:
                news |= not half.fin_sacked
                half.fin_sacked = True
                right = half.fin
            if duplicate:
                packet.dsack = True
                continue
            start = max(left, acked)
            news |= right - start > half.sacked.covered(start, right)
            half.sacked.add(start, right)
        return news


def continues(stored, packet):
    """Whether a packet belongs to the connection of a stored one, and is not its copy."""
    if packet.flags & (SYN | RST):
        return False
    if packet.source != stored.source:
        if not packet.flags & ACK:
            return False
        number = packet.ack
    elif packet.fingerprint != stored.fingerprint:
        number = packet.seq
    else:
        return False
    distance = (number - stored.seq - stored.length) & 0xFFFFFFFF
    return min(distance, (1 << 32) - distance) <= NEAR


def is_copy(packet, earlier, policy):
    """Whether the trace shows an earlier packet again. A policy decides about one interface."""
    identified = packet.ip_id not in ("", "0x0000")
    if not identified and not packet.length and not packet.flags & (SYN | FIN) and policy != "all":
        return False
    limit = COPY if identified else COPY_WITHOUT_ID
    near = abs(packet.at - earlier.at) <= limit + 1e-9
    return near and policy != "none" and (policy == "all" or packet.interface != earlier.interface)


def connections(packets, policy):
    """Assigns packets to connections, and gives each packet its kind."""
    current, found, last = {}, [], {}
    for packet in packets:
        connection = assign(packet, current, found)
        if not connection:
            continue
        key = (id(connection), packet.fingerprint)
        earlier = last.get(key)
        if earlier and is_copy(packet, earlier, policy):
            packet.kind = "copy"
            continue
        last[key] = packet
        connection.add(packet)
    return found


def assign(packet, current, found):
    """The packet's connection; None for a packet that only a later one can explain."""
    connection = current.get(packet.tuple)
    if not connection:
        return start(packet, None, current, found)
    closed = connection.closed_at
    if closed is not None and closed + LINGER < packet.at:
        return start(packet, None, current, found)
    if connection.accepts(packet):
        return connection
    stray = connection.stray
    if stray and continues(stray, packet):
        connection.stray = None
        if not connection.continues_after_gap(stray):
            return start(packet, stray, current, found)
        connection.skip_gap(stray)
        connection.add(stray)
        return connection
    if packet.flags & SYN:
        return start(packet, None, current, found)
    packet.kind = "stray"
    connection.stray = packet
    return None


def start(packet, stray, current, found):
    """Starts a connection with a packet, and with the stray before it that it explains."""
    connection = current[packet.tuple] = Connection(stray or packet)
    found.append(connection)
    if stray:
        connection.add(stray)
    return connection
