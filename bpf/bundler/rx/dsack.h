/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reports of duplicates (DSACK, RFC 2883) that bundles cause are hidden from
 * TCP.
 *
 * TCP takes a report for one of its own retransmissions, as long as it has seen
 * no more reports than it retransmitted (tcp_dsack_seen(): dsack_dups <=
 * total_retrans). It would then undo a window reduction that was right, and
 * widen RACK's reordering window. And once it has seen more, it ignores those
 * that are about its retransmissions as well.
 *
 * So their option becomes one that TCP does not know, and passes over. At the
 * socket it is read from there (ack.h).
 */
#ifndef PILLION_DSACK_H
#define PILLION_DSACK_H

#include "ack.h"
#include "../maps.h"
#include "../tx/record.h"
#include "../policy/translation.h"

/* Bytes before TCP's options at most: tags, and the longest IP header. */
#define HEADERS_MAX (ETH_HLEN + VLAN_TAGS * VLAN_HLEN + IP_HLEN_MAX + TCP_HLEN)

/*
 * Did TCP retransmit any of it, and did all of it ride along? A global
 * function, as the verifier is to look at the loop once.
 */
__noinline int look_up(struct record *record, __u32 start, __u32 end)
{
	__u32 next, at, i;
	__u16 any = 0, all = RODE_ALONG, how;

	if (!record)
		return 0;
	next = READ_ONCE(record->next);
	if (before(start, first_known(record, next)) ||
	    after(end, first_byte(slot(record, next))))
		return 0; /* not recorded, or no more */
	at = find_segment(record, next, start);
	for (i = 0; i < RECORD && at != next; i++, at++) {
		if (!before(first_byte(slot(record, at)), end))
			break;
		how = READ_ONCE(slot(record, at)->how);
		any |= how;
		all &= how;
	}
	return (any & RETRANSMITTED) | all;
}

/*
 * Does the ACK answer what left before TCP retransmitted any of what it
 * reports? A packet that begins in what was acknowledged, and brings more, has
 * its timestamp echoed (RFC 7323, section 4.3). One that brings nothing new has
 * not; but that is reported as a whole.
 */
static __always_inline bool is_earlier(struct flow *flow, const struct ack *ack,
				       __u32 next, __u32 una)
{
	__u32 start = ack->duplicate_start, end = ack->duplicate_end;
	struct egress *egress = &flow->egress;
	struct record *record = &egress->record;
	__u32 time = READ_ONCE(egress->retrans.time);
	__u32 first = READ_ONCE(egress->retrans.start);
	struct packet packet = {};

	if (!time || !ack->echo || !before(ack->echo, time) ||
	    after(start, una))
		return false;
	find_packet(record, next, end, &packet);
	if (packet.end != end || packet.how & ENDED_OLD)
		return false;
	/* What was retransmitted before that has other times. */
	return !before(start, first) ||
	       look_up(record, start, earlier(end, first)) == RODE_ALONG;
}

/*
 * Is it in the ACK of a bundle's own packet? Its beginning was duplicate, and
 * the rest advances the acknowledgement, to where no retransmission ended.
 */
static __always_inline bool is_of_packet(struct record *record,
					 const struct ack *ack, __u32 next)
{
	struct packet packet = {};

	find_packet(record, next, ack->ack, &packet);
	return packet.end == ack->ack && packet.start == ack->duplicate_start &&
	       !after(ack->duplicate_end, packet.seq) &&
	       !(packet.how & ENDED_OLD);
}

/*
 * Is the report about a bundle? What TCP has not retransmitted, and rode along,
 * came twice for that. Of what it has retransmitted, the ACK has to tell.
 */
static __always_inline bool
is_of_bundle(struct flow *flow, struct bpf_tcp_sock *tp, const struct ack *ack)
{
	__u32 start = ack->duplicate_start, end = ack->duplicate_end;
	struct egress *egress = &flow->egress;
	struct record *record = &egress->record;
	__u32 next = READ_ONCE(record->next);
	int seen = look_up(record, start, end);
	__u32 una;

	if (!(seen & RETRANSMITTED))
		return seen & RODE_ALONG;
	una = acked_so_far(flow, tp->snd_una, first_byte(slot(record, next)));
	if (seen & RODE_ALONG && is_earlier(flow, ack, next, una))
		return true;
	if (!after(ack->ack, una))
		return false;
	if (!before(start, egress->along_start) &&
	    !after(end, egress->along_end))
		return true;
	return is_of_packet(record, ack, next);
}

/* Reads the link and IP headers, and finds that of TCP. */
static __always_inline int
read_headers(struct __sk_buff *skb, struct segment *seg, enum link_header link)
{
	void *end = (void *)(long)skb->data_end;
	int result = parse_link(skb, seg, link);

	if (!result &&
	    (void *)(long)skb->data + seg->tcp + sizeof(struct tcphdr) > end)
		return CUT;
	return result;
}

/*
 * A driver may leave headers in pages of its own, where nothing merges what
 * arrives (napi_gro_frags()); a veth device has them of who sends from pages.
 */
static __always_inline int gather_headers(struct __sk_buff *skb,
					  struct segment *seg,
					  enum link_header link)
{
	__u32 len = skb->len < HEADERS_MAX ? skb->len : HEADERS_MAX;
	int result = read_headers(skb, seg, link);

