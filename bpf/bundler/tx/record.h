/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The record of TCP's last segments: start, bundled bytes in the packet, and
 * whether TCP has retransmitted them.
 *
 * It has no payload (history.h), and drops nothing unacknowledged: a segment
 * without a free slot is not bundled. A segment is recorded before its packet
 * leaves, and so before its ACK.
 */
#ifndef PILLION_RECORD_H
#define PILLION_RECORD_H

#include "../lock.h"
#include "../segment.h"

/* Bits of sent_segment.flags: a length and flags. */
#define REDUNDANT_LEN_MASK 0x07ff /* number of redundant bytes before it */
#define RETRANSMITTED	   0x0800 /* by TCP, at least a part of it */
/* Also sent in another packet: in a bundle, appended, or copied. */
#define SENT_IN_OTHER_PACKET 0x1000
#define SMALL		     0x2000 /* a plain segment that a bundle could repair */
#define RETRANSMISSION_END   0x4000 /* a retransmitted packet ended with it */
#define COPIED		     0x8000 /* its packet was sent more than once */

_Static_assert(REDUNDANT_LEN_MASK >= HISTORY_BYTES - 1,
	       "fits the number of redundant bytes");

#define SENT_UNIT_BITS 4 /* sent_segment.sent: 16 us, for 1.05 s */

static __always_inline struct sent_segment *slot(struct record *record,
						 __u32 at)
{
	return &record->segments[at & (RECORD_SLOTS - 1)];
}

/* The oldest slot; readers may not use its content (oldest_valid_seq()). */
static __always_inline __u32 oldest_slot(__u32 next)
{
	return next - (RECORD_SLOTS - 1);
}

static __always_inline __u32 first_byte(const struct sent_segment *segment)
{
	return READ_ONCE(segment->seq);
}

/*
 * The first byte valid for a reader, who may see the record before two more
 * slots were added: a gap, and the segment after it.
 */
static __always_inline __u32 oldest_valid_seq(struct record *record, __u32 next)
{
	return first_byte(slot(record, oldest_slot(next) + 2));
}

/* Number of redundant bytes before the segment in its packet. */
static __always_inline __u32 redundant_len(__u16 flags)
{
	return flags & REDUNDANT_LEN_MASK;
}

/* Where the segment's packet starts. */
static __always_inline __u32 packet_start(__u32 seq, __u16 flags)
{
	return seq - redundant_len(flags);
}

/*
 * The slot of the last segment that starts at or before seq: next for numbers
 * after the record, the oldest for numbers before it. A global function, so
 * that the verifier checks the loop once.
 */
__noinline __u32 find_segment(struct record *record, __u32 next, __u32 seq)
{
	__u32 at = oldest_slot(next), step;

	if (!record)
		return 0;
	for (step = RECORD_SLOTS / 2; step; step /= 2)
		if (!after(first_byte(slot(record, at + step)), seq))
			at += step;
	return at;
}

/*
 * Resets the record to start at seq: everything before is acknowledged. Slot
 * numbers continue, because others refer to them. A global function, so that
 * the verifier checks the loop once.
 */
__noinline int reset_record(struct record *record, __u32 seq)
{
	if (!record)
		return 0;
	for (int i = 0; i < RECORD_SLOTS; i++) {
		record->segments[i].seq = seq;
		record->segments[i].flags = 0;
	}
	return 0;
}

static __always_inline __u32 record_end(struct record *record)
{
	return slot(record, record->next)->seq;
}

/* Appends a segment up to `end`. */
static __always_inline void add_segment(struct record *record, __u32 end,
					__u16 flags, __u64 now_us)
{
	struct sent_segment *segment = slot(record, record->next);

	segment->flags = flags;
	segment->sent = now_us >> SENT_UNIT_BITS;
	WRITE_ONCE(slot(record, record->next + 1)->seq, end);
	STORE_RELEASE(record->next, record->next + 1);
}

/* Acknowledged segments that late reports may name, in addition to bundled. */
#define LATE_REPORT_SLOTS 16
/* Limit that leaves slots for unacknowledged segments. */
#define MAX_REPORTED (RECORD_SLOTS - 5)

/*
 * Returns true if `more` segments would overwrite one that is unacknowledged or
 * that a report may still name. A bundle's report names segments that were just
 * acknowledged, at most `max_bundled`. An overtaken packet's report comes
 * later, hence LATE_REPORT_SLOTS more.
 */
static __always_inline bool is_full(struct record *record, __u32 more,
				    __u32 snd_una, __u32 max_bundled)
{
	__u32 reported = max_bundled + LATE_REPORT_SLOTS;

	if (reported > MAX_REPORTED)
		reported = MAX_REPORTED;
	return after(
		slot(record, oldest_slot(record->next + more) + 2 + reported)
			->seq,
		snd_una);
}

/* Stores the maximum number of previous segments in one packet. */
static __always_inline void note_bundle_length(struct egress *egress,
					       __u32 segments)
{
	if (segments > egress->max_bundled)
		egress->max_bundled = segments;
}

/* Sets flags of a segment. Concurrent readers may see either state. */
static __always_inline void set_flags(struct sent_segment *segment, __u16 flags)
{
	WRITE_ONCE(segment->flags, segment->flags | flags);
}

/* Sets the number of redundant bytes, at most REDUNDANT_LEN_MASK, once. */
static __always_inline void set_redundant_len(struct sent_segment *segment,
					      __u32 len)
{
	set_flags(segment, len);
}

/* A segment, and the packet in which it was sent first. */
struct packet {
	__u32 slot;
	__u32 seq;
	__u32 end;
	__u32 start; /* start of the packet's payload, its bundle included */
	__u16 flags;
	__u16 sent;
};

/* Finds the packet whose own segment has the byte before end. */
static __always_inline void find_packet(struct record *record, __u32 next,
					__u32 end, struct packet *packet)
{
	struct sent_segment *segment;

	packet->slot = find_segment(record, next, end - 1);
	segment = slot(record, packet->slot);
	packet->seq = first_byte(segment);
	packet->end = first_byte(slot(record, packet->slot + 1));
	packet->flags = READ_ONCE(segment->flags);
	packet->start = packet_start(packet->seq, packet->flags);
	packet->sent = READ_ONCE(segment->sent);
}

/*
 * The highest acknowledgement before this one. It may be ahead of TCP's,
 * because ACKs wait while the application holds the socket.
 */
static __always_inline __u32 highest_ack(struct flow *flow, __u32 una,
					 __u32 end)
{
	__u32 acked = READ_ONCE(flow->ingress.acked);

	return acked - una <= end - una ? acked : una;
}

#endif /* PILLION_RECORD_H */
