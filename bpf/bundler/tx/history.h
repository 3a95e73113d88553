/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The last payload of a connection, for use in bundles.
 *
 * Only plain segments that left by an attached device are stored, without gaps:
 * egress.stored_bytes before the record's end.
 */
#ifndef PILLION_HISTORY_H
#define PILLION_HISTORY_H

#include "record.h"
#include "../segment.h"

/* Maximum bytes of one copy; a power of two. */
#define COPY_CHUNK 1024
/* Maximum pieces of a segment, which may not be aligned. */
#define COPY_CHUNKS (HISTORY_BYTES / COPY_CHUNK + 1)

/* Copies a piece out of the packet; len is at least 1. */
static __always_inline int load_piece(struct __sk_buff *skb, __u32 offset,
				      struct flow *flow, __u64 at, __u64 len)
{
	BOUND(at, HISTORY_BYTES);
	len--;
	BOUND(len, COPY_CHUNK);
	return bpf_skb_load_bytes(skb, offset, &flow->history[at], len + 1);
}

static __always_inline int store_piece(struct __sk_buff *skb, __u32 offset,
				       struct flow *flow, __u64 at, __u64 len)
{
	BOUND(at, HISTORY_BYTES);
	len--;
	BOUND(len, COPY_CHUNK);
	return bpf_skb_store_bytes(skb, offset, &flow->history[at], len + 1, 0);
}

#define HISTORY_WORDS (HISTORY_BYTES / (__u32)sizeof(__u64))

/*
 * Overwrites words of the history with zeros. A global function, so that the
 * verifier checks the loop once.
 */
__noinline int erase_words(struct flow *flow, __u32 first, __u32 count)
{
	__u64 *words;

	if (!flow)
		return 0;
	words = (__u64 *)flow->history;
	for (__u32 i = 0; i < HISTORY_WORDS && i < count; i++)
		WRITE_ONCE(words[(first + i) & (HISTORY_WORDS - 1)], 0);
	return 0;
}

/*
 * Erases the stored payload of a connection that is no longer bundled. Freed
 * memory keeps its content. A global function, because it has several callers.
 */
__noinline int erase_history(struct flow *flow)
{
	if (!flow || !lock(&flow->egress.busy))
		return 0;
	erase_words(flow, 0, HISTORY_WORDS);
	flow->egress.stored_bytes = 0;
	unlock(&flow->egress.busy);
	return 0;
}

/*
 * The maximum number of stored segments that later packets can repeat; 0: no
 * limit. The adaptive level may rise, and a retransmission may repeat all
 * segments after it.
 */
static __always_inline __u32 repeatable_segments(const struct options *options)
{
	if (options->level != LEVEL_FIXED || options->retransmissions)
		return 0;
	return options->max_packets;
}

/*
 * Erases the stored bytes before the segments that later packets can repeat.
 * Up to 7 bytes more remain, as erasing is by words.
 */
static __always_inline void trim_history(struct flow *flow)
{
	__u32 packets = repeatable_segments(&flow->options), kept, first, last;
	struct egress *egress = &flow->egress;
	struct record *record = &egress->record;
	__u32 end = record_end(record);

	if (!packets || packets >= RECORD_SLOTS - 1)
		return;
	kept = end - slot(record, record->next - packets)->seq;
	if (kept >= egress->stored_bytes)
		return;
	first = (end - egress->stored_bytes) / sizeof(__u64);
	last = (end - kept) / sizeof(__u64);
	/* The first word also has the newest bytes. */
	if (egress->stored_bytes > HISTORY_BYTES - sizeof(__u64))
		first++;
	erase_words(flow, first, (last - first) & (2 * HISTORY_WORDS - 1));
	egress->stored_bytes = kept;
}

/* Returns how many of len bytes from seq lie in the same piece. */
static __always_inline __u32 piece(__u32 seq, __u32 len)
{
	__u32 room = COPY_CHUNK - (seq & (COPY_CHUNK - 1));

	return len < room ? len : room;
}

/* Stores len bytes of the packet from seq, fewer than HISTORY_BYTES. */
static __always_inline int copy_to_history(struct __sk_buff *skb, __u32 offset,
					   struct flow *flow, __u32 seq,
					   __u32 len)
{
	__u32 i, done = 0, part;

	for (i = 0; i < COPY_CHUNKS && done < len; i++) {
		part = piece(seq + done, len - done);
		if (load_piece(skb, offset + done, flow, seq + done, part))
			return -1;
		done += part;
	}
	return 0;
}

/* Writes the len bytes from seq on into the packet. */
static __always_inline int copy_from_history(struct __sk_buff *skb,
					     __u32 offset, struct flow *flow,
					     __u32 seq, __u32 len)
{
	__u32 i, done = 0, part;

	for (i = 0; i < COPY_CHUNKS && done < len; i++) {
		part = piece(seq + done, len - done);
		if (store_piece(skb, offset + done, flow, seq + done, part))
			return -1;
		done += part;
	}
	return 0;
}

#endif /* PILLION_HISTORY_H */