	if (result != CUT)
		return result;
	if (skb->data_end - skb->data >= len || bpf_skb_pull_data(skb, len))
		return -1;
	return read_headers(skb, seg, link);
}

/*
 * The connection of ours that a packet is for that arrives with these ends, and
 * its socket, to be released.
 */
static __always_inline struct flow *look_up_flow(struct __sk_buff *skb,
						 struct bpf_sock_tuple *tuple,
						 bool ipv6,
						 struct bpf_sock **sk)
{
	*sk = look_up_socket(skb, tuple, ipv6);
	return *sk ? bpf_sk_storage_get(&pillion_flows, *sk, NULL, 0) : NULL;
}

/*
 * What is translated comes first: its packets may arrive with ends that another
 * connection has, whose own are translated for that.
 */
static __always_inline struct flow *find_flow(struct __sk_buff *skb,
					      const struct segment *seg,
					      struct bpf_sock **sk)
{
	struct bpf_sock_tuple tuple, own;
	struct translated *known;
	struct flow *flow;
	__u64 cookie;

	*sk = NULL;
	if (read_tuple(skb, seg, &tuple))
		return NULL;
	known = bpf_map_lookup_elem(&pillion_translated, &tuple);
	if (known) {
		own = known->own;
		cookie = known->cookie;
		flow = look_up_flow(skb, &own, seg->ipv6, sk);
		/* It may have ended, or be another network namespace's. */
		if (flow && READ_ONCE(flow->egress.translated) == cookie)
			return flow;
		if (*sk)
			bpf_sk_release(*sk);
	}
	return look_up_flow(skb, &tuple, seg->ipv6, sk);
}

static __always_inline __u8 *at_option(struct tcp_options *options, __u32 at)
{
	return &options->bytes[at & (OPTIONS_BUFFER - 1)];
}

/*
 * Gives the first block of the SACK option an option of its own. The header for
 * it takes the place of the two NOPs that Linux, Windows and the BSDs put
 * before SACK; if there is no other block, none is needed. Returns -1 if there
 * is no place for it. A global function, as places that vary are not for the
 * stack.
 */
__noinline int separate_dsack(struct tcp_options *options,
			      const struct options_found *found)
{
	__u32 at, i;
	__u8 len;

	if (!options || !found)
		return -1;
	at = found->sack;
	len = found->sack_len;
	if (len < SACK_HEADER + 2 * SACK_BLOCK) {
		*at_option(options, at) = TCP_OPT_DSACK;
		return 0;
	}
	if (found->nops < 2)
		return -1;
	*at_option(options, at - 2) = TCP_OPT_DSACK;
	*at_option(options, at - 1) = SACK_HEADER + SACK_BLOCK;
	for (i = 0; i < SACK_BLOCK; i++)
		*at_option(options, at + i) =
			*at_option(options, at + SACK_HEADER + i);
	*at_option(options, at + SACK_BLOCK) = TCP_OPT_SACK;
	*at_option(options, at + SACK_BLOCK + 1) = len - SACK_BLOCK;
	return 0;
}

/*
 * Hides the report of duplicates in a packet. Returns -1 if the packet is half
 * rewritten, and 1 if it is as it was.
 */
static __always_inline int hide_dsack(struct __sk_buff *skb,
				      const struct segment *seg,
				      struct tcp_options *options,
				      const struct options_found *found)
{
	__u32 at = seg->tcp + TCP_HLEN;
	__u8 was[OPTIONS_MAX];
	__u64 len = options->len - 1;
	__s64 diff;

	__builtin_memcpy(was, options->bytes, sizeof(was));
	if (separate_dsack(options, found))
		return 1;
	diff = bpf_csum_diff((__be32 *)was, sizeof(was),
			     (__be32 *)options->bytes, sizeof(was), 0);
	BOUND(len, OPTIONS_BUFFER);
	if (diff < 0 ||
	    bpf_skb_store_bytes(skb, at, options->bytes, len + 1, 0))
		return -1;
	return bpf_l4_csum_replace(skb, seg->tcp + TCP_CHECK, 0, diff, 0);
}

/* A packet has arrived at a device. Returns -1 if it is half rewritten. */
static __always_inline int take_out_dsack(struct __sk_buff *skb,
					  enum link_header link)
{
	struct tcp_options options = {};
	struct options_found found = {};
	struct segment seg = {};
	struct ack ack = {};
	struct bpf_tcp_sock *tp;
	struct bpf_sock *sk;
	struct flow *flow;
	int result = 1;

	if (gather_headers(skb, &seg, link) ||
	    parse_ack(skb, &seg, &options, &found, &ack) || !ack.duplicate ||
	    found.dsack_len)
		return 0;
	flow = find_flow(skb, &seg, &sk);
	if (!sk)
		return 0;
	tp = flow ? bpf_tcp_sock(sk) : NULL;
	if (tp && is_of_bundle(flow, tp, &ack))
		result = hide_dsack(skb, &seg, &options, &found);
	if (flow && !result)
		ADD(flow, dsacks_hidden, 1);
	else if (flow && result < 0)
		ADD(flow, acks_dropped, 1);
	bpf_sk_release(sk);
	return result < 0 ? result : 0;
}

#endif /* PILLION_DSACK_H */
