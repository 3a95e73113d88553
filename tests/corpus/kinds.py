"""Rules that recognise the kind of a difference; reasons.py explains the kinds.

An empty name is a difference without a kind.
"""

from definitions import FIN, RST, SYN

SET_BACK = 1.0  # seconds; pillion warns
RETRANSMISSION = {"retransmission", "fast_retransmission", "spurious_retransmission"}


def mismatch(group, packets):
    """Kind of a difference between pillion's result and the definitions."""
    addresses = {end[0] for packet in group for end in (packet.source, packet.target)}
    for packet in packets:
        if packet.skip in ("malformed IP", "before segmentation") and (
            packet.source[0] in addresses or not group
        ):
            return packet.skip
    times = [packet.at for packet in packets]
    if any(before - after >= SET_BACK for before, after in zip(times, times[1:])):
        return "clock set back"
    return ""


def of_packet(measure, packet):
    if packet.skip:
        return packet.skip
    if packet.kind == "copy":
        return "captured twice"
    if packet.kind == "stray":
        return "stray"
    rules = {
        "payload bytes": payload,
        "retransmitted packets": retransmission,
        "duplicate ACKs": duplicate_ack,
    }
    return rules[measure](packet) if measure in rules else ""


def payload(packet):
    if "fragment" in packet.facts:
        return "first fragment"
    if packet.kind == "reset":
        return "payload of RST"
    if packet.kind in ("keep-alive", "probe"):
        return packet.kind
    if packet.length != packet.tshark_length:
        return "IP length beyond the frame"
    return ""


def retransmission(packet):
    theirs = packet.marks & RETRANSMISSION
    if packet.kind == "reset":
        return "RST repeated"
    if packet.flags & (SYN | FIN) and not packet.length:
        return "SYN or FIN repeated" if theirs else ""
    if packet.kind in ("keep-alive", "probe"):
        return packet.kind
    if packet.kind == "bundled" and theirs:
        return "bundle"
    if packet.kind == "new" and theirs and "renumbered" in packet.facts:
        return "old number"
    if packet.kind == "new" and theirs and "below" in packet.facts:
        return "hole filled"
    if packet.length != packet.tshark_length or "after oversized" in packet.facts:
        return "IP length beyond the frame"
    if packet.kind == "retransmitted" and "out_of_order" in packet.marks:
        return "sent again soon"
    return ""


def duplicate_ack(packet):
    if "duplicate_ack" in packet.marks:
        if "idle" in packet.facts:
            return "nothing outstanding"
        if "no new sack" in packet.facts:
            return "SACK without news"
        if packet.kind == "keep-alive":
            return "keep-alive"
        return ""
    if packet.duplicate_ack and not packet.window:
        return "closed window"
    if "window_update" in packet.marks and "new sack" in packet.facts:
        return "new window with SACK"
    return ""


def of_connections(group, defined):
    """Kind, difference and packet of each connection that only one program starts."""
    starts = {c.packets[0].number for c in defined if c.packets}
    first, included = {}, {}
    for p in group:
        first.setdefault(p.stream, p)
        if not p.skip:
            included.setdefault(p.stream, p)
    result = []
    for stream, p in first.items():
        if stream not in included:
            result.append((p.skip, -1, p.number))
    streams = {p.number for p in included.values()}
    for c in defined:
        p = c.packets[0] if c.packets else None
        if p and p.number not in streams:
            result.append(("new initial number" if p.flags & SYN else "far number", 1, p.number))
    for number in streams - starts:
        p = next(p for p in group if p.number == number)
        kind = "ports reused" if p.flags & SYN else ""
        result.append((kind, -1, number))
    return result


SEGMENT = 1460  # bytes of payload in an Ethernet frame
SILENCE = 240  # seconds after which tcptrace opens a new connection: twice the segment lifetime


def of_tcptrace(measure, sent):
    """Differences to tcptrace (pillion minus tcptrace) that each kind would make."""
    count = lambda condition, value=lambda p: 1: sum(value(p) for p in sent if condition(p))
    parts = {}
    if measure == "payload bytes":
        missed = lambda p: p.payload - p.length
        for name, kind in (
            ("captured twice", "copy"),
            ("payload of RST", "reset"),
            ("keep-alive", "keep-alive"),
            ("probe", "probe"),
            ("stray", "stray"),
        ):
            parts[name] = count(lambda p, kind=kind: p.kind == kind, missed)
        parts["before segmentation"] = count(lambda p: p.length > SEGMENT, lambda p: p.payload)
    elif measure == "retransmitted packets":
        data = lambda kind: count(lambda p: p.kind == kind and p.length)
        control = lambda p: "repeated" in p.facts and p.kind in ("control", "new")
        parts["bundle"] = -data("bundled")
        parts["captured twice"] = -count(
            lambda p: p.kind == "copy" and (p.length or p.flags & (SYN | FIN))
        )
        parts["keep-alive"] = -data("keep-alive")
        parts["probe"] = -data("probe")
        parts["stray"] = -data("stray")
        parts["SYN or FIN repeated"] = -count(control)
        unseen = lambda p: p.kind == "retransmitted" and "unseen" in p.facts
        parts["before the trace"] = count(unseen)
        parts["after RST"] = count(lambda p: p.kind == "retransmitted" and "after RST" in p.facts)
    else:
        parts["captured twice"] = -count(lambda p: p.kind == "copy" and "dsack" in p.marks)
    return parts


def of_tcptrace_reading(measure, difference, sent, group, everything):
    """Kind of a difference to tcptrace that no sum of packets explains."""
    if any("extension" in packet.facts for packet in sent):
        return "extension headers"
    if any("two tags" in packet.facts for packet in sent):
        return "not read by tcptrace"
    if any("wrapped" in packet.facts for packet in sent):
        return "number used again"
    if any(packet.skip == "damaged" for packet in group):
        return "damaged"
    other = sum("other boundaries" in packet.facts for packet in sent)
    if measure == "retransmitted packets" and 0 < difference <= other:
        return "other boundaries"
    return mismatch(sent, everything)


def of_tcptrace_connections(group, everything, pair, theirs):
    if group and all(packet.skip for packet in group):
        return group[0].skip
    if not theirs:
        return "not read by tcptrace"
    if any("extension" in packet.facts for packet in everything) and "." not in pair[0][0]:
        return "extension headers"
    times = [packet.at for packet in group if not packet.skip]
    if any(after < before for before, after in zip(times, times[1:])):
        return "clock set back"
    if any(after - before >= SILENCE for before, after in zip(times, times[1:])):
        return "silence"
    opened = [p for p in group if p.flags & (SYN | FIN | RST)]
    if any(p.flags & SYN for p in opened[2:]):
        return "repeated handshake"
    return ""
