/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The last payload of a connection, for use in bundles.
 *
 * Only plain segments that left by an attached device are stored, without gaps:
 * egress.stored_bytes before the record's end.
 */
#ifndef PILLION_HISTORY_H
#define PILLION_HISTORY_H

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
