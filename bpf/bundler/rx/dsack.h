/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hides reports of duplicates (DSACK, RFC 2883) that bundles cause from TCP.
 *
 * TCP attributes a report to its own retransmissions while it has seen no more
 * reports than retransmissions (tcp_dsack_seen(): dsack_dups <= total_retrans).
 * It would then undo a correct window reduction, and widen RACK's reordering
 * window. With more reports it ignores all of them, also those of its
 * retransmissions.
 *
 * Their block is therefore relabelled: it stays in the packet, but in an option
 * of the unassigned kind TCP_OPT_DSACK, which TCP skips. At the socket, ack.h
 * reads it.
 */
#ifndef PILLION_DSACK_H
#define PILLION_DSACK_H

#include "ack.h"
#include "../maps.h"
#include "../tx/record.h"
#include "../policy/translation.h"

/* Maximum bytes before TCP's options: VLAN tags and the longest IP header. */
#define MAX_HEADERS (ETH_HLEN + VLAN_TAGS * VLAN_HLEN + IP_HLEN_MAX + TCP_HLEN)

/*
 * Combines the flags of the segments: RETRANSMITTED if any has it,
 * SENT_IN_OTHER_PACKET if all have it. A global function, so that the verifier
 * checks the loop once.
 */
__noinline int combine_flags(struct record *record, __u32 start, __u32 end)
{
	__u32 next, at, i;
	__u16 any = 0, all = SENT_IN_OTHER_PACKET, flags;

	if (!record)
		return 0;
	next = LOAD_ACQUIRE(record->next);
	if (before(start, oldest_valid_seq(record, next)) ||
	    after(end, first_byte(slot(record, next))))
		return 0; /* not recorded, or no more */
	at = find_segment(record, next, start);
	for (i = 0; i < RECORD_SLOTS && at != next; i++, at++) {
		if (!before(first_byte(slot(record, at)), end))
			break;
		flags = READ_ONCE(slot(record, at)->flags);
		any |= flags;
		all &= flags;
	}
	return (any & RETRANSMITTED) | all;
}

/*
 * Returns true if the ACK answers a packet from before TCP retransmitted any of
 * the reported bytes. A packet that starts in acknowledged data and brings new
 * data has its timestamp echoed (RFC 7323, section 4.3). A packet without new
 * data does not, but is reported as a whole.
 */
static __always_inline bool predates_retransmission(struct flow *flow,
						    const struct ack *ack,
						    __u32 next, __u32 una)
{
	__u32 start = ack->duplicate_start, end = ack->duplicate_end;
	struct egress *egress = &flow->egress;
	struct record *record = &egress->record;
	__u32 first_tsval = LOAD_ACQUIRE(egress->retrans.first_tsval);
	__u32 snd_una_at_start = READ_ONCE(egress->retrans.snd_una_at_start);
	struct packet packet = {};

	if (!first_tsval || !ack->tsecr || !before(ack->tsecr, first_tsval) ||
	    after(start, una))
		return false;
	find_packet(record, next, end, &packet);
	if (packet.end != end || packet.flags & RETRANSMISSION_END)
		return false;
	/* Earlier retransmissions have other timestamps. */
	return !before(start, snd_una_at_start) ||
	       combine_flags(record, start, earlier(end, snd_una_at_start)) ==
		       SENT_IN_OTHER_PACKET;
}

/*
 * Returns true if the report is in the ACK of a bundle's own packet. The start
 * of that packet was duplicate. The rest advances the acknowledgement, to where
 * no retransmission ended.
 */
static __always_inline bool
is_bundle_packet_dsack(struct record *record, const struct ack *ack, __u32 next)
{
	struct packet packet = {};

	find_packet(record, next, ack->ack, &packet);
	return packet.end == ack->ack && packet.start == ack->duplicate_start &&
	       !after(ack->duplicate_end, packet.seq) &&
	       !(packet.flags & RETRANSMISSION_END);
}

/* Removes the FIN after data from a report: the record has only data. */
static __always_inline void exclude_fin(struct ack *ack, __u32 record_end)
{
	if (ack->duplicate_end - 1 == record_end &&
	    ack->duplicate_start != record_end)
		ack->duplicate_end = record_end;
}

/*
 * Returns true if the report is about a bundle or a copy. Segments that TCP has
 * not retransmitted were duplicated by one of these. For retransmitted ones,
 * the ACK decides. Removes a FIN from the report.
 */
static __always_inline bool
is_bundle_dsack(struct flow *flow, struct bpf_tcp_sock *btp, struct ack *ack)
{
	struct egress *egress = &flow->egress;
	struct record *record = &egress->record;
	__u32 next = LOAD_ACQUIRE(record->next), start, end, una;
	__u32 record_end_seq = first_byte(slot(record, next));
	int flags;

	exclude_fin(ack, record_end_seq);
	start = ack->duplicate_start;
	end = ack->duplicate_end;
	flags = combine_flags(record, start, end);
	if (!(flags & RETRANSMITTED))
		return flags & SENT_IN_OTHER_PACKET;
	order_accesses(); /* first_tsval was written before the flag */
	una = highest_ack(flow, btp->snd_una, record_end_seq);
	if (flags & SENT_IN_OTHER_PACKET &&
	    predates_retransmission(flow, ack, next, una))
		return true;
	if (!after(ack->ack, una))
		return false;
	if (!before(start, egress->piggyback_start) &&
	    !after(end, egress->piggyback_end))
		return true;
	return is_bundle_packet_dsack(record, ack, next);
}

