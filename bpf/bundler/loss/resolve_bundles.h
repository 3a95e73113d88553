/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What became of the segments that an ACK acknowledges: each one is looked at
 * once, when its last byte is.
 */
#ifndef PILLION_RESOLVE_BUNDLES_H
#define PILLION_RESOLVE_BUNDLES_H

#include "../tx/density.h"
#include "../tx/level.h"
#include "../tx/record.h"
#include "../rx/sacked.h"

struct settled {
	__u32 from; /* the first slot */
	__u32 to; /* behind the last */
	__u32 ends_with; /* 1: the ACK does, with the last */
	__u32 lost_start; /* bytes that were lost, and repaired by a bundle */
	__u32 lost_end;
	bool in_doubt; /* whether they were */
	__u32 mss;
};

static __always_inline bool begins_in(__u32 seq, __u32 start, __u32 end)
{
	return !before(seq, start) && before(seq, end);
}

/* A packet has arrived; the device cuts one that is larger than the MSS. */
static __always_inline void note_arrival(struct ingress *ingress, __u32 start,
					 __u32 end, __u32 mss, __u16 how)
{
	__u32 size = end - start < mss ? end - start : mss;

	if (ingress->largest < size)
		WRITE_ONCE(ingress->largest, size);
	if (!(how & REDUNDANT))
		return;
	if (ingress->through < size)
		WRITE_ONCE(ingress->through, size);
	if (!after(end, ingress->bundle_end))
		return;
	WRITE_ONCE(ingress->bundle_size, size);
	WRITE_ONCE(ingress->bundle_end, end);
}

/* Is the segment in this slot deemed lost, or not? */
static __always_inline void set_pending(struct pending *pending, __u32 at,
					bool lost)
{
	__u64 *word = &pending->bits[(at & (RECORD - 1)) / 64];

	*word &= ~(1ULL << (at & 63));
	*word |= (__u64)lost << (at & 63);
}

/*
 * Settles the segments that an ACK acknowledges. A global function, as the
 * verifier is to look at the loop once.
 */
__noinline int settle(struct record *record, struct ingress *ingress,
		      const struct settled *settled)
{
	__u32 at, i, seq, end;
	bool lost, hidden;
	__u16 how;

	if (!record || !ingress || !settled)
		return 0;
	at = settled->from;
	end = first_byte(slot(record, at));
	for (i = 0; i < RECORD && at != settled->to; i++, at++) {
		seq = end;
		end = first_byte(slot(record, at + 1));
		how = READ_ONCE(slot(record, at)->how);
		hidden = !(how & RETRANSMITTED) &&
			 begins_in(seq, settled->lost_start,
				   settled->lost_end) &&
			 !is_sacked(&ingress->sacked, at);
		set_pending(&ingress->pending, at, hidden);
		lost = how & RETRANSMITTED || (hidden && !settled->in_doubt);
		if (!lost)
			note_arrival(ingress, packet_start(seq, how), end,
				     settled->mss, how);
		if (lost && how & SMALL)
			lengthen_run(ingress, seq, end);
		else
			end_run(ingress);
		if (how & SMALL)
			fade(ingress);
	}
	return 0;
}

/*
 * Counts the ends of those that are settled, after settle(). A global function
 * and no branch in the loop, as the verifier would follow both sides.
 */
__noinline int count_ends(struct record *record, struct ingress *ingress,
			  const struct settled *settled)
{
	__u32 at, i, how, known, last;
	__u64 lost;

	if (!record || !ingress || !settled)
		return 0;
	at = settled->from;
	for (i = 0; i < RECORD && at != settled->to; i++, at++) {
		how = READ_ONCE(slot(record, at)->how);
		lost = ingress->pending.bits[(at & (RECORD - 1)) / 64];
		lost |= *sacked_word(&ingress->sacked, at);
		known = how / RETRANSMITTED | lost >> (at & 63);
		/* No more than the slots of the record lie between the two. */
		last = (settled->to - at - 2) >> 31;
		count_end(ingress, how / SMALL & ~known & 1,
			  settled->ends_with & last);
	}
	return 0;
}

/*
 * Of the bytes lost, those of segments that had not come behind a gap, and that
 * TCP has not retransmitted: of the others it knows, and has done what it does
 * about a loss, if it does not take that back.
 */
__noinline int count_lost(struct record *record, struct ingress *ingress,
			  const struct settled *settled, struct hidden *hidden)
{
	__u32 at, i, seq, end;

	if (!record || !ingress || !settled || !hidden)
		return 0;
	at = settled->from;
	end = first_byte(slot(record, at));
	for (i = 0; i < RECORD && at != settled->to; i++, at++) {
		seq = end;
		end = first_byte(slot(record, at + 1));
		if (!begins_in(seq, settled->lost_start, settled->lost_end) ||
		    is_sacked(&ingress->sacked, at))
			continue;
		if (READ_ONCE(slot(record, at)->how) & RETRANSMITTED) {
			hidden->retransmitted = true;
			continue;
		}
		hidden->segments++;
		hidden->bytes += end - seq;
	}
	return 0;
}

#endif /* PILLION_RESOLVE_BUNDLES_H */
