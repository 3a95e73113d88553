/* SPDX-License-Identifier: GPL-2.0-only */
/* The record of what a connection sent last: segments' starts, and payload. */
#ifndef PILLION_HISTORY_H
#define PILLION_HISTORY_H

#include "segment.h"

/*
 * The verifier must see the bound on the very register that it checks, and a
 * length of zero is refused.
 */
#define BOUND(n) asm volatile("%0 &= %1" : "+r"(n) : "i"(HISTORY_BYTES - 1))

static __always_inline void forget(struct flow *flow)
{
	flow->segments = 0;
}

static __always_inline int load_part(struct __sk_buff *skb, __u32 offset,
				     struct flow *flow, __u64 at, __u64 len)
{
	BOUND(at);
	BOUND(len);
	if (!len)
		return -1;
	return bpf_skb_load_bytes(skb, offset, &flow->history[at], len);
}

static __always_inline int store_part(struct __sk_buff *skb, __u32 offset,
				      struct flow *flow, __u64 at, __u64 len)
{
	BOUND(at);
	BOUND(len);
	if (!len)
		return -1;
	return bpf_skb_store_bytes(skb, offset, &flow->history[at], len, 0);
}

/* How many of len bytes from seq on lie before the history's end. */
static __always_inline __u32 before_wrap(__u32 seq, __u32 len)
{
	__u32 room = HISTORY_BYTES - (seq & (HISTORY_BYTES - 1));

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
	__u32 first = before_wrap(seg->seq, seg->len);

	if (load_part(skb, seg->payload, flow, seg->seq, first))
		return -1;
	if (first < seg->len &&
	    load_part(skb, seg->payload + first, flow, 0, seg->len - first))
		return -1;
	flow->starts[slot] = seg->seq;
	flow->bundles[slot] = seg->seq;
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

/* Writes the len bytes from seq on into the packet. */
static __always_inline int recall(struct __sk_buff *skb, __u32 offset,
				  struct flow *flow, __u32 seq, __u32 len)
{
	__u32 first = before_wrap(seq, len);

	if (store_part(skb, offset, flow, seq, first))
		return -1;
	if (first < len &&
	    store_part(skb, offset + first, flow, 0, len - first))
		return -1;
	return 0;
}

#endif /* PILLION_HISTORY_H */
