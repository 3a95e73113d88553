/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bundling into retransmissions: the segments after one are appended to it (LCN
 * 2008, section III); optional.
 *
 * Only the retransmission of the first unacknowledged segment is used. Its
 * arrival either advances the acknowledgement or brings nothing new, which
 * distinguishes reports of duplicates (dsack.h). And only while nothing after
 * it is acknowledged selectively, as after the time-outs of a thin stream.
 * Otherwise TCP knows which segments are missing and retransmits them itself.
 * It would treat appended segments, acknowledged after later ones, as reordered
 * (tcp_check_sack_reordering()).
 */
#ifndef PILLION_RETRANSMISSION_H
#define PILLION_RETRANSMISSION_H

#include "../policy/caps.h"
#include "../policy/governor.h"
#include "grow.h"
#include "level.h"
#include "../sampling/observation.h"
#include "plpmtu.h"
#include "thin.h"

#define TCP_FLAGS 13 /* offset of the byte with PSH */
#define TCP_PSH	  0x08

/*
 * Returns the end of the last segment after seq to append: at most `packets`
 * segments, up to limit; seq itself for none. A global function, so that the
 * verifier checks the loop once.
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
	for (i = 0; i < RECORD_SLOTS && i < packets && at != record->next;
	     i++) {
		end = slot(record, ++at)->seq;
		if (after(end, limit))
			break;
		last = end;
	}
	return last;
}

/*
 * Marks the segments from start to end as appended to a retransmission; returns
 * their number. A global function, so that the verifier checks the loop once.
 */
__noinline int mark_followers(struct record *record, __u32 start, __u32 end)
{
	__u32 at, i;

	if (!record)
		return 0;
	at = find_segment(record, record->next, start);
	for (i = 0; i < RECORD_SLOTS && before(slot(record, at)->seq, end); i++)
		set_flags(slot(record, at++), SENT_IN_OTHER_PACKET);
	if (i)
		set_flags(slot(record, at - 1), RETRANSMISSION_END);
	return i;
}

/* Sets PSH, because appended data usually ends with an application's write. */
static __always_inline int set_push(struct __sk_buff *skb,
				    const struct segment *seg)
{
	__u8 tcp_flags;

	if (bpf_skb_load_bytes(skb, seg->tcp_off + TCP_FLAGS, &tcp_flags, 1))
		return -1;
	tcp_flags |= TCP_PSH;
	return bpf_skb_store_bytes(skb, seg->tcp_off + TCP_FLAGS, &tcp_flags, 1,
				   0);
}

/* Appends stored bytes after the segment, up to end. */
static __always_inline enum outcome
append(struct __sk_buff *skb, struct flow *flow, struct segment *seg, __u32 end)
{
	__u32 seq = seg->seq + seg->len, added = end - seq;

	if (bpf_skb_change_tail(skb, skb->len + added, 0))
		return NO_MEMORY;
	if (set_push(skb, seg) ||
	    write_payload(skb, flow, seg, seg->payload_off + seg->len, seq,
			  added, added))
		return DROPPED;
	return RETRANSMISSION_BUNDLED;
}

/*
 * Returns true if segments may be appended to a retransmission. If the last
 * retransmission of the segment had some, this one is skipped, because the
 * packet may have been too large for the path. The skip is consumed: the next
 * one may have some again.
 */
static __always_inline bool consume_append_attempt(struct flow *flow,
						   struct bpf_tcp_sock *btp,
						   const struct segment *seg)
{
	struct egress *egress = &flow->egress;

	if (seg->seq != btp->snd_una || btp->sacked_out)
		return false;
	if (is_suppressed(flow))
		return false;
	if (check_loss_detection(flow) != ELIGIBLE ||
	    READ_ONCE(flow->ingress.last_ack_unread))
		return false;
	if (egress->piggyback_seq == seg->seq &&
	    before(egress->piggyback_seq, egress->piggyback_end)) {
		egress->piggyback_seq = egress->piggyback_end;
		return false;
	}
	update_rtt_min(egress, btp);
	return check_thin(&flow->options, egress, btp) == ELIGIBLE;
}

/* End of the bytes that may be appended: stored, and already sent by TCP. */
static __always_inline __u32 last_byte_to_append(struct egress *egress,
						 struct bpf_tcp_sock *btp,
						 const struct segment *seg,
						 __u32 limit)
{
	__u32 end = seg->seq + seg->len, snd_nxt = btp->snd_nxt;

	if (before(end, record_end(&egress->record) - egress->stored_bytes))
		return end;
	return after(seg->seq + limit, snd_nxt) ? snd_nxt : seg->seq + limit;
}

/* Bundles into a retransmission; RETRANSMISSION if it stays unchanged. */
static __noinline enum outcome
bundle_into_retransmission(struct __sk_buff *skb, struct flow *flow,
			   struct bpf_tcp_sock *btp, struct bpf_sock *sk,
			   struct segment *seg)
{
	__u32 end = seg->seq + seg->len, packets, limit, size, last;
	struct egress *egress = &flow->egress;
	enum outcome outcome;

	if (!consume_append_attempt(flow, btp, seg))
		return RETRANSMISSION;
	limit = payload_limit(skb, flow, btp, seg);
	size = update_path_limit(&egress->path, &flow->ingress, &flow->options,
				 base_payload(seg), egress->announced.varying);
	packets = allowed_packets(flow);
	last = find_followers(&egress->record, end, packets ?: RECORD_SLOTS,
			      last_byte_to_append(egress, btp, seg,
						  size < limit ? size : limit));
	if (last == end || !take_governor_credit(sk, flow) ||
	    (capped && !take_from_caps(last - end, 0)))
		return RETRANSMISSION;
	outcome = append(skb, flow, seg, last);
	if (outcome != RETRANSMISSION_BUNDLED)
		return outcome;
	note_bundle_length(egress, mark_followers(&egress->record, end, last));
	egress->piggyback_seq = seg->seq;
	egress->piggyback_start = end;
	egress->piggyback_end = last;
	STORE_RELEASE(egress->piggyback_count, egress->piggyback_count + 1);
	return outcome;
}

#endif /* PILLION_RETRANSMISSION_H */
