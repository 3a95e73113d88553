/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Losses that turn out to be none: what was deemed lost comes late, on a path
 * that reorders. How late is learnt, as RACK widens its reordering window for
 * each report of a needless retransmission (RFC 8985, section 6.2).
 */
#ifndef PILLION_REORDERING_H
#define PILLION_REORDERING_H

#include "hidden_loss.h"

/*
 * The report of a retransmission that brought nothing new: the bundle's packet
 * that left with the segment had come.
 */
static __always_inline void note_needless(struct ingress *ingress,
					  const struct packet *packet,
					  const struct ack *ack, __u32 mss)
{
	if (packet->end == ack->duplicate_end &&
	    !after(ack->duplicate_start, packet->seq) &&
	    packet->how & ENDED_OLD)
		note_arrival(ingress, packet->start, packet->end, mss,
			     packet->how);
}

/*
 * From where on does a report, in an ACK that acknowledges nothing, prove what
 * has come to have come? Of a whole bundle, its own bytes alone. But not if it
 * is in the ACK of another bundle's own packet: then it is that one's, and
 * comes again, as one of several segments in answer (and proves nothing), or
 * found no loss when it came first.
 */
static __always_inline __u32 proved_from(struct record *record, __u32 next,
					 const struct ack *ack,
					 const struct packet *reported,
					 __u32 lost_by)
{
	__u32 start = ack->duplicate_start, end = ack->duplicate_end;
	struct packet last = {};

	find_packet(record, next, ack->ack, &last);
	if (last.end == ack->ack && last.start == start && last.seq == end)
		return ack->ack == lost_by ? start : end;
	if (reported->end == end && reported->start == start)
		return reported->seq;
	return start;
}

/*
 * Of the segments deemed lost, those that lie within start and end have come:
 * these are none any more. A global function, as the verifier is to look at the
 * loop once.
 */
__noinline int refute(struct flow *flow, __u32 next, __u32 start, __u32 end,
		      struct hidden *came)
{
	struct ingress *ingress;
	struct record *record;
	__u32 at, i, seq, until;
	__u64 *word, bit;

	if (!flow || !came)
		return 0;
	ingress = &flow->ingress;
	record = &flow->egress.record;
	at = find_segment(record, next, start);
	until = first_byte(slot(record, at));
	for (i = 0; i < RECORD && before(at, ingress->sacked.from); i++, at++) {
		seq = until;
		until = first_byte(slot(record, at + 1));
		if (after(until, end))
			break;
		word = &ingress->pending.bits[(at & (RECORD - 1)) / 64];
		bit = 1ULL << (at & 63);
		if (before(seq, start) || !(*word & bit))
			continue;
		*word &= ~bit;
		came->segments++;
		came->bytes += until - seq;
	}
	return 0;
}

/*
 * How long after it was deemed lost does a segment come on this path? The
 * longest that was seen, as it fades (fade_lateness()), and at most an RTT.
 */
static __always_inline void note_lateness(struct ingress *ingress,
					  __u32 srtt_us)
{
	__u32 late_us = (__u32)now_us() - ingress->pending.since;

	if (late_us > srtt_us)
		late_us = srtt_us;
	if (late_us > ingress->late_us)
		WRITE_ONCE(ingress->late_us, late_us);
}

/*
 * Segments that were deemed lost have come late. What their bundles saved is
 * not known any more, of none of those. Once all have come, and nobody has
 * answered yet, nobody need.
 */
static __always_inline void take_back(struct flow *flow,
				      const struct hidden *came, __u32 srtt_us)
{
	struct ingress *ingress = &flow->ingress;
	struct pending *pending = &ingress->pending;
	struct hidden *doubts = &ingress->doubts;

	if (!came->segments)
		return;
	ADD(flow, reordered, came->segments);
	pending->segments -= came->segments;
	/* What had come with a retransmission is in no doubt. */
	if (doubts->segments >= came->segments &&
	    doubts->bytes >= came->bytes) {
		doubts->segments -= came->segments;
		doubts->bytes -= came->bytes;
		doubts->saved_us = 0;
	} else {
		ADD(flow, saved_us, -(__u64)pending->saved_us);
		pending->saved_us = 0;
		note_lateness(ingress, srtt_us);
		if (!pending->segments && is_waiting(flow))
			WRITE_ONCE(ingress->found.hidden,
				   READ_ONCE(flow->egress.answered.hidden));
	}
}

/*
 * The report of a whole packet that had come before, so that its ACK
 * acknowledges nothing: segments that were deemed lost, or retransmitted, had
 * only been late. A global function, as the verifier is not to follow each
 * case.
 */
__noinline int come_late(struct flow *flow, __u32 next, const struct ack *ack,
			 __u32 mss, __u32 srtt_us)
{
	struct hidden came = {};
	struct packet packet = {};
	struct ingress *ingress;
	struct record *record;
	__u32 start, end, last;
	struct run *run;

	if (!flow || !ack || !ack->duplicate)
		return 0;
	ingress = &flow->ingress;
	record = &flow->egress.record;
	run = &ingress->run;
	end = ack->duplicate_end;
	find_packet(record, next, end, &packet);
	note_needless(ingress, &packet, ack, mss);
	start = proved_from(record, next, ack, &packet, ingress->lost_by);
	if (start == end)
		return 0;
	refute(flow, next, start, end, &came);
	take_back(flow, &came, srtt_us);
	if (before(start, run->end) && after(end, run->start)) {
		start = later(start, run->start);
		last = find_segment(record, next, earlier(end, run->end) - 1);
		shorten_run(ingress,
			    last - find_segment(record, next, start) + 1);
	}
	return 0;
}

#endif /* PILLION_REORDERING_H */
