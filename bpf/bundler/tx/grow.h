/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Enlarges a packet for stored payload.
 *
 * The packet is only read until it has grown, and passes unchanged if that
 * fails. A later failure leaves it half rewritten, so it is dropped.
 */
#ifndef PILLION_GROW_H
#define PILLION_GROW_H

#include "checksum.h"
#include "history.h"

/*
 * Maximum payload of the segment. If TCP's MSS exceeds the device's MTU, IP
 * fragments before this hook, and nothing fragments after it.
 */
static __always_inline __u32 payload_limit(struct __sk_buff *skb,
					   const struct flow *flow,
					   struct bpf_tcp_sock *btp,
					   const struct segment *seg)
{
	__u32 varying = flow->egress.announced.varying, mtu = 0;
	__u32 limit = btp->mss_cache, headers = seg->payload_off - seg->ip_off;
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
					 const struct segment *seg, __u16 added)
{
	__be16 old_len = bpf_htons(seg->ip_field_len);
	__be16 new_len = bpf_htons(seg->ip_field_len + added);

	if (seg->ipv6)
		return bpf_skb_store_bytes(
			skb,
			seg->ip_off + offsetof(struct ipv6hdr, payload_len),
			&new_len, sizeof(new_len), 0);
	if (bpf_skb_store_bytes(skb,
				seg->ip_off + offsetof(struct iphdr, tot_len),
				&new_len, sizeof(new_len), 0))
		return -1;
	return bpf_l3_csum_replace(skb,
				   seg->ip_off + offsetof(struct iphdr, check),
				   old_len, new_len, sizeof(new_len));
}

/*
 * Writes len stored bytes from seq at offset into a packet that has grown, and
 * updates its lengths and checksum.
 */
static __always_inline int write_payload(struct __sk_buff *skb,
					 struct flow *flow, struct segment *seg,
					 __u32 offset, __u32 seq, __u32 len,
					 __u16 added)
{
	return copy_from_history(skb, offset, flow, seq, len) ||
	       set_ip_length(skb, seg, added) ||
	       update_checksum(skb, seg, added);
}

#endif /* PILLION_GROW_H */
