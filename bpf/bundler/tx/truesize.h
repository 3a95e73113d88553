/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How large may a packet grow without misleading a receiver in this kernel?
 *
 * A packet that a program enlarges keeps the memory that it is said to take
 * (skb->truesize) as long as it belongs to a socket. A receiver on another
 * machine never learns of it. One in this kernel (in a container, behind a
 * bridge) divides the payload by that memory, and keeps the result in eight
 * bits (tcp_measure_rcv_mss(), since Linux 6.6): where the payload is as large
 * as the memory, its window collapses, or it divides by zero later and the
 * kernel panics. So the payload stays below, whatever the device: nothing tells
 * where a packet will end.
 */
#ifndef PILLION_TRUESIZE_H
#define PILLION_TRUESIZE_H

#include "../segment.h"

/*
 * This kernel keeps receivers' windows sane; set before the programs are
 * loaded.
 */
const volatile bool receivers_are_safe = false;

#define CACHE_LINE 64
#define ALIGNED(size)                                                          \
	(((__u32)(size) + CACHE_LINE - 1) & ~(__u32)(CACHE_LINE - 1))

/*
 * Memory that a segment takes beside its payload. The application's own pages
 * count as whole ones; but of a packet that is on its way still, a copy leaves,
 * which takes no more than any other (pskb_copy(), SKB_TRUESIZE()).
 */
static __always_inline __u32 overhead_of(const struct sk_buff *skb)
{
	__u32 all = skb->truesize - skb->len;
	__u32 empty = skb->end + ALIGNED(bpf_core_type_size(struct sk_buff)) +
		      ALIGNED(bpf_core_type_size(struct skb_shared_info));

	return all < empty ? all : empty;
}

/*
 * Payload that the new segment may have with its bundle. It is what TCP is
 * sending, and so the first in its queue of what is to be sent.
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
 * Payload that a segment which TCP retransmits may have with its bundle: it
 * takes as much memory beside its payload as others did, or more.
 */
static __always_inline __u32 room_to_retransmit(const struct egress *egress,
						const struct segment *seg)
{
	if (receivers_are_safe)
		return HISTORY_BYTES;
	return egress->overhead ? seg->len + egress->overhead - 1 : seg->len;
}

#endif /* PILLION_TRUESIZE_H */
