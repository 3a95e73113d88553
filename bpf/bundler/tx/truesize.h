/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How large a packet may grow without misleading a receiver in this kernel.
 *
 * A packet enlarged by a program keeps its accounted memory (skb->truesize) as
 * long as it belongs to a socket. A receiver on another machine is not
 * affected. A receiver in this kernel (in a container, via a bridge) divides
 * payload by that memory, and stores the quotient in eight bits
 * (tcp_measure_rcv_mss(), since Linux 6.6). If the payload reaches that memory,
 * its window collapses, or a later division by zero panics the kernel. The
 * payload therefore stays below it for every device, because the destination is
 * unknown.
 */
#ifndef PILLION_TRUESIZE_H
#define PILLION_TRUESIZE_H

#include "../segment.h"

/* This kernel limits the scaling ratio of receivers; set before loading. */
const volatile bool receivers_are_safe = false;

#define CACHE_LINE 64
#define ALIGNED(size)                                                          \
	(((__u32)(size) + CACHE_LINE - 1) & ~(__u32)(CACHE_LINE - 1))

/*
 * Memory of a segment without its payload. The application's own pages count as
 * whole pages. But TCP may copy a packet that a device still queues, and the
 * copy is as small as any other (pskb_copy(), SKB_TRUESIZE()).
 */
static __always_inline __u32 overhead_of(const struct sk_buff *skb)
{
	__u32 all = skb->truesize - skb->len;
	__u32 empty = skb->end + ALIGNED(bpf_core_type_size(struct sk_buff)) +
		      ALIGNED(bpf_core_type_size(struct skb_shared_info));

	return all < empty ? all : empty;
}

/*
 * Maximum payload of the new segment with its bundle. TCP is sending it, so it
 * is the first one in the write queue.
 */
static __always_inline __u32 room_in_memory(struct tcp_sock *tp,
					    struct egress *egress,
					    const struct segment *seg)
{
	struct sk_buff *skb = ((struct sock *)tp)->sk_write_queue.next;
	__u32 overhead;

	if (receivers_are_safe)
		return HISTORY_BYTES;
	if (skb->len != seg->len || skb->truesize <= seg->len)
		return 0;
	overhead = overhead_of(skb);
	if (!egress->overhead || overhead < egress->overhead)
		egress->overhead = overhead;
	return seg->len + overhead - 1;
}

/*
 * Maximum payload of a retransmitted segment with its bundle: its memory
 * without payload is at least that of the others.
 */
static __always_inline __u32 room_to_retransmit(const struct egress *egress,
						const struct segment *seg)
{
	if (receivers_are_safe)
		return HISTORY_BYTES;
	return egress->overhead ? seg->len + egress->overhead - 1 : seg->len;
}

#endif /* PILLION_TRUESIZE_H */
