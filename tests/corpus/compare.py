"""Finds the differences between pillion and the other programs, and the kind of each."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations

import kinds
from definitions import connections
from kinds import RETRANSMISSION
from programs import COLUMNS, end_of

MEASURES = {
    "payload bytes": "payload_bytes",
    "retransmitted packets": "retransmitted_packets",
    "duplicate ACKs": "duplicate_acks",
    "DSACKs": "dsacks",
}


@dataclass
class Difference:
    measure: str
    program: str  # tshark or tcptrace
    kind: str  # "" if unexplained
    connection: tuple
    difference: int  # pillion's value minus the other program's
    packet: int = 0
    note: str = ""


def pillion_totals(analysis):
    """By addresses and ports: the number of connections, and measures per sender."""
    found, totals = Counter(), defaultdict(Counter)
    for connection in analysis["connections"] if analysis else []:
        ends = end_of(connection["sender"]), end_of(connection["receiver"])
        found[tuple(sorted(ends))] += 1
        for half, end in (("main", ends[0]), ("back", ends[1])):
            peer = ends[1] if end == ends[0] else ends[0]
            for measure, name in MEASURES.items():
                totals[end, peer][measure] += connection[half]["sent"][name]
    return found, totals


def defined_totals(found):
    totals = defaultdict(Counter)
    for connection in found:
        for end, half in connection.halves.items():
            peer = next((e for e in connection.halves if e != end), end)
            values = half.payload, half.retransmitted, half.duplicate_acks, half.dsacks
            for measure, value in zip(MEASURES, values):
                totals[end, peer][measure] += value
    return totals


def tshark_value(measure, packet):
    if measure == "payload bytes":
        return packet.tshark_length
    if measure == "retransmitted packets":
        return int(bool(packet.marks & RETRANSMISSION))
    return int({"duplicate ACKs": "duplicate_ack", "DSACKs": "dsack"}[measure] in packet.marks)


def defined_value(measure, packet):
    if measure == "payload bytes":
        return packet.payload
    if measure == "retransmitted packets":
        return int(packet.kind == "retransmitted")
    return int(packet.duplicate_ack if measure == "duplicate ACKs" else packet.dsack)


def of_tuples(packets):
    groups = defaultdict(list)
    for packet in packets:
        groups[packet.tuple].append(packet)
    return groups


def apply_definitions(packets, found, totals):
    """The connections between one pair of addresses and ports, by the definitions.

    Programs disagree about equal packets that follow each other at once: one packet captured twice,
    or two. pillion's result must agree with one of the policies.
    """
    for policy in ("interface", "all", "none"):
        for packet in packets:
            packet.reset()
        defined = connections([p for p in packets if not p.skip], policy)
        if not mismatches(defined, found, totals):
            return defined, []
    for packet in packets:
        packet.reset()
    defined = connections([p for p in packets if not p.skip], "interface")
    return defined, mismatches(defined, found, totals)


def mismatches(defined, found, totals):
    """Measures in which pillion's result is not as defined, with the difference."""
    if len(defined) != found:
        return [("connections", found - len(defined))]
    values = defined_totals(defined)
    return [
        (measure, totals[way][measure] - values[way][measure])
        for way in values
        for measure in MEASURES
        if totals[way][measure] != values[way][measure]
    ]


def compare(packets, analysis, rows):
    """The connections' addresses and ports, and all differences of one capture.

    `analysis` is None if pillion rejects the capture, and `rows` if tcptrace does.
    """
    found, totals = pillion_totals(analysis)
    groups = of_tuples(packets)
    for pair in found:
        groups.setdefault(pair, [])
    result, known = [], {}
    for pair, group in groups.items():
        for packet in group:
            if packet.skip == "other link" and found[pair]:
                packet.skip = ""
        defined, wrong = apply_definitions(group, found[pair], totals)
        for measure, difference in wrong:
            kind = known[measure, pair] = kinds.mismatch(group, packets)
            result.append(Difference(measure, "definitions", kind, pair, difference))
        for measure in MEASURES:
            for packet in group:
                difference = defined_value(measure, packet) - tshark_value(measure, packet)
                if difference:
                    kind = kinds.of_packet(measure, packet)
                    result.append(
                        Difference(measure, "tshark", kind, pair, difference, packet.number)
                    )
        for kind, difference, number in kinds.of_connections(group, defined):
            result.append(Difference("connections", "tshark", kind, pair, difference, number))
    if rows is not None:
        result += compare_tcptrace(groups, found, totals, rows, known)
    return list(found), result


def compare_tcptrace(groups, found, totals, rows, known):
    theirs, values = Counter(), defaultdict(Counter)
    for ends, both in rows:
        ends = place(ends, groups)
        theirs[tuple(sorted(ends))] += 1
        for way, one in zip((ends, ends[::-1]), both):
            values[tuple(way)].update(one)
    everything = [packet for group in groups.values() for packet in group]
    result = []
    for pair in list(groups) + [pair for pair in theirs if pair not in groups]:
        group = groups.get(pair, [])
        difference, kind = found[pair] - theirs[pair], ""
        if difference:
            kind = kinds.of_tcptrace_connections(group, everything, pair, theirs[pair])
            result.append(Difference("connections", "tcptrace", kind, pair, difference))
        if not theirs[pair] or not found[pair] or pair[0] == pair[1]:
            continue
        for way in (pair, pair[::-1]):
            sent = [packet for packet in group if packet.source == way[0] and not packet.skip]
            for measure in COLUMNS:
                difference = totals[way][measure] - values[way][measure]
                for part_kind, part in attribute(measure, sent, difference):
                    part_kind = (
                        part_kind
                        or known.get((measure, pair))
                        or kinds.of_tcptrace_reading(measure, part, sent, group, everything)
                        or kind
                    )
                    result.append(Difference(measure, "tcptrace", part_kind, pair, part))
    return result


def place(ends, groups):
    """Replaces an address that tcptrace prints wrongly by that of the same ports."""
    if all(address for address, _ in ends):
        return ends
    ports = [port for _, port in ends]
    for pair in groups:
        for way in (pair, pair[::-1]):
            if [port for _, port in way] == ports and ":" in way[0][0]:
                return list(way)
    return ends


def attribute(measure, sent, difference):
    """Divides a difference to tcptrace, which is not known by packet, among kinds that fit."""
    if not difference:
        return []
    parts = [part for part in kinds.of_tcptrace(measure, sent).items() if part[1]]
    for count in range(1, len(parts) + 1):
        for chosen in combinations(parts, count):
            if sum(part for _, part in chosen) == difference:
                return list(chosen)
    return [("", difference)]
