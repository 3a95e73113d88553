/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes a packet larger, for remembered payload to ride along.
 *
 * Until the packet has grown it is only read, and passes as it is if that
 * fails. What fails behind leaves it half rewritten, so that it is dropped.
 */
#ifndef PILLION_GROW_H
#define PILLION_GROW_H

#include "checksum.h"
#include "history.h"

/*
 * Payload that the segment may have in all. Where TCP's MSS is more than the
 * device takes, IP cuts a segment before it comes here, and nobody does after.
 */
static __always_inline __u32 payload_limit(struct __sk_buff *skb,
					   const struct flow *flow,
					   struct bpf_tcp_sock *tp,
					   const struct segment *seg)
{
	__u32 varying = flow->egress.announced.varying, mtu = 0;
	__u32 limit = tp->mss_cache, headers = seg->payload - seg->ip;
	__u32 max_bytes = flow->options.max_bytes;

	limit = limit > varying ? limit - varying : 0;
	if (bpf_check_mtu(skb, 0, &mtu, 0, 0) < 0 || mtu < headers)
		return 0;
	if (mtu - headers < limit)
		limit = mtu - headers;
	if (max_bytes && max_bytes < limit)
		limit = max_bytes;
	if (flow->egress.announced.room < limit)
		limit = flow->egress.announced.room;
	return limit < HISTORY_BYTES ? limit : HISTORY_BYTES - 1;
}

static __always_inline int set_ip_length(struct __sk_buff *skb,
					 const struct segment *seg, __u16 grown)
{
	__be16 was = bpf_htons(seg->ip_len);
	__be16 is = bpf_htons(seg->ip_len + grown);

	if (seg->ipv6)
		return bpf_skb_store_bytes(
			skb, seg->ip + offsetof(struct ipv6hdr, payload_len),
			&is, sizeof(is), 0);
	if (bpf_skb_store_bytes(skb, seg->ip + offsetof(struct iphdr, tot_len),
				&is, sizeof(is), 0))
		return -1;
	return bpf_l3_csum_replace(skb, seg->ip + offsetof(struct iphdr, check),
				   was, is, sizeof(is));
}

/*
 * Writes the remembered len bytes from seq on at offset into a packet that has
 * grown by so much, and mends its lengths and checksum.
 */
static __always_inline int fill(struct __sk_buff *skb, struct flow *flow,
				struct segment *seg, __u32 offset, __u32 seq,
				__u32 len, __u16 grown)
{
	return recall(skb, offset, flow, seq, len) ||
	       set_ip_length(skb, seg, grown) || mend_checksum(skb, seg, grown);
}

#endif /* PILLION_GROW_H */
