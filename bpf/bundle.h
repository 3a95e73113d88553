/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Redundant Data Bundling: a small new segment carries the unacknowledged bytes
 * before it (LCN 2015, section III).
 *
 * Whole previous segments ride along, newest first, as many as the limits
 * allow. The packet is read until all is decided; from then on it is either
 * sent with a whole bundle or not at all.
 */
#ifndef PILLION_BUNDLE_H
#define PILLION_BUNDLE_H

#include "grow.h"
#include "history.h"
#include "level.h"
#include "maps.h"
#include "retransmission.h"
#include "round_trip.h"
#include "sending_rate.h"
#include "thin.h"

/*
 * Decides for new data that follows the history; *start becomes the sequence
 * number at which the segment with its bundle begins.
 */
static __always_inline enum verdict
choose(struct __sk_buff *skb, struct flow *flow, struct bpf_tcp_sock *tp,
       const struct segment *seg, __u32 *start)
{
	__u32 snd_una = tp->snd_una, end = seg->seq + seg->len;
	__u32 packets = allowed_packets(flow);
	enum verdict verdict;
	__u32 i, candidate, limit;

	if (!after(seg->seq, snd_una))
		return NOTHING_OUTSTANDING;
	limit = payload_limit(skb, &flow->options, tp, seg);
	if (seg->len >= limit)
		return FULL_SIZE;
	if (flow->sack != SACK_OFFERED && !flow->options.without_sack)
		return NO_SACK;
	if (flow->options.wait_for_loss && !tp->total_retrans)
		return NO_LOSS;
	verdict = test_thin(&flow->options, tp);
	if (verdict != BUNDLED)
		return verdict;
	if (!packets || packets > flow->segments)
		packets = flow->segments;

	*start = seg->seq;
	verdict = NO_HISTORY;
	for (i = 1; i <= HISTORY_SEGMENTS && i <= packets; i++) {
		candidate =
			flow->starts[(flow->next - i) & (HISTORY_SEGMENTS - 1)];
		if (before(candidate, snd_una))
			break;
		if (end - candidate > limit) {
			verdict = NO_ROOM;
			break;
		}
		*start = candidate;
	}
	return *start == seg->seq ? verdict : BUNDLED;
}

/* Lets the remembered bytes from start on ride along. */
static __always_inline enum verdict prepend(struct __sk_buff *skb,
					    struct flow *flow,
					    struct segment *seg, __u32 start)
{
	__u32 grown = seg->seq - start;
	__be32 seq = bpf_htonl(start);

	if (bpf_skb_change_tail(skb, skb->len + grown, 0))
		return NO_MEMORY;
	if (bpf_skb_store_bytes(skb, seg->tcp + 4, &seq, sizeof(seq), 0) ||
	    fill(skb, flow, seg, seg->payload, start, grown + seg->len, grown))
		return DROPPED;
	return BUNDLED;
}

/* New data, recorded whatever becomes of it. */
static __always_inline enum verdict send_new(struct __sk_buff *skb,
					     struct flow *flow,
					     struct bpf_tcp_sock *tp,
					     struct segment *seg, __u32 *start)
{
	enum verdict verdict;

	if (seg->seq != flow->sent_end)
		forget(flow);
	note_new_segment(flow);
	verdict = choose(skb, flow, tp, seg, start);
	if (seg->len >= HISTORY_BYTES) {
		forget(flow);
		return verdict;
	}
	if (remember(skb, flow, seg)) {
		forget(flow);
		return UNREADABLE;
	}
	if (verdict != BUNDLED)
		return verdict;
	verdict = prepend(skb, flow, seg, *start);
	if (verdict == BUNDLED)
		note_bundle(flow, *start);
	return verdict;
}

/* A packet with data, as it leaves; so many redundant bytes ride along. */
static __always_inline void measure(struct __sk_buff *skb, struct flow *flow,
				    struct bpf_tcp_sock *tp,
				    const struct segment *seg, __u32 redundant)
{
	struct sent sent = {.payload = seg->len + redundant};

	if (flow->options.reaction != REACT_TFRC_SP)
		return;
	sent.packets = skb->gso_size ? skb->gso_segs : 1;
	sent.wire = sent.payload + sent.packets * (seg->payload - seg->ip);
	note_sent(&flow->sending, now_us(), round_trip_us(tp), &sent);
}

/* One data segment on its way out; parsed is what parse() said of it. */
static __always_inline enum verdict
send_segment(struct __sk_buff *skb, struct flow *flow, struct bpf_tcp_sock *tp,
	     struct segment *seg, enum verdict parsed)
{
	/* TCP counts a segment as sent when it has passed here. */
	__u32 snd_nxt = tp->snd_nxt, end = seg->seq + seg->len;
	enum verdict verdict = parsed;
	__u32 start = seg->seq, redundant;

	if (after(end, snd_nxt) && end == flow->sent_end)
		return verdict; /* counted at the device above this one */
	if (!after(end, snd_nxt)) {
		if (!before(seg->seq, flow->again_end))
			note_run(flow, allowed_packets(flow) + 1);
		note_again(flow, seg->seq, end);
		if (!flow->options.retransmissions || verdict != BUNDLED)
			verdict = OLD_DATA;
		else
			verdict = send_again(skb, flow, tp, seg);
		redundant = verdict == RETRANSMISSION_BUNDLED
				    ? flow->along_end - end
				    : 0;
		count(flow, verdict, 0, redundant);
		measure(skb, flow, tp, seg, redundant);
		return verdict;
	}
	if (flow->off)
		return verdict; /* as if recorded elsewhere: a gap */
	if (before(seg->seq, snd_nxt))
		verdict = OVERLAP;
	if (verdict == BUNDLED)
		verdict = send_new(skb, flow, tp, seg, &start);
	else
		forget(flow);
	flow->sent_end = end;
	redundant = verdict == BUNDLED ? seg->seq - start : 0;
	count(flow, verdict, verdict == OVERLAP ? end - snd_nxt : seg->len,
	      redundant);
	measure(skb, flow, tp, seg, redundant);
	return verdict;
}

/* A packet of a connection that is ours leaves by a device. */
static __always_inline int bundle(struct __sk_buff *skb, struct bpf_sock *sk,
				  struct flow *flow, enum link_header link)
{
	struct bpf_tcp_sock *tp = bpf_tcp_sock(sk);
	enum verdict verdict;
	struct segment seg = {};

	if (!tp || (flow->off && !before(tp->snd_una, flow->sent_end)))
		return TCX_NEXT;
	verdict = parse(skb, &seg, link);
	if (verdict == NOT_PLAIN_IP) {
		if (!seg.in_tunnel) /* counted at the tunnel's device */
			count(flow, verdict, 0, 0);
		return TCX_NEXT;
	}
	if (!seg.len)
		return TCX_NEXT;
	/*
	 * The socket's lock serialises its segments, but not those that waited
	 * on the way: for a neighbour's address, in a queue of the firewall or
	 * of a device above. What is not recorded here counts as a gap.
	 */
	if (__sync_lock_test_and_set(&flow->busy, 1)) {
		count(flow, BUSY, seg.len, 0);
		return TCX_NEXT;
	}
	verdict = send_segment(skb, flow, tp, &seg, verdict);
	__sync_lock_test_and_set(&flow->busy, 0);
	return verdict == DROPPED ? TCX_DROP : TCX_NEXT;
}

#endif /* PILLION_BUNDLE_H */
