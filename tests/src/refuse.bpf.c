/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stands at a route, where packets come that a cgroup's programs have let
 * pass, and has the kernel refuse them with an error.
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
