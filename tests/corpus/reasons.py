"""The kinds of differences: why they exist, and which program follows the RFC."""

# Name: reason, and who is right.
KINDS = {
    "SYN or FIN repeated": (
        "tshark and tcptrace also count SYNs and FINs without payload; pillion counts "
        "packets with payload",
        "all, by their definitions",
    ),
    "keep-alive": (
        "a keep-alive repeats an acknowledged byte or has none (RFC 9293, section 3.8.4);"
        " pillion counts it apart",
        "pillion",
    ),
    "probe": (
        "a window probe's byte is payload only once it is acknowledged (RFC 9293, section"
        " 3.8.6.1)",
        "pillion",
    ),
    "bundle": (
        "the packet repeats bytes and adds new ones; the others count it as retransmitted",
        "all, by their definitions",
    ),
    "hole filled": (
        "the trace shows these bytes once, below others: lost or reordered before the "
        "capture; tshark guesses a retransmission from the time",
        "unknown from one trace",
    ),
    "old number": (
        "an ACK of an older connection answered the SYN (RFC 9293, section 3.10.7.3); "
        "tshark measures later packets against its number",
        "pillion",
    ),
    "sent again soon": (
        "tshark counts a copy within 3 ms or an RTT as out of order; its bytes were in "
        "the trace before",
        "pillion",
    ),
    "nothing outstanding": (
        "RFC 5681, section 2 (a): a duplicate ACK needs outstanding data",
        "pillion",
    ),
    "SACK without news": (
        "RFC 6675, section 2: a duplicate ACK with SACK reports bytes that were not "
        "reported before; a DSACK reports none",
        "pillion",
    ),
    "new window with SACK": (
        "RFC 6675, section 2: with new SACK bytes the window may change; tshark counts a "
        "window update",
        "pillion",
    ),
    "closed window": (
        "RFC 5681, section 2, also counts ACKs that repeat a window of 0; tshark does not",
        "pillion",
    ),
    "other boundaries": (
        "tcptrace misses some bytes that are repeated in segments cut at other positions; "
        "tshark counts them",
        "pillion",
    ),
    "captured twice": (
        "equal packets within 1 ms, IP identification included; pillion counts one",
        "pillion, unless the network duplicated them",
    ),
    "payload of RST": (
        "the payload of RST is a diagnosis outside of the stream (RFC 9293, section "
        "3.5.3)",
        "pillion",
    ),
    "stray": (
        "the sequence number is outside every window (RFC 9293, section 3.10.7.4)",
        "pillion",
    ),
    "first fragment": (
        "without reassembly, tshark counts no payload, and pillion that of the first "
        "fragment",
        "neither; pillion reports the fragments",
    ),
    "IP length beyond the frame": (
        "the IP header has more bytes than the frame: the frame was cut and its length "
        "rewritten, or is damaged; pillion believes the header, tshark the frame",
        "pillion if the frame was cut; a host discards a damaged packet",
    ),
    "before segmentation": (
        "an IP length of 0, captured before segmentation: tcptrace does not read it, nor "
        "does tshark 4.0 over IPv6",
        "pillion",
    ),
    "clock set back": (
        "the times of the capture jump, and with them the end of closed connections and "
        "tcptrace's silence; pillion warns that results are wrong",
        "neither",
    ),
    "after RST": (
        "tcptrace does not count retransmissions after a RST",
        "pillion",
    ),
    "before the trace": (
        "the bytes are below the first that the trace shows; pillion counts them as sent "
        "before",
        "pillion",
    ),
    "tunnel": (
        "TCP inside of another IP packet; pillion does not read tunnels",
        "tshark",
    ),
    "other link": (
        "pillion does not read the link layer",
        "tshark",
    ),
    "quoted in ICMP": (
        "tshark also dissects the header that an ICMP error quotes; it was sent earlier",
        "pillion",
    ),
    "damaged": (
        "the TCP header is truncated or longer than the packet; the others read a part of it",
        "pillion (RFC 9293, section 3.1)",
    ),
    "malformed IP": (
        "tshark stops at an IP option of impossible length; pillion skips options",
        "neither; a host discards the packet",
    ),
    "new initial number": (
        "a SYN with another initial sequence number opens a connection (RFC 9293, section"
        " 3.4.1)",
        "pillion",
    ),
    "far number": (
        "sequence numbers beyond every window, and a second packet agrees: another "
        "connection",
        "pillion",
    ),
    "ports reused": (
        "tshark starts a stream at a repeated SYN; pillion counts SYNs with one initial "
        "sequence number as one attempt",
        "pillion",
    ),
    "repeated handshake": (
        "tcptrace starts a connection at a SYN that follows a FIN or RST, or another "
        "SYN-ACK",
        "pillion",
    ),
    "silence": (
        "tcptrace starts a connection after four minutes without packets",
        "pillion (RFC 9293 has no such limit)",
    ),
    "number used again": (
        "more than 4 GiB: tcptrace counts another byte with the same sequence number "
        "as a repeated one",
        "pillion",
    ),
    "extension headers": (
        "tcptrace does not skip all IPv6 extension headers, and reads ports and lengths "
        "at a wrong offset",
        "pillion",
    ),
    "not read by tcptrace": (
        "tcptrace does not read the link layer, a second VLAN tag, or a second interface "
        "of pcapng",
        "pillion",
    ),
}
