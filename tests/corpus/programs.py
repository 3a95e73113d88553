"""Runs pillion-lab, tshark and tcptrace on a capture, and reads their output."""

import csv
import io
import ipaddress
import json
import re
import subprocess

from definitions import Packet

# Packet fields first, then tshark's analysis. All occurrences are read, because a frame may have
# several IP headers.
FIELDS = (
    "frame.number frame.time_epoch frame.len frame.protocols frame.interface_id sll.pkttype "
    "sll.ifindex ip.src ip.dst ip.id ip.len ip.hdr_len ip.flags.mf ipv6.src ipv6.dst ipv6.plen "
    "ipv6.fraghdr.more ipv6.routing.segleft ipv6.routing.src.addr "
    "ipv6.routing.mipv6.home_address ipv6.routing.srh.addr pppoe.payload_length tcp.stream "
    "tcp.srcport tcp.dstport tcp.seq_raw tcp.ack_raw tcp.len tcp.hdr_len tcp.flags "
    "tcp.window_size_value tcp.options.sack_le tcp.options.sack_re tcp.options.timestamp.tsval "
    "tcp.options.timestamp.tsecr tcp.options.sack.dsack"
).split()
MARKS = (
    "retransmission fast_retransmission spurious_retransmission out_of_order duplicate_ack "
    "keep_alive keep_alive_ack zero_window_probe zero_window_probe_ack window_update "
    "reused_ports lost_segment ack_lost_segment"
).split()
PREFERENCES = (
    "tcp.relative_sequence_numbers ip.defragment ipv6.defragment tcp.desegment_tcp_streams"
).split()
# The layers before TCP that docs/lab/analyse.md lists as supported.
LAYERS = {"eth", "ethertype", "vlan", "ieee8021ad", "sll", "null", "raw", "ip", "ipv6"}
EXTENSIONS = re.compile(r"ipv6\.\w+|ah|mipv6|shim6|hip")
SMALLEST = 74  # bytes of an Ethernet frame with the headers of IPv6 and TCP
TIMEOUT = 600  # seconds per program and capture


class ProgramError(Exception):
    pass


def run(command, accepted=(0,)):
    result = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    if result.returncode not in accepted:
        text = result.stderr.decode(errors="replace").strip().splitlines()
        raise ProgramError(f"{command[0]}: {text[-1] if text else result.returncode}")
    return result.stdout.decode(errors="replace")


def tshark_command():
    command = ["tshark", "-n", "-T", "fields", "-E", "occurrence=a", "-E", "separator=/t"]
    command += ["-Y", "tcp or (_ws.malformed and (ip.proto == 6 or ipv6.nxt == 6))"]
    for preference in PREFERENCES:
        command += ["-o", f"{preference}:FALSE"]
    for name in FIELDS + [f"tcp.analysis.{mark}" for mark in MARKS]:
        command += ["-e", name]
    return command


def tshark(path):
    """All TCP packets by tshark, those inside of tunnels and ICMP errors included."""
    # Exit status 2: the file is cut short, and what precedes was read.
    return run(tshark_command() + ["-r", path], (0, 2))


def parse_tshark(text):
    packets = []
    for line in text.splitlines():
        values = line.split("\t")
        packets.append(parse_packet(dict(zip(FIELDS, values)), values[len(FIELDS) :]))
    return packets


