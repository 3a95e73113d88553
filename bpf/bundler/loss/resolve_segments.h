/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Resolves the segments that an ACK acknowledges, each one once, with its last
 * byte.
 */
#ifndef PILLION_RESOLVE_SEGMENTS_H
#define PILLION_RESOLVE_SEGMENTS_H

#include "../tx/ack_thinning.h"
#include "../tx/level.h"
#include "../tx/record.h"
#include "../rx/sacked.h"

struct ack_range {
	__u32 first_slot; /* the slot of the first one */
	__u32 end_slot; /* the slot after the last one */
	__u32 is_last_complete; /* 1: the ACK ends with the last segment */
	__u32 is_end_acked; /* 1: and its end counts as acknowledged */
	__u32 lost_start; /* lost bytes that a bundle repaired */
	__u32 lost_end;
	bool is_suspected; /* lost only if the receiver reports duplicates */
	__u32 mss;
	__u32 copied; /* result: copied segments of which a packet arrived */
};

static __always_inline bool is_in_range(__u32 seq, __u32 start, __u32 end)
{
	return !before(seq, start) && before(seq, end);
}

/* Records the size of an arrived packet; a device splits one above the MSS. */
static __always_inline void note_arrival(struct ingress *ingress, __u32 start,
					 __u32 end, __u32 mss, __u16 flags)
{
	__u32 size = end - start < mss ? end - start : mss;

	if (ingress->largest < size)
		WRITE_ONCE(ingress->largest, size);
	if (!redundant_len(flags))
		return;
	if (ingress->largest_bundle < size)
		WRITE_ONCE(ingress->largest_bundle, size);
	if (!after(end, ingress->bundle_end))
		return;
	WRITE_ONCE(ingress->bundle_size, size);
	order_accesses();
	WRITE_ONCE(ingress->bundle_end, end);
}

/* Sets whether the segment in this slot counts as lost. */
static __always_inline void set_pending(struct pending_losses *pending,
					__u32 at, bool lost)
{
	__u64 *word = &pending->bits[(at & (RECORD_SLOTS - 1)) / 64];

	*word &= ~(1ULL << (at & 63));
	*word |= (__u64)lost << (at & 63);
}

/*
 * Resolves the segments that an ACK acknowledges. A global function, so that
 * the verifier checks the loop once.
 */
__noinline int resolve_segments(struct record *record, struct ingress *ingress,
				struct ack_range *range)
{
	__u32 at, i, seq, end;
	bool lost, hidden;
	__u16 flags;

	if (!record || !ingress || !range)
		return 0;
	at = range->first_slot;
	end = first_byte(slot(record, at));
	for (i = 0; i < RECORD_SLOTS && at != range->end_slot; i++, at++) {
		seq = end;
		end = first_byte(slot(record, at + 1));
		flags = READ_ONCE(slot(record, at)->flags);
		hidden = !(flags & RETRANSMITTED) &&
			 is_in_range(seq, range->lost_start, range->lost_end) &&
			 !is_sacked(&ingress->sacked, at);
		set_pending(&ingress->pending, at, hidden);
		lost = flags & RETRANSMITTED ||
		       (hidden && !range->is_suspected);
		if (!lost)
			note_arrival(ingress, packet_start(seq, flags), end,
				     range->mss, flags);
		/* No branch, because the verifier would follow both sides. */
		range->copied += !lost & flags / COPIED;
		if (lost && flags & SMALL)
			lengthen_run(ingress, seq, end);
		else
			end_run(ingress);
		if (flags & SMALL)
			fade(ingress);
	}
	return 0;
}

/*
 * Counts the ends of resolved segments; called after resolve_segments(). A
 * global function without a branch in the loop, because the verifier would
 * follow both sides.
 */
__noinline int count_ends(struct record *record, struct ingress *ingress,
			  const struct ack_range *range)
{
	__u32 at, i, flags, lost_or_sacked, last;
	__u64 lost;

	if (!record || !ingress || !range)
		return 0;
	at = range->first_slot;
	for (i = 0; i < RECORD_SLOTS && at != range->end_slot; i++, at++) {
		flags = READ_ONCE(slot(record, at)->flags);
		lost = ingress->pending.bits[(at & (RECORD_SLOTS - 1)) / 64];
		lost |= *sacked_word(&ingress->sacked, at);
		/* Bit 0: retransmitted, lost, or arrived after a gap. */
		lost_or_sacked = flags / RETRANSMITTED | lost >> (at & 63);
		/* 1 for the last slot: only then end_slot - at - 2 is < 0. */
		last = (range->end_slot - at - 2) >> 31;
		count_end(ingress, flags / SMALL & ~lost_or_sacked & 1,
			  range->is_end_acked & last);
	}
	return 0;
}

/*
 * Counts the lost segments that neither arrived after a gap nor were
 * retransmitted by TCP. TCP detected the others, and reacts to them, unless it
 * undoes that.
 */
__noinline int count_lost(struct record *record, struct ingress *ingress,
			  const struct ack_range *range,
			  struct hidden_losses *hidden)
{
	__u32 at, i, seq, end;

	if (!record || !ingress || !range || !hidden)
		return 0;
	at = range->first_slot;
	end = first_byte(slot(record, at));
	for (i = 0; i < RECORD_SLOTS && at != range->end_slot; i++, at++) {
		seq = end;
		end = first_byte(slot(record, at + 1));
		if (!is_in_range(seq, range->lost_start, range->lost_end) ||
		    is_sacked(&ingress->sacked, at))
			continue;
		if (READ_ONCE(slot(record, at)->flags) & RETRANSMITTED) {
			hidden->retransmitted = true;
			continue;
		}
		hidden->segments++;
		hidden->bytes += end - seq;
	}
	return 0;
}

#endif /* PILLION_RESOLVE_SEGMENTS_H */
