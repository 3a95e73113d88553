/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A retransmission takes along the segments that follow it (LCN 2008, section
 * III): an option.
 *
 * Only that of the first unacknowledged segment does, so that its arrival
 * either advances the acknowledgement or brings nothing new at all: by that,
 * reports of duplicates are told apart (dsack.h). And only while nothing
 * beyond it is acknowledged selectively, as after the time-outs of a thin
 * stream. Else TCP knows what is missing and retransmits it itself; and it
 * would take segments that it did not, acknowledged behind later ones, for
 * reordered (tcp_check_sack_reordering()).
 */
#ifndef PILLION_RETRANSMISSION_H
#define PILLION_RETRANSMISSION_H

#include "../policy/governor.h"
#include "grow.h"
#include "level.h"
#include "../sampling/observation.h"
#include "path.h"
#include "thin.h"

#define TCP_FLAGS 13 /* offset of the byte with PSH */
#define TCP_PSH	  0x08

/*
 * Where the last of the segments that follow seq ends, if so many may, and only
 * up to limit: seq itself if none does. A global function, as the verifier is
 * to look at the loop once.
 */
__noinline __u32 find_followers(struct record *record, __u32 seq, __u32 packets,
				__u32 limit)
{
	__u32 at, i, end, last = seq;

	if (!record)
		return seq;
	at = find_segment(record, record->next, seq);
	if (slot(record, at)->seq != seq)
		return seq;
	for (i = 0; i < RECORD && i < packets && at != record->next; i++) {
		end = slot(record, ++at)->seq;
		if (after(end, limit))
			break;
		last = end;
	}
	return last;
}

/*
 * Marks the segments from start to end as riding along with a retransmission:
 * so many.
 * A global function, as the verifier is to look at the loop once.
 */
__noinline int mark_followers(struct record *record, __u32 start, __u32 end)
{
	__u32 at, i;

	if (!record)
		return 0;
	at = find_segment(record, record->next, start);
	for (i = 0; i < RECORD && before(slot(record, at)->seq, end); i++)
		mark(slot(record, at++), RODE_ALONG);
	if (i)
		mark(slot(record, at - 1), ENDED_OLD);
	return i;
}

/*
 * Sets PSH: the packet ends where a write of the application's did, as a rule.
 */
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
static __always_inline enum outcome
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

/*
 * May others ride along with a retransmission, as far as they fit? Not if they
 * did the last time: the packet may have been too large for the path.
 */
static __always_inline bool takes_along(struct flow *flow,
					struct bpf_tcp_sock *tp,
					const struct segment *seg)
{
	struct egress *egress = &flow->egress;

	if (seg->seq != tp->snd_una || tp->sacked_out)
		return false;
	if (is_held_back(flow))
		return false;
	if (test_acks(flow) != ELIGIBLE || READ_ONCE(flow->ingress.unread))
		return false;
	if (egress->along_seq == seg->seq &&
	    before(egress->along_seq, egress->along_end)) {
		egress->along_seq = egress->along_end;
		return false;
	}
	return test_thin(&flow->options, egress, tp) == ELIGIBLE;
}

/* The last byte that may ride along: it is kept, and TCP itself has sent it. */
static __always_inline __u32 last_to_follow(struct egress *egress,
					    struct bpf_tcp_sock *tp,
					    const struct segment *seg,
					    __u32 limit)
{
	__u32 end = seg->seq + seg->len, snd_nxt = tp->snd_nxt;

	if (before(end, record_end(&egress->record) - egress->kept))
		return end;
	return after(seg->seq + limit, snd_nxt) ? snd_nxt : seg->seq + limit;
}

/* A plain retransmission; OLD_DATA if it passes untouched. */
static __noinline enum outcome
retransmit(struct __sk_buff *skb, struct flow *flow, struct bpf_tcp_sock *tp,
	   struct bpf_sock *sk, struct segment *seg)
{
	__u32 end = seg->seq + seg->len, packets, limit, size, last;
	struct egress *egress = &flow->egress;
	enum outcome outcome;

	if (!takes_along(flow, tp, seg) || !is_allowed(sk, flow))
		return OLD_DATA;
	limit = payload_limit(skb, flow, tp, seg);
	size = current_limit(&egress->path, &flow->ingress, &flow->options,
			     base_size(seg), egress->announced.varying);
	packets = allowed_packets(flow);
	last = find_followers(
		&egress->record, end, packets ?: RECORD,
		last_to_follow(egress, tp, seg, size < limit ? size : limit));
	if (last == end)
		return OLD_DATA;
	outcome = append(skb, flow, seg, last);
	if (outcome != RETRANSMISSION_BUNDLED)
		return outcome;
	note_length(egress, mark_followers(&egress->record, end, last));
	egress->along_seq = seg->seq;
	egress->along_start = end;
	egress->along_end = last;
	PUBLISH(egress->along_count, egress->along_count + 1);
	return outcome;
}

#endif /* PILLION_RETRANSMISSION_H */
