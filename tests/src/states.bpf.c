/* SPDX-License-Identifier: GPL-2.0-only */
/* Somebody else's program at a cgroup, which counts the states it is told of.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The peer's; set before loading. */
const volatile __u32 port = 0;

__u64 told = 0;

char LICENSE[] SEC("license") = "GPL";

SEC("sockops")
int note_state(struct bpf_sock_ops *ops)
{
	if (ops->op == BPF_SOCK_OPS_STATE_CB &&
	    bpf_ntohl(ops->remote_port) == port)
		__sync_fetch_and_add(&told, 1);
	return 1;
}
