/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A retransmission takes along the segments that follow it (LCN 2008, section
 * III): an option.
 *
 * Only that of the first unacknowledged segment does, so that its arrival
 * either advances the acknowledgement or brings nothing new at all: by that,
 * reports of duplicates are told apart (report.h). And only while nothing
 * beyond it is acknowledged selectively, as after the time-outs of a thin
 * stream. Else TCP knows what is missing and sends it again itself; and it
 * would take segments that it did not, acknowledged behind later ones, for
 * reordered (tcp_check_sack_reordering()).
 */
#ifndef PILLION_RETRANSMISSION_H
#define PILLION_RETRANSMISSION_H

#include "grow.h"
#include "history.h"
#include "level.h"
#include "thin.h"

#define TCP_FLAGS 13 /* offset of the byte with PSH */
#define TCP_PSH	  0x08

/*
 * Where the last of the segments that follow seq ends, if so many may, and only
 * up to limit: seq itself if none does. A global function, as the verifier is
 * to look at the loops once.
 */
__noinline int find_followers(struct flow *flow, __u32 seq, __u32 packets,
			      __u32 limit)
{
	__u32 i, end, first = 0, last = seq;

	if (!flow)
		return seq;
	for (i = 1; i <= HISTORY_SEGMENTS && i <= flow->segments; i++) {
		if (flow->starts[(flow->next - i) & (HISTORY_SEGMENTS - 1)] ==
		    seq) {
			first = i;
			break;
		}
	}
	if (!packets || packets > first)
		packets = first;
	for (i = 1; i <= HISTORY_SEGMENTS && i <= packets; i++) {
		end = i < first ? flow->starts[(flow->next - first + i) &
					       (HISTORY_SEGMENTS - 1)]
				: flow->sent_end;
		if (after(end, limit))
			break;
		last = end;
	}
	return last;
}

/* It ends where a write of the application's did, as a rule. */
static __always_inline int push(struct __sk_buff *skb,
				const struct segment *seg)
{
	__u8 flags;

	if (bpf_skb_load_bytes(skb, seg->tcp + TCP_FLAGS, &flags, 1))
		return -1;
	flags |= TCP_PSH;
	return bpf_skb_store_bytes(skb, seg->tcp + TCP_FLAGS, &flags, 1, 0);
}

/* Lets the remembered bytes behind the segment, up to end, ride along. */
static __always_inline enum verdict
append(struct __sk_buff *skb, struct flow *flow, struct segment *seg, __u32 end)
{
	__u32 seq = seg->seq + seg->len, grown = end - seq;

	if (bpf_skb_change_tail(skb, skb->len + grown, 0))
		return NO_MEMORY;
	if (push(skb, seg) ||
	    fill(skb, flow, seg, seg->payload + seg->len, seq, grown, grown))
		return DROPPED;
	return RETRANSMISSION_BUNDLED;
}

/* May others ride along with it, as far as they fit? */
static __always_inline bool takes_along(struct flow *flow,
					struct bpf_tcp_sock *tp,
					const struct segment *seg)
{
	__u32 end = seg->seq + seg->len;

	if (flow->off || seg->seq != tp->snd_una || tp->sacked_out)
		return false;
	if (flow->sack != SACK_OFFERED && !flow->options.without_sack)
		return false;
	if (flow->sent_end - end > HISTORY_BYTES)
		return false; /* none follows, or what does is forgotten */
	if (end == flow->along_end && before(seg->seq, flow->along_start))
		return false; /* done at the device above this one */
	return test_thin(&flow->options, tp) == BUNDLED;
}

/* A plain retransmission; OLD_DATA if it passes untouched. */
static __noinline enum verdict send_again(struct __sk_buff *skb,
					  struct flow *flow,
					  struct bpf_tcp_sock *tp,
					  struct segment *seg)
{
	__u32 end = seg->seq + seg->len, limit, last;
	enum verdict verdict;

	if (!takes_along(flow, tp, seg))
		return OLD_DATA;
	limit = payload_limit(skb, &flow->options, tp, seg);
	last = find_followers(flow, end, allowed_packets(flow),
			      seg->seq + limit);
	if (last == end)
		return OLD_DATA;
	verdict = append(skb, flow, seg, last);
	if (verdict != RETRANSMISSION_BUNDLED)
		return verdict;
	flow->along_start = end;
	flow->along_end = last;
	flow->along_pending = 1;
	flow->reduced_to = tp->snd_ssthresh;
	return verdict;
}

#endif /* PILLION_RETRANSMISSION_H */
