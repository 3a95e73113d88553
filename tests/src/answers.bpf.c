/* SPDX-License-Identifier: GPL-2.0-only */
/* Somebody else's program at a cgroup, which answers a socket option itself. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* Set before loading. */
const volatile __s32 level = 0;
const volatile __s32 option = 0;

char LICENSE[] SEC("license") = "GPL";

SEC("cgroup/setsockopt")
int answer(struct bpf_sockopt *ctx)
{
	if (ctx->level == level && ctx->optname == option)
		ctx->optlen = -1; /* done, without the kernel */
	return 1;
}
