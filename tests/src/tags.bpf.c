/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stands in for VLAN devices: gives packets tags on their way out, and takes
 * them away on their way in. The kernel keeps the tag added last beside the
 * packet, and those before it in the packet's data.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define FIRST_ID 5

char LICENSE[] SEC("license") = "GPL";

/* Set before the programs are loaded. */
const volatile __u32 tags = 0;

/* The innermost is 802.1Q, as customers' tags are, the others 802.1ad. */
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
