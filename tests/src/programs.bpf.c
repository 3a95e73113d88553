/* SPDX-License-Identifier: GPL-2.0-only */
/* Other people's programs, among which the bundler has to work. */
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

/* Stands at a cgroup, and answers a socket option itself. */
SEC("cgroup/setsockopt")
int answer(struct bpf_sockopt *ctx)
{
	if (ctx->level == level && ctx->optname == option)
		ctx->optlen = -1; /* done, without the kernel */
	return 1;
}

/*
 * Has segments carry bytes that the receiver has had already, as a bundler
 * does. The stream is nothing but zeroes, which is what a packet grows by, so
 * that no byte has to be moved.
 */
SEC("tc")
int grow(struct __sk_buff *skb)
{
	__u8 protocol, words;
	__be16 was, is;
	__be32 seq;

	if (skb->protocol != bpf_htons(ETHERTYPE_IPV4) ||
	    bpf_skb_load_bytes(skb, PROTOCOL, &protocol, 1) ||
	    protocol != IPPROTO_TCP ||
	    bpf_skb_load_bytes(skb, DATA_OFFSET, &words, 1) ||
	    bpf_skb_load_bytes(skb, SEQUENCE, &seq, sizeof(seq)) ||
	    bpf_skb_load_bytes(skb, TOTAL_LENGTH, &was, sizeof(was)) ||
	    skb->len == TCP + (words >> 4) * 4)
		return TCX_NEXT;
	is = bpf_htons(bpf_ntohs(was) + bytes);
	seq = bpf_htonl(bpf_ntohl(seq) - bytes);
	/* The TCP checksum is left to a device, and a loopback has none. */
	if (bpf_skb_change_tail(skb, skb->len + bytes, 0) ||
	    bpf_skb_store_bytes(skb, SEQUENCE, &seq, sizeof(seq), 0) ||
	    bpf_skb_store_bytes(skb, TOTAL_LENGTH, &is, sizeof(is), 0) ||
	    bpf_l3_csum_replace(skb, IP_CHECKSUM, was, is, sizeof(is)))
		return TCX_DROP;
	return TCX_NEXT;
}

__u64 told = 0;

/* Stands at a cgroup, and counts the states it is told of. */
SEC("sockops")
int note_state(struct bpf_sock_ops *ops)
{
	if (ops->op == BPF_SOCK_OPS_STATE_CB &&
	    bpf_ntohl(ops->remote_port) == port)
		__sync_fetch_and_add(&told, 1);
	return 1;
}

/*
 * Stand in for VLAN devices: packets get tags on their way out, and lose them
 * on their way in. The kernel keeps the tag added last beside the packet, and
 * those before it in the packet's data. The innermost is 802.1Q, as customers'
 * tags are, the others 802.1ad.
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
int take_tags(struct __sk_buff *skb)
{
	for (__u32 i = 0; i < tags && i < 3; i++)
		if (bpf_skb_vlan_pop(skb))
			return TCX_DROP;
	return TCX_NEXT;
}