/* Parses the link and IP headers; the TCP header must be linear. */
static __always_inline int
read_headers(struct __sk_buff *skb, struct segment *seg, enum link_header link)
{
	void *end = (void *)(long)skb->data_end;
	int result = parse_link(skb, seg, link);

	if (!result &&
	    (void *)(long)skb->data + seg->tcp_off + sizeof(struct tcphdr) >
		    end)
		return NOT_LINEAR;
	return result;
}

/*
 * Makes the headers linear. A driver may leave them in page fragments if
 * packets are not merged (napi_gro_frags()); a veth device does so if the
 * sender uses pages.
 */
static __always_inline int gather_headers(struct __sk_buff *skb,
					  struct segment *seg,
					  enum link_header link)
{
	__u32 len = skb->len < MAX_HEADERS ? skb->len : MAX_HEADERS;
	int result = read_headers(skb, seg, link);

	if (result != NOT_LINEAR)
		return result;
	if (skb->data_end - skb->data >= len || bpf_skb_pull_data(skb, len))
		return -1;
	return read_headers(skb, seg, link);
}

/*
 * Returns the flow of an arriving packet with these endpoints, or NULL. The
 * caller releases *sk, which is set even without a flow.
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
 * Finds the flow of an arriving packet; the caller releases *sk. Translated
 * addresses take precedence. They may equal the addresses of another
 * connection's socket, which then has translated ones itself.
 */
static __always_inline struct flow *find_flow(struct __sk_buff *skb,
					      const struct segment *seg,
					      struct bpf_sock **sk)
{
	struct bpf_sock_tuple tuple, own;
	struct translation *translation;
	struct flow *flow;
	__u64 cookie;

	*sk = NULL;
	if (read_tuple(skb, seg, &tuple))
		return NULL;
	translation = bpf_map_lookup_elem(&pillion_translated, &tuple);
	if (translation) {
		own = translation->own;
		cookie = translation->cookie;
		flow = look_up_flow(skb, &own, seg->ipv6, sk);
		/* The entry may be outdated, or of another namespace. */
		if (flow && READ_ONCE(flow->egress.translated) == cookie)
			return flow;
		if (*sk)
			bpf_sk_release(*sk);
	}
	return look_up_flow(skb, &tuple, seg->ipv6, sk);
}

static __always_inline __u8 *option_at(struct header_options *options, __u32 at)
{
	return &options->bytes[at & (OPTIONS_BUFFER - 1)];
}

/*
 * Moves the first SACK block into a separate option. Its header replaces the
 * two NOPs that Linux, Windows and the BSDs put before SACK; a SACK option with
 * a single block is only renamed. Returns -1 without space. A global function,
 * because variable offsets cannot be on the caller's stack.
 */
__noinline int split_dsack(struct header_options *options,
			   const struct option_positions *found)
{
	__u32 at, i;
	__u8 len;

	if (!options || !found)
		return -1;
	at = found->sack;
	len = found->sack_len;
	if (len < SACK_HEADER + 2 * SACK_BLOCK) {
		*option_at(options, at) = TCP_OPT_DSACK;
		return 0;
	}
	if (found->preceding_nops < 2)
		return -1;
	*option_at(options, at - 2) = TCP_OPT_DSACK;
	*option_at(options, at - 1) = SACK_HEADER + SACK_BLOCK;
	for (i = 0; i < SACK_BLOCK; i++)
		*option_at(options, at + i) =
			*option_at(options, at + SACK_HEADER + i);
	*option_at(options, at + SACK_BLOCK) = TCP_OPT_SACK;
	*option_at(options, at + SACK_BLOCK + 1) = len - SACK_BLOCK;
	return 0;
}

/*
 * Relabels the duplicate report of a packet. Returns 0, -1 if the packet is
 * half rewritten, or 1 if it is unchanged.
 */
static __always_inline int rewrite_dsack(struct __sk_buff *skb,
					 const struct segment *seg,
					 struct header_options *options,
					 const struct option_positions *found)
{
	__u32 at = seg->tcp_off + TCP_HLEN;
	__u8 old[MAX_OPTIONS];
	__u64 len = options->len - 1;
	__s64 diff;

	__builtin_memcpy(old, options->bytes, sizeof(old));
	if (split_dsack(options, found))
		return 1;
	diff = bpf_csum_diff((__be32 *)old, sizeof(old),
			     (__be32 *)options->bytes, sizeof(old), 0);
	BOUND(len, OPTIONS_BUFFER);
	if (diff < 0 ||
	    bpf_skb_store_bytes(skb, at, options->bytes, len + 1, 0))
		return -1;
	return bpf_l4_csum_replace(skb, seg->tcp_off + TCP_CHECK, 0, diff, 0);
}

/*
 * Relabels a bundle's DSACK in an arriving packet. Returns -1 if the packet is
 * half rewritten, otherwise 0.
 */
static __always_inline int relabel_dsack(struct __sk_buff *skb,
					 enum link_header link)
{
	struct header_options options = {};
	struct option_positions found = {};
	struct segment seg = {};
	struct ack ack = {};
	struct bpf_tcp_sock *btp;
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
	btp = flow ? bpf_tcp_sock(sk) : NULL;
	if (btp && is_bundle_dsack(flow, btp, &ack))
		result = rewrite_dsack(skb, &seg, &options, &found);
	if (flow && !result)
		ADD(flow, dsacks_removed, 1);
	else if (flow && result < 0)
		ADD(flow, acks_dropped, 1);
	bpf_sk_release(sk);
	return result < 0 ? result : 0;
}

#endif /* PILLION_DSACK_H */
