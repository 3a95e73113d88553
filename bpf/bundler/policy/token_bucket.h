/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A token bucket for all processors, as one word: the time at which all tokens
 * taken so far are earned (the generic cell rate algorithm, ITU-T I.371). It
 * starts at 0, with a full bucket of BURST_NS.
 */
#ifndef PILLION_TOKEN_BUCKET_H
#define PILLION_TOKEN_BUCKET_H

#include "../lock.h"

#define NS_PER_S 1000000000ULL
#define BURST_NS NS_PER_S /* time without use whose tokens remain */

/* The time in which tokens are earned, rounded up; 0 without a limit. */
static __always_inline __u64 time_to_earn(__u32 tokens, __u64 per_s)
{
	return per_s ? (tokens * NS_PER_S + per_s - 1) / per_s : 0;
}

static __always_inline void return_tokens(__u64 *earned_ns, __u32 tokens,
					  __u64 per_s)
{
	__sync_fetch_and_sub(earned_ns, time_to_earn(tokens, per_s));
}

/*
 * Takes all tokens, or none if there are too few. Without a limit (per_s 0)
 * there always are enough. Tokens are taken before the check, so that
 * processors together never take too many. One may find too few while another
 * returns some.
 */
static __always_inline bool take_tokens(__u64 *earned_ns, __u32 tokens,
					__u64 per_s, __u64 now_ns)
{
	__u64 start = now_ns > BURST_NS ? now_ns - BURST_NS : 0;
	__u64 cost = time_to_earn(tokens, per_s);
	__u64 earned = READ_ONCE(*earned_ns);

	if (!cost)
		return true;
	if (earned < start)
		__sync_val_compare_and_swap(earned_ns, earned, start);
	if (__sync_fetch_and_add(earned_ns, cost) + cost <= now_ns)
		return true;
	return_tokens(earned_ns, tokens, per_s);
	return false;
}

#endif /* PILLION_TOKEN_BUCKET_H */
