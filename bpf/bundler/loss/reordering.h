/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Losses that prove to be reordering: a segment counted as lost arrives later.
 * The lateness is learned, as RACK widens its reordering window for each report
 * of a spurious retransmission (RFC 8985, section 6.2).
 */
#ifndef PILLION_REORDERING_H
#define PILLION_REORDERING_H

#include "hidden_loss.h"

/*
 * Handles the report of a retransmission without new bytes: the bundle's packet
 * with that segment had arrived.
 */
static __always_inline void
note_spurious_retransmission(struct ingress *ingress,
			     const struct packet *packet, const struct ack *ack,
			     __u32 mss)
{
	if (packet->end == ack->duplicate_end &&
	    !after(ack->duplicate_start, packet->seq) &&
	    packet->flags & RETRANSMISSION_END)
		note_arrival(ingress, packet->start, packet->end, mss,
			     packet->flags);
}

/*
 * Returns the first byte that a report, in an ACK without new acknowledgement,
 * proves to have arrived. For a whole bundle that is the start of its own
 * bytes. A report in the ACK of another bundle's own packet belongs to that
 * bundle. It is then repeated, as one of several ACKs (and proves nothing), or
 * it showed no loss the first time.
 */
static __always_inline __u32 first_proved_byte(struct record *record,
					       __u32 next,
					       const struct ack *ack,
					       const struct packet *reported,
					       __u32 loss_ack)
{
	__u32 start = ack->duplicate_start, end = ack->duplicate_end;
	struct packet last = {};

	find_packet(record, next, ack->ack, &last);
	if (last.end == ack->ack && last.start == start && last.seq == end)
		return ack->ack == loss_ack ? start : end;
	if (reported->end == end && reported->start == start)
		return reported->seq;
	return start;
}

/*
 * Removes segments within start and end from the pending losses, because they
 * have arrived. A global function, so that the verifier checks the loop once.
 */
__noinline int mark_reordered(struct flow *flow, __u32 next, __u32 start,
			      __u32 end, struct hidden_losses *reordered_losses)
{
	struct ingress *ingress;
	struct record *record;
	__u32 at, i, seq, until;
	__u64 *word, bit;

	if (!flow || !reordered_losses)
		return 0;
	ingress = &flow->ingress;
	record = &flow->egress.record;
	at = find_segment(record, next, start);
	until = first_byte(slot(record, at));
	for (i = 0; i < RECORD_SLOTS && before(at, ingress->sacked.first_slot);
	     i++, at++) {
		seq = until;
		until = first_byte(slot(record, at + 1));
		if (after(until, end))
			break;
		word = &ingress->pending.bits[(at & (RECORD_SLOTS - 1)) / 64];
		bit = 1ULL << (at & 63);
		if (before(seq, start) || !(*word & bit))
			continue;
		*word &= ~bit;
		reordered_losses->segments++;
		reordered_losses->bytes += until - seq;
	}
	return 0;
}

/*
 * Updates the lateness of segments on this path: the maximum seen, fading
 * (fade_reorder_window()), at most one RTT.
 */
static __always_inline void update_reorder_window(struct ingress *ingress,
						  __u32 srtt_us)
{
	__u32 reorder_window_us = (__u32)now_us() - ingress->pending.start_us;

	if (reorder_window_us > srtt_us)
		reorder_window_us = srtt_us;
	if (reorder_window_us > ingress->reorder_window_us)
		WRITE_ONCE(ingress->reorder_window_us, reorder_window_us);
}

/*
 * Handles lost segments that arrived late. The time that bundles saved is then
 * unknown for all pending losses. Once all of them have arrived and no reaction
 * happened, none is needed.
 */
static __always_inline void
undo_losses(struct flow *flow, const struct hidden_losses *reordered_losses,
	    __u32 srtt_us)
{
	struct ingress *ingress = &flow->ingress;
	struct pending_losses *pending = &ingress->pending;
	struct hidden_losses *suspected_losses = &ingress->suspected_losses;

	if (!reordered_losses->segments)
		return;
	ADD(flow, reordered, reordered_losses->segments);
	pending->segments -= reordered_losses->segments;
	/* Losses repaired by a retransmission are certain. */
	if (suspected_losses->segments >= reordered_losses->segments &&
	    suspected_losses->bytes >= reordered_losses->bytes) {
		suspected_losses->segments -= reordered_losses->segments;
		suspected_losses->bytes -= reordered_losses->bytes;
		suspected_losses->time_saved_us = 0;
	} else {
		ADD(flow, time_saved_us, -(__u64)pending->time_saved_us);
		pending->time_saved_us = 0;
		update_reorder_window(ingress, srtt_us);
		if (!pending->segments && is_waiting(flow))
			WRITE_ONCE(ingress->notice.hidden,
				   READ_ONCE(flow->egress.handled.hidden));
	}
}

/*
 * Handles the report of a whole packet that had arrived before, in an ACK
 * without new acknowledgement. Segments counted as lost, or retransmitted, were
 * only late. A global function, so that the verifier does not follow every
 * case.
 */
__noinline int handle_reordering(struct flow *flow, __u32 next,
				 const struct ack *ack, __u32 mss,
				 __u32 srtt_us)
{
	struct hidden_losses reordered_losses = {};
	struct packet packet = {};
	struct ingress *ingress;
	struct record *record;
	__u32 start, end, last;
	struct loss_run *run;

	if (!flow || !ack || !ack->duplicate)
		return 0;
	ingress = &flow->ingress;
	record = &flow->egress.record;
	run = &ingress->run;
	end = ack->duplicate_end;
	find_packet(record, next, end, &packet);
	note_spurious_retransmission(ingress, &packet, ack, mss);
	start = first_proved_byte(record, next, ack, &packet,
				  ingress->loss_ack);
	if (start == end)
		return 0;
	mark_reordered(flow, next, start, end, &reordered_losses);
	undo_losses(flow, &reordered_losses, srtt_us);
	if (before(start, run->end) && after(end, run->start)) {
		start = later(start, run->start);
		last = find_segment(record, next, earlier(end, run->end) - 1);
		shorten_run(ingress,
			    last - find_segment(record, next, start) + 1);
	}
	return 0;
}

#endif /* PILLION_REORDERING_H */
