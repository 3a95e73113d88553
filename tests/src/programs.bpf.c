/* SPDX-License-Identifier: GPL-2.0-only */
/* Programs of other parties, which the bundler must coexist with. */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETHERTYPE_IPV4 0x0800
#define IPV4	       14
#define TOTAL_LENGTH   (IPV4 + 2)
#define PROTOCOL       (IPV4 + 9)
#define IP_CHECKSUM    (IPV4 + 10)
#define TCP	       (IPV4 + 20)
#define IPPROTO_TCP    6
#define SEQUENCE       (TCP + 4)
#define DATA_OFFSET    (TCP + 12)
#define FIRST_ID       5

char LICENSE[] SEC("license") = "GPL";

/* Set before loading. */
const volatile __s32 level = 0;
const volatile __s32 option = 0;
const volatile __u32 bytes = 0;
const volatile __u32 port = 0; /* the peer's */
const volatile __u32 tags = 0;

/* Runs at a cgroup and handles a socket option itself. */
SEC("cgroup/setsockopt")
int answer(struct bpf_sockopt *ctx)
{
	if (ctx->level == level && ctx->optname == option)
		ctx->optlen = -1; /* done, without the kernel */
	return 1;
}

/*
 * Adds bytes that the receiver has already to a segment, like a bundler. The
 * whole stream consists of zeroes, and so does the added tail: no byte needs
 * to be moved.
 */
SEC("tc")
int grow(struct __sk_buff *skb)
{
	__u8 protocol, words;
	__be16 old_length, new_length;
	__be32 seq;

	if (skb->protocol != bpf_htons(ETHERTYPE_IPV4) ||
	    bpf_skb_load_bytes(skb, PROTOCOL, &protocol, 1) ||
	    protocol != IPPROTO_TCP ||
	    bpf_skb_load_bytes(skb, DATA_OFFSET, &words, 1) ||
	    bpf_skb_load_bytes(skb, SEQUENCE, &seq, sizeof(seq)) ||
	    bpf_skb_load_bytes(skb, TOTAL_LENGTH, &old_length,
			       sizeof(old_length)) ||
	    skb->len == TCP + (words >> 4) * 4)
		return TCX_NEXT;
	new_length = bpf_htons(bpf_ntohs(old_length) + bytes);
	seq = bpf_htonl(bpf_ntohl(seq) - bytes);
	/* The TCP checksum is left to the device; loopback verifies none. */
	if (bpf_skb_change_tail(skb, skb->len + bytes, 0) ||
	    bpf_skb_store_bytes(skb, SEQUENCE, &seq, sizeof(seq), 0) ||
	    bpf_skb_store_bytes(skb, TOTAL_LENGTH, &new_length,
				sizeof(new_length), 0) ||
	    bpf_l3_csum_replace(skb, IP_CHECKSUM, old_length, new_length,
				sizeof(new_length)))
		return TCX_DROP;
	return TCX_NEXT;
}

__u64 count = 0;

/* Runs at a cgroup and counts state callbacks. */
SEC("sockops")
int note_state(struct bpf_sock_ops *ops)
{
	if (ops->op == BPF_SOCK_OPS_STATE_CB &&
	    bpf_ntohl(ops->remote_port) == port)
		__sync_fetch_and_add(&count, 1);
	return 1;
}

/*
 * Emulate VLAN devices: outgoing packets get tags, incoming packets lose them.
 * The kernel stores the tag added last in the packet's metadata, and earlier
 * ones in its data. The innermost tag is 802.1Q (customer), the others are
 * 802.1ad (service).
 */
SEC("tc")
int add_tags(struct __sk_buff *skb)
{
	for (__u32 i = 0; i < tags && i < 3; i++)
		if (bpf_skb_vlan_push(skb, bpf_htons(i ? 0x88a8 : 0x8100),
				      FIRST_ID + i))
			return TCX_DROP;
	return TCX_NEXT;
}

SEC("tc")
int remove_tags(struct __sk_buff *skb)
{
	for (__u32 i = 0; i < tags && i < 3; i++)
		if (bpf_skb_vlan_pop(skb))
			return TCX_DROP;
	return TCX_NEXT;
}
