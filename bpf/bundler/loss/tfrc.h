/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rate that a stream with this loss may send.
 *
 * TFRC (RFC 5348) in its variant for small packets, TFRC-SP (RFC 4828): the
 * rate of a TCP with full segments at this loss event rate and RTT, minus the
 * share of headers, at most 100 packets/s. Integer arithmetic without kernel
 * calls: tests call it as well.
 */
#ifndef PILLION_TFRC_H
#define PILLION_TFRC_H

#include "../flow.h"

#define NOMINAL_SEGMENT 1460 /* bytes, for any true size */
#define MIN_INTERVAL_US 10000 /* minimum time between packets */
#define SECOND_US	1000000ULL
#define MAX_RTT_US	((1ULL << 24) - 1)
#define MAX_RATE	0xffffffffULL /* bytes/s: u32 */

/* A loss event rate of 1. */
#define LOSS_RATE_BITS 31
#define LOSS_RATE_ONE  (1ULL << LOSS_RATE_BITS)

/* The length of a loss interval, in 1/256 packets. */
#define LENGTH_BITS  8
#define INTERVAL_ONE (1ULL << LENGTH_BITS)
#define MAX_LENGTH   0xffffffffULL

/*
 * The integer square root of n >= 1, by Newton's method from above: at most 32
 * halvings, then convergence. The loop has no branch, because the verifier
 * would follow every combination.
 */
__noinline __u64 square_root(__u64 n)
{
	__u64 root = 1ULL << 32;
	int i;

	for (i = 0; i < 40; i++)
		root = (root + n / root) / 2;
	return root > n / root ? root - 1 : root;
}

/*
 * The throughput equation (RFC 5348, section 3.1) with b = 1 and t_RTO = 4 R,
 * in bytes/s. Because sqrt(3p/8) is 3/4 of sqrt(2p/3), it is
 *
 * s / (R * sqrt(2p/3) * (1 + 9p + 288p^3)).
 */
static __always_inline __u64 tfrc_rate(__u64 p, __u64 rtt_us)
{
	__u64 root, p3, factor, divisor;

	if (!p)
		p = 1;
	if (p > LOSS_RATE_ONE)
		p = LOSS_RATE_ONE;
	if (!rtt_us)
		rtt_us = 1;
	if (rtt_us > MAX_RTT_US)
		rtt_us = MAX_RTT_US;
	/* All have LOSS_RATE_BITS fractional bits, but factor 20. */
	root = square_root((p << LOSS_RATE_BITS) * 2 / 3);
	p3 = (p * p >> LOSS_RATE_BITS) * p >> LOSS_RATE_BITS;
	factor = (LOSS_RATE_ONE + 9 * p + 288 * p3) >> (LOSS_RATE_BITS - 20);
	divisor = (root * factor >> 20) * rtt_us;
	return (NOMINAL_SEGMENT * SECOND_US << LOSS_RATE_BITS) / divisor;
}

/* The payload rate after subtracting headers (RFC 4828, section 3). */
static __always_inline __u64 subtract_headers(__u64 rate,
					      const struct sent *sent)
{
	if (rate > MAX_RATE)
		rate = MAX_RATE;
	return sent->wire ? rate * sent->payload / sent->wire : rate;
}

/*
 * The length of the loss interval from the last loss event until now. An
 * interval of at most two RTTs counts its actual losses (RFC 4828, section 3).
 */
static __always_inline __u64 interval_length(const struct loss_events *events,
					     __u32 packets, __u64 now,
					     __u64 rtt_us)
{
	__u64 length = packets - events->packets;

	length <<= LENGTH_BITS;
	if (events->losses && now - events->start <= 2 * rtt_us)
		length /= events->losses;
	if (length < INTERVAL_ONE)
		return INTERVAL_ONE;
	return length < MAX_LENGTH ? length : MAX_LENGTH;
}

/*
 * Updates the loss events: `total_losses` losses among `packets` sent up to
 * now. A loss within an RTT of an event's start belongs to it (RFC 5348,
 * section 5.2).
 */
static __always_inline void note_losses(struct loss_events *events,
					__u32 total_losses, __u32 packets,
					__u64 now, __u64 rtt_us)
{
	__u32 losses = total_losses - events->total_losses;
	__u64 length;
	int i;

	if (!losses)
		return;
	events->total_losses = total_losses;
	if (events->losses && now - events->start <= rtt_us) {
		events->losses += losses;
		return;
	}
	length = interval_length(events, packets, now, rtt_us);
	for (i = LOSS_INTERVALS - 1; i > 0; i--)
		events->intervals[i] = events->intervals[i - 1];
	events->intervals[0] = length;
	if (events->closed < LOSS_INTERVALS)
		events->closed++;
	events->start = now;
	events->packets = packets;
	events->losses = losses;
}

/*
 * The loss event rate, in units of 1 / LOSS_RATE_ONE, after at least one loss
 * (RFC 5348, section 5.4). The open interval counts if that lowers the rate,
 * and not before it is two RTTs old (RFC 4828, section 3).
 */
static __always_inline __u64 loss_event_rate(const struct loss_events *events,
					     __u32 packets, __u64 now,
					     __u64 rtt_us)
{
	__u64 closed = 0, open = 0, weights = 0, weight, newer = 0, p;
	__u32 i;

	if (now - events->start > 2 * rtt_us)
		newer = interval_length(events, packets, now, rtt_us);
	for (i = 0; i < LOSS_INTERVALS && i < events->closed; i++) {
		/* Fifths: 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2 */
		weight = i < LOSS_INTERVALS / 2 ? 5 : LOSS_INTERVALS - i;
		weights += weight;
		closed += weight * events->intervals[i];
		open += weight * newer;
		newer = events->intervals[i];
	}
	if (closed < open)
		closed = open;
	if (!closed)
		return LOSS_RATE_ONE;
	p = ((weights << (LOSS_RATE_BITS + LENGTH_BITS)) + closed / 2) / closed;
	return p < LOSS_RATE_ONE ? p : LOSS_RATE_ONE;
}

#endif /* PILLION_TFRC_H */