def parse_packet(row, marks):
    layers = row["frame.protocols"].split(":")
    before = layers[: layers.index("tcp")] if "tcp" in layers else layers
    networks = [layer for layer in before if layer in ("ip", "ipv6")]
    network = networks[-1] if networks else "ip"
    # The header before this TCP header, of several.
    index = max(networks.count(network) - 1, 0)
    outer = lambda name: (row.get(f"{network}.{name}", "").split(",") + [""] * index)[index]
    last = {name: value.split(",")[-1] for name, value in row.items()}
    number = lambda name: int(last[name], 0) if last[name] else 0
    edges = [
        [int(value) for value in row[f"tcp.options.sack_{end}"].split(",") if value]
        for end in ("le", "re")
    ]
    packet = Packet(
        number=int(row["frame.number"]),
        at=float(row["frame.time_epoch"] or 0),
        source=(address_of(outer("src")), number("tcp.srcport")),
        target=(address_of(last_destination(row) or outer("dst")), number("tcp.dstport")),
        stream=number("tcp.stream"),
        seq=number("tcp.seq_raw"),
        ack=number("tcp.ack_raw"),
        length=number("tcp.len"),
        flags=number("tcp.flags"),
        window=number("tcp.window_size_value"),
        sack=list(zip(*edges)),
        timestamps=last["tcp.options.timestamp.tsval"] + "/" + last["tcp.options.timestamp.tsecr"],
        ip_id=last["ip.id"],
        interface="/".join(last[n] for n in ("frame.interface_id", "sll.pkttype", "sll.ifindex")),
        marks={mark for mark, value in zip(MARKS, marks) if value},
    )
    packet.tshark_length = packet.length
    if row["tcp.options.sack.dsack"]:
        packet.marks.add("dsack")
    header = number("tcp.hdr_len")
    fragment = last["ip.flags.mf"] == "1" or last["ipv6.fraghdr.more"] == "1"
    # The payload by the IP header. A length of 0 says nothing.
    total = int(outer("len") or 0) if network == "ip" else number("ipv6.plen")
    if "pppoes" in before and network == "ip":
        # Without the protocol's number, of one byte if compressed (RFC 1661, section 6.5). Some
        # routers count padding in the IP length.
        session = number("pppoe.payload_length")
        total = min(total, session - (1 if total == session - 1 else 2))
    if network == "ip" and total:
        packet.length = total - int(outer("hdr_len") or 0) - header
    elif network == "ipv6" and total and fragment:
        packet.length = total - 8 - header
    packet.facts = {
        fact
        for fact, holds in (
            ("fragment", fragment),
            ("two tags", before.count("vlan") > 1),
            ("extension", any(EXTENSIONS.fullmatch(layer) for layer in before)),
        )
        if holds
    }
    if "tcp" not in layers:
        packet.skip = "malformed IP"
    elif not last["tcp.srcport"] and not total and number("frame.len") > SMALLEST:
        packet.skip = "before segmentation"
    elif "icmp" in before or "icmpv6" in before:
        packet.skip = "quoted in ICMP"
    elif not last["tcp.window_size_value"] or header < 20 or packet.length < 0:
        packet.skip = "damaged"
    elif not last["tcp.len"] and not fragment:
        packet.skip = "damaged"
    elif len(networks) != 1:
        packet.skip = "tunnel"
    elif not all(layer in LAYERS or EXTENSIONS.fullmatch(layer) for layer in before):
        packet.skip = "other link"
    return packet


def last_destination(row):
    """The last address of an IPv6 routing header that has segments left."""
    if row["ipv6.routing.segleft"] in ("", "0"):
        return ""
    # A segment list starts with the last one.
    segments = row["ipv6.routing.srh.addr"].split(",")
    route = row["ipv6.routing.src.addr"].split(",")
    return segments[0] or route[-1] or row["ipv6.routing.mipv6.home_address"]


def address_of(text):
    """The address in one notation."""
    return str(ipaddress.ip_address(text)) if text else ""


def end_of(text):
    address, port = text.rsplit(":", 1)
    return (address_of(address.strip("[]")), int(port))


def pillion(program, path):
    """The analysis as JSON; None if pillion does not read the capture's format."""
    command = [program, "analyse", "--json", path]
    result = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    if result.returncode == 2:
        return None
    if result.returncode not in (0, 3):
        raise ProgramError(f"{program}: exit status {result.returncode} for {path}")
    return json.loads(result.stdout)


# Measures by the columns of tcptrace.
COLUMNS = {
    "payload bytes": "actual_data_bytes",
    "retransmitted packets": "rexmt_data_pkts",
    "DSACKs": "dsack_pkts_sent",
}


def tcptrace(path):
    """tcptrace's connections as (ends, ports, values by direction); None if it reads no packet."""
    try:
        text = run(["tcptrace", "-l", "-n", "--csv", path])
    except ProgramError:
        return None
    lines = [line for line in text.splitlines() if "," in line and not line.startswith("#")]
    return [parse_tcptrace(row) for row in csv.DictReader(io.StringIO("\n".join(lines)))]


def parse_tcptrace(row):
    ends = []
    for end in "ab":
        try:
            address = address_of(row[f"host_{end}"].strip())
        except ValueError:
            address = ""  # it prints ::1 as :0001
        ends.append((address, int(row[f"port_{end}"])))
    values = [
        {measure: int(row[f"{column}_{way}"]) for measure, column in COLUMNS.items()}
        for way in ("a2b", "b2a")
    ]
    return ends, values
