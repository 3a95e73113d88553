/* SPDX-License-Identifier: GPL-2.0-only */
/* The record of what a connection sent last: segments' starts, and payload. */
#ifndef PILLION_HISTORY_H
#define PILLION_HISTORY_H

#include "round_trip.h"
#include "segment.h"

/* Payload is copied in pieces of at most so many bytes; a power of two. */
#define PIECE 1024
/* A segment lies in so many, for its ends need not be theirs. */
#define PIECES (HISTORY_BYTES / PIECE + 1)

/* The verifier must see the bound on the very register that it checks. */
#define BOUND(n, limit) asm volatile("%0 &= %1" : "+r"(n) : "i"((limit)-1))

static __always_inline void forget(struct flow *flow)
{
	flow->segments = 0;
}

/* A length of zero would be refused, and does not occur. */
static __always_inline int load_piece(struct __sk_buff *skb, __u32 offset,
				      struct flow *flow, __u64 at, __u64 len)
{
	BOUND(at, HISTORY_BYTES);
	len--;
	BOUND(len, PIECE);
	return bpf_skb_load_bytes(skb, offset, &flow->history[at], len + 1);
}

static __always_inline int store_piece(struct __sk_buff *skb, __u32 offset,
				       struct flow *flow, __u64 at, __u64 len)
{
	BOUND(at, HISTORY_BYTES);
	len--;
	BOUND(len, PIECE);
	return bpf_skb_store_bytes(skb, offset, &flow->history[at], len + 1, 0);
}

/* How many of len bytes from seq on lie in the same piece. */
static __always_inline __u32 piece(__u32 seq, __u32 len)
{
	__u32 room = PIECE - (seq & (PIECE - 1));

	return len < room ? len : room;
}

/*
 * Remembers a segment that follows the last one; at most HISTORY_BYTES - 1. Its
 * packet begins at seg->seq until note_bundle() says otherwise.
 */
static __always_inline int remember(struct __sk_buff *skb, struct flow *flow,
				    const struct segment *seg)
{
	__u32 slot = flow->next & (HISTORY_SEGMENTS - 1);
	__u32 i, done = 0, len;

	for (i = 0; i < PIECES && done < seg->len; i++) {
		len = piece(seg->seq + done, seg->len - done);
		if (load_piece(skb, seg->payload + done, flow, seg->seq + done,
			       len))
			return -1;
		done += len;
	}
	flow->starts[slot] = seg->seq;
	flow->bundles[slot] = seg->seq;
	flow->sent_us[slot] = now_us();
	flow->next++;
	if (flow->segments < HISTORY_SEGMENTS)
		flow->segments++;
	return 0;
}

/* The segment remembered last has left in a packet that begins at start. */
static __always_inline void note_bundle(struct flow *flow, __u32 start)
{
	flow->bundles[(flow->next - 1) & (HISTORY_SEGMENTS - 1)] = start;
}

/*
 * TCP sends again what lies between. Behind all that it has sent again, the
 * record starts anew.
 */
static __always_inline void note_again(struct flow *flow, __u32 start,
				       __u32 end)
{
	if (!before(start, flow->again_end) || before(start, flow->again_start))
		flow->again_start = start;
	if (after(end, flow->again_end))
		flow->again_end = end;
}

static __always_inline bool was_sent_again(struct flow *flow, __u32 start,
					   __u32 end)
{
	return before(start, flow->again_end) && after(end, flow->again_start);
}

/* Is all of it what rode along with a retransmission? */
static __always_inline bool rode_along(const struct flow *flow, __u32 start,
				       __u32 end)
{
	return !before(start, flow->along_start) &&
	       !after(end, flow->along_end);
}

/* Writes the len bytes from seq on into the packet. */
static __always_inline int recall(struct __sk_buff *skb, __u32 offset,
				  struct flow *flow, __u32 seq, __u32 len)
{
	__u32 i, done = 0, part;

	for (i = 0; i < PIECES && done < len; i++) {
		part = piece(seq + done, len - done);
		if (store_piece(skb, offset + done, flow, seq + done, part))
			return -1;
		done += part;
	}
	return 0;
}

#endif /* PILLION_HISTORY_H */
