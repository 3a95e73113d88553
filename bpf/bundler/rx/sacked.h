/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The segments that were acknowledged selectively, and therefore not lost.
 *
 * A bundle that fills two gaps also duplicates the data between them, and often
 * data before them. Its ACK reports only one range of duplicates
 * (tcp_dsack_extend()), so the rest would look lost.
 *
 * The ingress side stores this separately, because it may not write the record.
 */
#ifndef PILLION_SACKED_H
#define PILLION_SACKED_H

#include "ack.h"
#include "../tx/record.h"

static __always_inline __u64 *sacked_word(struct sacked *sacked, __u32 at)
{
	return &sacked->bits[(at & (RECORD_SLOTS - 1)) / 64];
}

static __always_inline bool is_sacked(struct sacked *sacked, __u32 at)
{
	return *sacked_word(sacked, at) >> (at & 63) & 1;
}

/*
 * Clears the bits of segments before this slot, which are acknowledged. A
 * global function, so that the verifier checks the loop once.
 */
__noinline int forget_sacked(struct sacked *sacked, __u32 slot)
{
	__u32 at, i;

	if (!sacked)
		return 0;
	at = sacked->first_slot;
	for (i = 0; i < RECORD_SLOTS && before(at, slot); i++, at++)
		*sacked_word(sacked, at) &= ~(1ULL << (at & 63));
	sacked->first_slot = slot;
	return 0;
}

/*
 * Marks the segments within start and end. Returns how many were new, or partly
 * covered: several segments in one packet, or unrecorded data.
 */
__noinline int mark_sacked(struct sacked *sacked, struct record *record,
			   __u32 start, __u32 end)
{
	__u32 next, at, i, added = 0;
	__u64 bit, *word;

	if (!sacked || !record)
		return 0;
	next = LOAD_ACQUIRE(record->next);
	at = find_segment(record, next, start);
	if (before(first_byte(slot(record, at)), start)) {
		at++;
		added++;
	}
	if (before(at, sacked->first_slot))
		at = sacked->first_slot;
	for (i = 0; i < RECORD_SLOTS && before(at, next); i++, at++) {
		if (after(first_byte(slot(record, at + 1)), end))
			break;
		word = sacked_word(sacked, at);
		bit = 1ULL << (at & 63);
		added += !(*word & bit);
		*word |= bit;
	}
	if (before(first_byte(slot(record, at)), end))
		added++;
	return added;
}

/*
 * Marks the segments of all SACK blocks. The first block has the segment that
 * the ACK answers (RFC 2018, section 4). If that segment is acknowledged, the
 * block may be unchanged.
 */
static __always_inline void mark_blocks(struct sacked *sacked,
					struct record *record,
					const struct header_options *options,
					const struct ack *ack)
{
	__u32 at = ack->first_block, i, start, end, added;

	for (i = 0; i < SACK_BLOCKS && i < ack->blocks; i++, at += SACK_BLOCK) {
		start = option_word(options, at);
		end = option_word(options, at + 4);
		added = mark_sacked(sacked, record, start, end);
		if (i)
			continue;
		sacked->first_block_is_new = added &&
					     (start != sacked->block_start ||
					      end != sacked->block_end);
		sacked->block_start = start;
		sacked->block_end = end;
	}
}

#endif /* PILLION_SACKED_H */
