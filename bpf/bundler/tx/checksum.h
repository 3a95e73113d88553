/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The TCP checksum of a changed segment.
 *
 * Usually TCP leaves it to the device or to the kernel's last step before it
 * (CHECKSUM_PARTIAL), and the packet has only the pseudo-header's sum. A device
 * stacked above this one may have completed it (CHECKSUM_NONE); then it is
 * recomputed over the whole segment.
 */
#ifndef PILLION_CHECKSUM_H
#define PILLION_CHECKSUM_H

#include "../segment.h"

#define SUM_CHUNK  64
#define SUM_CHUNKS ((HISTORY_BYTES + 60) / SUM_CHUNK + 1)

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __noinline int recompute_checksum(struct __sk_buff *skb,
					 struct segment *seg)
{
	__u32 chunk[SUM_CHUNK / 4] = {};
	__u32 left, at, i;
	__u64 rest;
	__s64 sum;
	__u16 check = 0;

	if (!seg)
		return -1;
	at = seg->tcp_off;
	left = skb->len - at;
	if (bpf_skb_store_bytes(skb, at + TCP_CHECK, &check, sizeof(check), 0))
		return -1;

	if (bpf_skb_load_bytes(skb, addresses(seg), chunk, 8) ||
	    (seg->ipv6 && bpf_skb_load_bytes(skb, addresses(seg), chunk, 32)))
		return -1;
	chunk[8] = bpf_htonl(left);
	chunk[9] = bpf_htonl(IPPROTO_TCP);
	sum = bpf_csum_diff(NULL, 0, chunk, 40, 0);

	for (i = 0; i < SUM_CHUNKS && left >= SUM_CHUNK; i++) {
		if (bpf_skb_load_bytes(skb, at, chunk, SUM_CHUNK))
			return -1;
		sum = bpf_csum_diff(NULL, 0, chunk, SUM_CHUNK, sum);
		at += SUM_CHUNK;
		left -= SUM_CHUNK;
	}
	__builtin_memset(chunk, 0, sizeof(chunk));
	rest = left - 1;
	if (left) {
		BOUND(rest, SUM_CHUNK);
		if (bpf_skb_load_bytes(skb, at, chunk, rest + 1))
			return -1;
		sum = bpf_csum_diff(NULL, 0, chunk, SUM_CHUNK, sum);
	}
	check = ~fold(sum);
	return bpf_skb_store_bytes(skb, seg->tcp_off + TCP_CHECK, &check,
				   sizeof(check), 0);
}

/*
 * Updates the checksum after sequence number, lengths and payload are written.
 *
 * No field shows a program which kind of checksum this is. But when the
 * pseudo-header's length grows, the kernel increases a partial sum and
 * decreases a complete checksum.
 */
static __always_inline int update_checksum(struct __sk_buff *skb,
					   struct segment *seg, __u16 added)
{
	__u32 at = seg->tcp_off + TCP_CHECK;
	__u16 current, len = skb->len - seg->tcp_off;

	if (bpf_l4_csum_replace(skb, at, bpf_htons(len - added), bpf_htons(len),
				BPF_F_PSEUDO_HDR | sizeof(len)) ||
	    bpf_skb_load_bytes(skb, at, &current, sizeof(current)))
		return -1;
	if (current == fold((__u64)seg->check + bpf_htons(added)))
		return 0;
	return recompute_checksum(skb, seg);
}

#endif /* PILLION_CHECKSUM_H */
