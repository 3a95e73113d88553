/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Peers that open a connection with MPTCP (RFC 8684). This end knows none of it
 * and answers as plain TCP, so that theirs falls back to that (section 3.7).
 * Linux as the peer then loses its place in the stream where segments overlap:
 * what a bundle brings twice its application reads twice, and of what follows
 * nothing.
 */
#ifndef PILLION_MULTIPATH_H
#define PILLION_MULTIPATH_H

#include "scope.h"
#include "tcp_options.h"
#include "translation.h"

/* Beyond that, the one that began first is forgotten. */
#define MAX_MULTIPATH 4096

/* Of a connection, as its packets arrive at the socket. */
struct multipath_key {
	__u64 netns; /* a cookie */
	struct bpf_sock_tuple ends;
	__u32 unused;
};

/* Connections whose SYN offered MPTCP. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_MULTIPATH);
	__type(key, struct multipath_key);
	__type(value, __u8);
} pillion_multipath SEC(".maps");

/* Does a SYN offer MPTCP? */
static __always_inline bool is_offered(struct __sk_buff *skb,
				       const struct segment *seg)
{
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = (void *)(long)skb->data + seg->tcp;
	struct options_found found = {};
	struct tcp_options options = {};
	__u32 len;

	if ((void *)(tcp + 1) > end || tcp->doff * 4 <= TCP_HLEN)
		return false;
	len = tcp->doff * 4 - TCP_HLEN;
	return !load_options(skb, seg->tcp + TCP_HLEN, len, &options) &&
	       !find_options(&options, &found) && found.has_others & HAS_MPTCP;
}

static __always_inline bool is_syn(struct __sk_buff *skb,
				   const struct segment *seg)
{
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = (void *)(long)skb->data + seg->tcp;

	return (void *)(tcp + 1) <= end && tcp->syn && !tcp->ack;
}

/* A packet arrives for a socket that listens. */
static __noinline int note_offer(struct __sk_buff *skb, struct bpf_sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct multipath_key key = {};
	struct segment seg = {};
	__u8 offered = 1;

	if (!tp || parse_ip(skb, &seg, 0, skb->protocol) ||
	    !is_syn(skb, &seg) || read_tuple(skb, &seg, &key.ends))
		return 0;
	key.netns = netns_of(&((struct sock *)tp)->__sk_common);
	if (is_offered(skb, &seg))
		bpf_map_update_elem(&pillion_multipath, &key, &offered,
				    BPF_ANY);
	else
		bpf_map_delete_elem(&pillion_multipath, &key);
	return 0;
}

/* Did the connection's SYN offer MPTCP, as far as that is known? */
static __noinline int came_with_multipath(struct __sk_buff *skb,
					  struct bpf_sock *sk)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	bool ipv6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	struct multipath_key key = {};

	if (!tp)
		return 0;
	own_tuple(sk, ipv6, &key.ends);
	key.netns = netns_of(&((struct sock *)tp)->__sk_common);
	return bpf_map_lookup_elem(&pillion_multipath, &key) ? 1 : 0;
}

#endif /* PILLION_MULTIPATH_H */
