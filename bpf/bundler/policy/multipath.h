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
#include "../tcp_options.h"
#include "translation.h"

/*
 * Of more SYNs the oldest are forgotten, so that spoofed ones evict others'. A
 * connection that needs a note and has none is not bundled.
 */
#define MAX_NOTES 4096

/* Of a connection, as its packets arrive at the socket. */
struct multipath_key {
	__u64 netns; /* a cookie */
	struct bpf_sock_tuple ends;
	__u32 unused;
};

struct syn_note {
	__u32 seq; /* the SYN's */
	__u32 offered; /* 1: MPTCP */
};

/*
 * What SYNs to listeners offered. A later SYN without MPTCP does not take an
 * offer back: it may be forged, or a client's second try, whose socket is one
 * for MPTCP all the same.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_NOTES);
	__type(key, struct multipath_key);
	__type(value, struct syn_note);
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
	const struct syn_note *known;
	struct syn_note note = {};
	struct segment seg = {};

	if (!tp || parse_ip(skb, &seg, 0, skb->protocol) ||
	    !is_syn(skb, &seg) || read_tuple(skb, &seg, &key.ends) ||
	    bpf_skb_load_bytes(skb, seg.tcp + offsetof(struct tcphdr, seq),
			       &note.seq, sizeof(note.seq)))
		return 0;
	key.netns = netns_of(&((struct sock *)tp)->__sk_common);
	note.seq = bpf_ntohl(note.seq);
	note.offered = is_offered(skb, &seg);
	known = bpf_map_lookup_elem(&pillion_multipath, &key);
	if (note.offered || !known || !known->offered)
		bpf_map_update_elem(&pillion_multipath, &key, &note, BPF_ANY);
	return 0;
}

/* A connection's note, as far as it has been read. */
enum note {
	NOTE_UNREAD, /* an older connection, which may have none */
	NOTE_NEEDED, /* not read yet, and the peer opened it */
	NOTE_PLAIN,
	NOTE_OFFERED,
	NOTE_MISSING,
};

/* Are its packets IPv6, which those of a mapped address are not? */
static __always_inline bool has_ipv6_packets(struct bpf_sock *sk)
{
	return sk->family == AF_INET6 && (sk->dst_ip6[0] | sk->dst_ip6[1] |
					  (sk->dst_ip6[2] ^ bpf_htonl(0xffff)));
}

/*
 * A connection that is established just now has the sequence number of its SYN
 * still: a note with another one is not of it, but may be forged.
 */
static __noinline int read_note(struct bpf_sock *sk, bool established_now)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct multipath_key key = {};
	const struct syn_note *note;

	if (!tp)
		return NOTE_MISSING;
	own_tuple(sk, has_ipv6_packets(sk), &key.ends);
	key.netns = netns_of(&((struct sock *)tp)->__sk_common);
	note = bpf_map_lookup_elem(&pillion_multipath, &key);
	if (!note)
		return NOTE_MISSING;
	if (note->offered)
		return NOTE_OFFERED;
	if (established_now && note->seq + 1 != tp->copied_seq)
		return NOTE_MISSING;
	return NOTE_PLAIN;
}

/* May its peer have begun it with MPTCP, as far as can be known? */
static __always_inline bool may_be_multipath(struct bpf_sock *sk,
					     const struct flow *flow)
{
	__u32 before = flow->note, note = before;

	if (note <= NOTE_NEEDED)
		note = read_note(sk, false);
	return note == NOTE_OFFERED ||
	       (note == NOTE_MISSING && before != NOTE_UNREAD);
}

#endif /* PILLION_MULTIPATH_H */
