/* SPDX-License-Identifier: GPL-2.0-only */
/* The token bucket of caps, compiled for this machine. */
#include <linux/types.h>
#include <stdbool.h>

#include "policy/token_bucket.h"

int pillion_take_tokens(__u64 *earned_ns, __u32 tokens, __u64 per_s,
			__u64 now_ns)
{
	return take_tokens(earned_ns, tokens, per_s, now_ns);
}
