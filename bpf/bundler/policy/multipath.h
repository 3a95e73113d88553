/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Peers that open a connection with MPTCP (RFC 8684). This host does not use
 * MPTCP and answers as plain TCP, so the peer falls back (section 3.7). Linux
 * as the peer then miscounts where segments overlap: its application reads
 * bundled bytes twice, and later data never arrives.
 */
#ifndef PILLION_MULTIPATH_H
#define PILLION_MULTIPATH_H

#include "scope.h"
#include "../option_parser.h"
#include "translation.h"

/*
 * The oldest entries are evicted, so spoofed SYNs can evict others. A
 * connection without its required entry is not bundled.
 */
#define MAX_SYNS 4096

/* The addresses of a connection, as its packets arrive at the socket. */
struct multipath_key {
	__u64 netns; /* a cookie */
	struct bpf_sock_tuple endpoints;
	__u32 unused;
};

struct syn_info {
	__u32 seq; /* sequence number of the SYN */
	__u32 has_mptcp; /* 1: MPTCP */
};

/*
 * The SYNs that listeners received. A later SYN without MPTCP does not clear
 * the flag: it may be forged, or a client's retry whose socket still uses
 * MPTCP.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_SYNS);
	__type(key, struct multipath_key);
	__type(value, struct syn_info);
} pillion_multipath SEC(".maps");

/* Returns true if a SYN offers MPTCP. */
static __always_inline bool has_mptcp_option(struct __sk_buff *skb,
					     const struct segment *seg)
{
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = (void *)(long)skb->data + seg->tcp_off;
	struct option_positions found = {};
	struct header_options options = {};
	__u32 len;

	if ((void *)(tcp + 1) > end || tcp->doff * 4 <= TCP_HLEN)
		return false;
	len = tcp->doff * 4 - TCP_HLEN;
	return !load_options(skb, seg->tcp_off + TCP_HLEN, len, &options) &&
	       !find_options(&options, &found) && found.has_others & HAS_MPTCP;
}

static __always_inline bool is_syn(struct __sk_buff *skb,
				   const struct segment *seg)
{
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = (void *)(long)skb->data + seg->tcp_off;

	return (void *)(tcp + 1) <= end && tcp->syn && !tcp->ack;
}

/* Stores a SYN that arrives for a listening socket. */
static __noinline int store_syn(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct multipath_key key = {};
	const struct syn_info *stored;
	struct syn_info info = {};
	struct segment seg = {};

	if (!tp || parse_ip(skb, &seg, 0, skb->protocol) ||
	    !is_syn(skb, &seg) || read_tuple(skb, &seg, &key.endpoints) ||
	    bpf_skb_load_bytes(skb, seg.tcp_off + offsetof(struct tcphdr, seq),
			       &info.seq, sizeof(info.seq)))
		return 0;
	key.netns = netns_of(&((struct sock *)tp)->__sk_common);
	info.seq = bpf_ntohl(info.seq);
	info.has_mptcp = has_mptcp_option(skb, &seg);
	stored = bpf_map_lookup_elem(&pillion_multipath, &key);
	if (info.has_mptcp || !stored || !stored->has_mptcp)
		bpf_map_update_elem(&pillion_multipath, &key, &info, BPF_ANY);
	return 0;
}

/* Whether the peer's SYN offered MPTCP. */
enum syn_state {
	SYN_NOT_LOOKED_UP, /* an existing connection, possibly without entry */
	SYN_REQUIRED, /* not looked up yet; a missing entry prevents bundling */
	SYN_PLAIN, /* without MPTCP */
	SYN_WITH_MPTCP,
	SYN_UNKNOWN, /* no valid entry */
};

/* Returns true if the packets are IPv6: not for an IPv4-mapped peer. */
static __always_inline bool has_ipv6_packets(struct bpf_sock *sk)
{
	return sk->family == AF_INET6 && (sk->dst_ip6[0] | sk->dst_ip6[1] |
					  (sk->dst_ip6[2] ^ bpf_htonl(0xffff)));
}

/*
 * Looks up the connection's SYN; returns an enum syn_state. A new connection
 * still has copied_seq = SYN + 1. An entry with another number may be forged.
 */
static __noinline int look_up_syn(struct bpf_sock *sk, bool established_now)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct multipath_key key = {};
	const struct syn_info *info;

	if (!tp)
		return SYN_UNKNOWN;
	socket_tuple(sk, has_ipv6_packets(sk), &key.endpoints);
	key.netns = netns_of(&((struct sock *)tp)->__sk_common);
	info = bpf_map_lookup_elem(&pillion_multipath, &key);
	if (!info)
		return SYN_UNKNOWN;
	if (info->has_mptcp)
		return SYN_WITH_MPTCP;
	if (established_now && info->seq + 1 != tp->copied_seq)
		return SYN_UNKNOWN;
	return SYN_PLAIN;
}

/* Returns true if the peer may have opened the connection with MPTCP. */
static __always_inline bool may_be_multipath(struct bpf_sock *sk,
					     const struct flow *flow)
{
	__u32 before = flow->syn_state, state = before;

	if (state <= SYN_REQUIRED)
		state = look_up_syn(sk, false);
	return state == SYN_WITH_MPTCP ||
	       (state == SYN_UNKNOWN && before != SYN_NOT_LOOKED_UP);
}

#endif /* PILLION_MULTIPATH_H */
