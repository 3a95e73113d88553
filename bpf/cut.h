/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cuts a retransmission that TCP has merged of several segments, down to the
 * first of them, where the path may be too small for all (path.h).
 *
 * TCP takes the others for sent; it sends them again as what is lost once more.
 * So none is cut that may well come through.
 */
#ifndef PILLION_CUT_H
#define PILLION_CUT_H

#include "grow.h"
#include "path.h"

/* A retransmission, as the record shows it. */
static __always_inline bool is_to_be_cut(struct path_size *path,
					 const struct ingress *ingress,
					 const struct sent_again *again,
					 const struct segment *seg)
{
	if (!path->rounds || !after(seg->seq + seg->len, again->first_end) ||
	    again->first_end - seg->seq >= HISTORY_BYTES)
		return false;
	if (seg->len <= base_size(seg->ipv6) ||
	    seg->len <= came_through(path, ingress))
		return false;
	if (current_limit(path) == HISTORY_BYTES && again->repeated)
		limit_path_size(path, now_us());
	return seg->len > current_limit(path);
}

/* Its end is not the stream's any more. */
static __always_inline int clear_fin(struct __sk_buff *skb,
				     const struct segment *seg)
{
	__u8 flags;

	if (bpf_skb_load_bytes(skb, seg->tcp + TCP_FLAGS, &flags, 1))
		return -1;
	flags &= ~TCP_FIN;
	return bpf_skb_store_bytes(skb, seg->tcp + TCP_FLAGS, &flags, 1, 0);
}

/* So much payload is to remain. */
static __always_inline enum verdict cut(struct __sk_buff *skb,
					struct segment *seg, __u32 len)
{
	__s32 grown = len - seg->len;

	if (bpf_skb_change_tail(skb, skb->len + grown, 0))
		return NO_MEMORY;
	if (clear_fin(skb, seg) || set_ip_length(skb, seg, grown) ||
	    mend_checksum(skb, seg, grown))
		return DROPPED;
	return RETRANSMISSION_CUT;
}

#endif /* PILLION_CUT_H */
