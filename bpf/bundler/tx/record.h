/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The record of what TCP sent last: where each segment began, what rode along
 * in its packet, and whether TCP has retransmitted it since.
 *
 * It knows nothing of the payload (history.h), and forgets nothing that is not
 * acknowledged: what cannot be recorded is not bundled. A segment enters it
 * before its packet leaves, and so before an ACK can tell of it.
 */
#ifndef PILLION_RECORD_H
#define PILLION_RECORD_H

#include "../lock.h"
#include "../segment.h"

/* Bits of sent_segment.how. */
#define REDUNDANT     0x07ff /* bytes of other segments before it: a bundle */
#define RETRANSMITTED 0x0800 /* by TCP, all of it or a part */
#define RODE_ALONG    0x1000 /* in the packet of a later one */
#define SMALL	      0x2000 /* a plain one that bundles could repair */
#define ENDED_OLD     0x4000 /* a packet with old data ended where it does */

_Static_assert(REDUNDANT >= HISTORY_BYTES - 1, "room for all that rides along");

#define SENT_UNIT_BITS 4 /* sent_segment.sent: 16 us, for 1.05 s */

static __always_inline struct sent_segment *slot(struct record *record,
						 __u32 at)
{
	return &record->segments[at & (RECORD - 1)];
}

/* The oldest slot; what stands there a reader may not look at (first_known()).
 */
static __always_inline __u32 oldest(__u32 next)
{
	return next - (RECORD - 1);
}

static __always_inline __u32 first_byte(const struct sent_segment *segment)
{
	return READ_ONCE(segment->seq);
}

/*
 * The first byte of which a reader knows, who may see the record as it was
 * before two slots more were added: a gap, and what is sent behind it.
 */
static __always_inline __u32 first_known(struct record *record, __u32 next)
{
	return first_byte(slot(record, oldest(next) + 2));
}

/* Where the segment's packet began. */
static __always_inline __u32 packet_start(__u32 seq, __u16 how)
{
	return seq - (how & REDUNDANT);
}

/*
 * The slot of the last segment that begins at seq or before: next for what lies
 * behind all, and the oldest for what lies before. A global function, as the
 * verifier is to look at the loop once.
 */
__noinline __u32 find_segment(struct record *record, __u32 next, __u32 seq)
{
	__u32 at = oldest(next), step;

	if (!record)
		return 0;
	for (step = RECORD / 2; step; step /= 2)
		if (!after(first_byte(slot(record, at + step)), seq))
			at += step;
	return at;
}

/*
 * Begins the record at seq: all before is acknowledged, and nothing else was
 * sent. Its slots are counted on, for others keep their numbers. A global
 * function, as the verifier is to look at the loop once.
 */
__noinline int begin_record(struct record *record, __u32 seq)
{
	if (!record)
		return 0;
	for (int i = 0; i < RECORD; i++) {
		record->segments[i].seq = seq;
		record->segments[i].how = 0;
	}
	return 0;
}

static __always_inline __u32 record_end(struct record *record)
{
	return slot(record, record->next)->seq;
}

/* The segment that the record ends with begins at its end so far. */
static __always_inline void add_segment(struct record *record, __u32 end,
					__u16 how, __u64 now_us)
{
	struct sent_segment *segment = slot(record, record->next);

	segment->how = how;
	segment->sent = now_us >> SENT_UNIT_BITS;
	WRITE_ONCE(slot(record, record->next + 1)->seq, end);
	PUBLISH(record->next, record->next + 1);
}

/* Acknowledged segments of which reports may come, beside what rode along. */
#define REPORTED_LATE 16
/* As many before the first unacknowledged one leave no place for others. */
#define ALL_ACKNOWLEDGED (RECORD - 5)

/*
 * Returns true if `more` segments would overwrite one that is unacknowledged or
 * that a report may still name. A bundle's report names segments that were just
 * acknowledged, at most `longest`. An overtaken packet's report comes later,
 * hence REPORTED_LATE more.
 */
static __always_inline bool is_full(struct record *record, __u32 more,
				    __u32 snd_una, __u32 longest)
{
	__u32 reported = longest + REPORTED_LATE;

	if (reported > ALL_ACKNOWLEDGED)
		reported = ALL_ACKNOWLEDGED;
	return after(
		slot(record, oldest(record->next + more) + 2 + reported)->seq,
		snd_una);
}

/* Stores the maximum number of segments that rode along with one packet. */
static __always_inline void note_length(struct egress *egress, __u32 segments)
{
	if (segments > egress->longest)
		egress->longest = segments;
}

/* Marks a segment. Those who read it may see it with the flag or without. */
static __always_inline void mark(struct sent_segment *segment, __u16 flags)
{
	WRITE_ONCE(segment->how, segment->how | flags);
}

/* A segment, and the packet that it left in. */
struct packet {
	__u32 slot;
	__u32 seq;
	__u32 end;
	__u32 start; /* of all its payload */
	__u16 how;
	__u16 sent;
};

/* The packet that left with the byte before end as its own. */
static __always_inline void find_packet(struct record *record, __u32 next,
					__u32 end, struct packet *packet)
{
	struct sent_segment *segment;

	packet->slot = find_segment(record, next, end - 1);
	segment = slot(record, packet->slot);
	packet->seq = first_byte(segment);
	packet->end = first_byte(slot(record, packet->slot + 1));
	packet->how = READ_ONCE(segment->how);
	packet->start = packet_start(packet->seq, packet->how);
	packet->sent = READ_ONCE(segment->sent);
}

/*
 * How far had the stream been acknowledged before? Further than TCP knows,
 * maybe: while the application holds the socket, ACKs wait for it.
 */
static __always_inline __u32 acked_so_far(struct flow *flow, __u32 una,
					  __u32 end)
{
	__u32 acked = READ_ONCE(flow->ingress.acked);

	return acked - una <= end - una ? acked : una;
}

#endif /* PILLION_RECORD_H */
