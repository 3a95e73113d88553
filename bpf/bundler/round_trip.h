/* SPDX-License-Identifier: GPL-2.0-only */
/* The time, and the RTT that TFRC-SP reckons with. */
#ifndef PILLION_ROUND_TRIP_H
#define PILLION_ROUND_TRIP_H

#include "flow.h"

static __always_inline __u64 now_us(void)
{
	return bpf_ktime_get_ns() / 1000;
}

/*
 * The RTT, smoothed, and not below the minimum, which is huge without a sample.
 */
static __always_inline __u64 round_trip_us(struct bpf_tcp_sock *tp)
{
	__u32 smoothed = tp->srtt_us >> 3, least = tp->rtt_min;

	return smoothed > least ? smoothed : least;
}

#endif /* PILLION_ROUND_TRIP_H */
