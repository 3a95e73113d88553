/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Losses that turn out to be none: what was deemed lost comes late, on a path
 * that reorders. How late is learnt, as RACK widens its reordering window for
 * each report of a needless retransmission (RFC 8985, section 6.2).
 */
#ifndef PILLION_LATE_H
#define PILLION_LATE_H

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
 * How long after it was deemed lost does a segment come on this path? The
 * longest that was seen, as it fades (fade_lateness()).
 */
static __always_inline void note_lateness(struct ingress *ingress)
{
	__u32 late_us = (__u32)now_us() - ingress->call_at;

	if (late_us > ingress->late_us)
		WRITE_ONCE(ingress->late_us, late_us);
}

/*
 * Of what was deemed lost last some bytes have come late; is it all by now? It
 * never is once some came from its middle: what they leave is not one range.
 */
static __always_inline bool all_came(struct ingress *ingress, __u32 start,
				     __u32 end)
{
	if (!after(start, ingress->lost_start)) {
		ingress->lost_start = earlier(end, ingress->lost_end);
	} else if (!before(end, ingress->lost_end)) {
		ingress->lost_end = start;
	} else {
		ingress->lost_end = ingress->lost_start;
		ingress->lost = (struct hidden){};
		return false;
	}
	return ingress->lost_start == ingress->lost_end;
}

/*
 * What was deemed lost last has come late, or a part. Once all of it has, and
 * nobody has answered yet for this nor for any other, nobody need.
 */
static __always_inline void take_back(struct flow *flow, __u32 start, __u32 end)
{
	struct ingress *ingress = &flow->ingress;
	struct hidden *lost = &ingress->lost;
	__u64 answered = READ_ONCE(flow->egress.answered);
	bool in_doubt = ingress->doubts.segments;

	ADD(flow, reordered, 1);
	if (lost->called)
		note_lateness(ingress);
	if (!in_doubt) {
		ADD(flow, saved_us, -lost->saved_us);
		lost->saved_us = 0;
	}
	if (!all_came(ingress, start, end))
		return;
	if (in_doubt)
		take_away(&ingress->doubts, lost);
	else if (lost->called && ingress->call >> 32 == (answered >> 32) + 1)
		WRITE_ONCE(ingress->call, answered);
	*lost = (struct hidden){};
}

/*
 * The report of a whole packet that had come before, so that its ACK
 * acknowledges nothing: segments that were deemed lost, or retransmitted, had
 * only been late. A global function, as the verifier is not to follow each
 * case.
 */
__noinline int come_late(struct flow *flow, __u32 next, const struct ack *ack,
			 __u32 mss)
{
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
	if (before(start, ingress->lost_end) && after(end, ingress->lost_start))
		take_back(flow, start, end);
	if (before(start, run->end) && after(end, run->start)) {
		start = later(start, run->start);
		last = find_segment(record, next, earlier(end, run->end) - 1);
		shorten_run(ingress,
			    last - find_segment(record, next, start) + 1);
	}
	return 0;
}

#endif /* PILLION_LATE_H */
