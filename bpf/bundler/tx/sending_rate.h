/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Measures how much a stream has sent in the last second, or in the last RTT if
 * that is longer. Two windows of this length are stored, the current and the
 * previous one. The previous one counts in part, as if sent evenly.
 */
#ifndef PILLION_SENDING_RATE_H
#define PILLION_SENDING_RATE_H

#include "../loss/tfrc.h"

static __always_inline __u64 window_us(__u64 rtt_us)
{
	if (rtt_us > MAX_RTT_US)
		return MAX_RTT_US;
	return rtt_us > SECOND_US ? rtt_us : SECOND_US;
}

static __always_inline void advance_window(struct sending *sending, __u64 now,
					   __u64 window)
{
	__u64 age = now - sending->start_us;

	if (age < window)
		return;
	if (age < 2 * window) {
		sending->before = sending->current;
		sending->start_us += window;
	} else {
		sending->before = (struct sent){};
		sending->start_us = now;
	}
	sending->current = (struct sent){};
}

static __always_inline void note_sent(struct sending *sending, __u64 now,
				      __u64 rtt_us, const struct sent *sent)
{
	advance_window(sending, now, window_us(rtt_us));
	sending->packets += sent->packets;
	sending->current.packets += sent->packets;
	sending->current.payload += sent->payload;
	sending->current.wire += sent->wire;
}

static __always_inline __u32 per_second(__u64 current, __u64 before, __u64 age,
					__u64 window)
{
	__u64 rate = (current + before * (window - age) / window) * SECOND_US /
		     window;

	return rate < MAX_RATE ? rate : MAX_RATE;
}

/* The recent sending rate per second. */
static __always_inline struct sent sending_rate(const struct sending *sending,
						__u64 now, __u64 rtt_us)
{
	__u64 window = window_us(rtt_us), age;
	struct sending moved = *sending;
	const struct sent *current = &moved.current, *before = &moved.before;
	struct sent rate;

	advance_window(&moved, now, window);
	age = now - moved.start_us;
	rate.packets =
		per_second(current->packets, before->packets, age, window);
	rate.payload =
		per_second(current->payload, before->payload, age, window);
	rate.wire = per_second(current->wire, before->wire, age, window);
	return rate;
}

/* Returns true above limit bytes/s, headers included. */
static __always_inline bool exceeds_rate(const struct sending *sending,
					 __u64 now, __u64 rtt_us, __u64 limit)
{
	__u64 age = now - sending->start_us;

	/* At the start and after a pause, less than a window has passed. */
	if (!sending->before.wire && age < window_us(rtt_us))
		return sending->current.wire * SECOND_US > limit * age;
	return sending_rate(sending, now, rtt_us).wire > limit;
}

#endif /* PILLION_SENDING_RATE_H */
