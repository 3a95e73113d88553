/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs at a route, after the programs of cgroups, and makes the kernel refuse
 * each packet with an error.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define BPF_DROP 2

char LICENSE[] SEC("license") = "GPL";

SEC("lwt_xmit")
int refuse(struct __sk_buff *skb)
{
	return BPF_DROP;
}
