/* SPDX-License-Identifier: GPL-2.0-only */
/* Drops the IP packets with listed numbers, in order of arrival. */
#include "../vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_P_IP    0x0800
#define TC_ACT_OK   0
#define TC_ACT_SHOT 2

char LICENSE[] SEC("license") = "GPL";

/* The numbers of the packets to be dropped, from 1; as many as there are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u8);
} listed SEC(".maps");

/* Packets seen, and packets dropped. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} listed_counts SEC(".maps");

SEC("tc")
int listed_loss(struct __sk_buff *skb)
{
	__u32 all = 0, dropped = 1;
	__u64 *seen, *lost, number;

	if (skb->protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_OK;
	seen = bpf_map_lookup_elem(&listed_counts, &all);
	lost = bpf_map_lookup_elem(&listed_counts, &dropped);
	if (!seen || !lost)
		return TC_ACT_OK;
	number = __sync_fetch_and_add(seen, 1) + 1;
	if (!bpf_map_lookup_elem(&listed, &number))
		return TC_ACT_OK;
	__sync_fetch_and_add(lost, 1);
	return TC_ACT_SHOT;
}
