/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reports of duplicates (DSACK, RFC 2883) that bundles cause are taken out of
 * the ACK before TCP sees it.
 *
 * TCP takes a report for one of its own retransmissions, as long as it has seen
 * no more reports than it retransmitted (tcp_dsack_seen(): dsack_dups <=
 * total_retrans). It would then undo a window reduction that was right, and
 * widen RACK's reordering window. And once it has seen more, it ignores those
 * that are about its retransmissions as well.
 */
#ifndef PILLION_REPORT_H
#define PILLION_REPORT_H

#include "ack.h"
#include "history.h"
#include "maps.h"

/*
 * Is the report that of a packet which carried a bundle? Either its beginning
 * was duplicate, and the rest advanced the acknowledgement, as a retransmission
 * never does; or the whole of it, because a later packet overtook it, and TCP
 * sent nothing of it again. What rode along with a retransmission is judged by
 * the same. A global function, as the verifier is to look at the loop once.
 */
__noinline int is_of_bundle(struct flow *flow, __u32 start, __u32 end,
			    __u32 ack, __u32 una)
{
	__u32 packet_end, i, slot;
	bool advances = after(ack, una), again;

	if (!flow)
		return 0;
	again = was_sent_again(flow, start, end);
	if (rode_along(flow, start, end) && (advances || !again))
		return 1;
	packet_end = flow->sent_end;
	for (i = 1; i <= HISTORY_SEGMENTS && i <= flow->segments; i++) {
		slot = (flow->next - i) & (HISTORY_SEGMENTS - 1);
		if (start == flow->bundles[slot] &&
		    before(start, flow->starts[slot]) &&
		    !before(ack, packet_end) &&
		    ((advances && !after(end, flow->starts[slot])) ||
		     (!again && end == packet_end)))
			return 1;
		packet_end = flow->starts[slot];
	}
	return 0;
}

/* The other end's address comes first, as in the packet. */
static __always_inline struct bpf_sock *find_socket(struct __sk_buff *skb,
						    const struct segment *seg)
{
	struct bpf_sock_tuple tuple;
	__u32 size = seg->ipv6 ? sizeof(tuple.ipv6) : sizeof(tuple.ipv4);
	void *ports = seg->ipv6 ? (void *)&tuple.ipv6.sport
				: (void *)&tuple.ipv4.sport;

	if (bpf_skb_load_bytes(skb, seg->tcp, ports, 4))
		return NULL;
	if (seg->ipv6 ? bpf_skb_load_bytes(skb, seg->ip + 8, &tuple.ipv6, 32)
		      : bpf_skb_load_bytes(skb, seg->ip + 12, &tuple.ipv4, 8))
		return NULL;
	return bpf_sk_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
}

/*
 * Leaves NOPs in place of the first block, or of the option if it has no other.
 */
static __always_inline int
erase(struct __sk_buff *skb, const struct segment *seg, const struct ack *ack)
{
	__u32 nops = bpf_htonl(0x01010101), len;
	__be32 option[SACK_WORDS] = {nops, nops, nops};
	__be32 was[SACK_WORDS];
	__s64 diff;

	__builtin_memcpy(was, ack->option, sizeof(was));
	len = bpf_ntohl(was[0]) & ~TCP_OPT_SACK_MASK;
	if (len > 10)
		option[2] = bpf_htonl(TCP_OPT_SACK | (len - 8));
	diff = bpf_csum_diff(was, sizeof(was), option, sizeof(option), 0);
	if (diff < 0 ||
	    bpf_skb_store_bytes(skb, ack->option_at, option, sizeof(option), 0))
		return -1;
	return bpf_l4_csum_replace(skb, seg->tcp + TCP_CHECK, 0, diff, 0);
}

static __always_inline void keep_report(struct flow *flow,
					const struct ack *ack)
{
	struct report *report =
		&flow->reports[flow->next_report++ & (REPORTS - 1)];

	report->ack = ack->ack;
	report->start = ack->duplicate_start;
	report->end = ack->duplicate_end;
}

/* What was taken out of this ACK is put back, for hidden_loss.h to read. */
static __always_inline void restore_report(struct flow *flow, struct ack *ack)
{
	struct report *report;
	__u32 i;

	for (i = 0; i < REPORTS; i++) {
		report = &flow->reports[i];
		if (report->ack != ack->ack || report->start == report->end)
			continue;
		ack->duplicate = true;
		ack->duplicate_start = report->start;
		ack->duplicate_end = report->end;
		report->end = report->start;
		return;
	}
}

/* A packet has arrived at a device. Returns -1 if it is half rewritten. */
static __always_inline int take_out_report(struct __sk_buff *skb,
					   enum link_header link)
{
	struct segment seg = {};
	struct ack ack = {};
	struct bpf_tcp_sock *tp;
	struct bpf_sock *sk;
	struct flow *flow;
	int result = 0;

	if (parse_link(skb, &seg, link) || parse_ack(skb, &seg, &ack) ||
	    !ack.duplicate)
		return 0;
	sk = find_socket(skb, &seg);
	if (!sk)
		return 0;
	flow = bpf_sk_storage_get(&pillion_flows, sk, NULL, 0);
	tp = flow ? bpf_tcp_sock(sk) : NULL;
	if (tp && is_of_bundle(flow, ack.duplicate_start, ack.duplicate_end,
			       ack.ack, tp->snd_una)) {
		result = erase(skb, &seg, &ack);
		keep_report(flow, &ack);
		if (result)
			ADD(flow, acks_dropped, 1);
		else
			ADD(flow, reports, 1);
	}
	bpf_sk_release(sk);
	return result;
}

#endif /* PILLION_REPORT_H */
