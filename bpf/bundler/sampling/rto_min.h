/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The effect of smaller minimum RTOs. The kernel's RTO is the smoothed RTT plus
 * the larger of the minimum and four times the mean deviation (__tcp_set_rto()
 * and tcp_rtt_estimator()). Since the last ACK, or the first transmission of
 * the oldest segment, a smaller minimum would have
 *  - expired earlier where the timer did expire, as a time-out or as a probe;
 *  - expired needlessly where an ACK came later than this RTO.
 */
#ifndef PILLION_RTO_MIN_H
#define PILLION_RTO_MIN_H

#include "observation.h"

/* Returns what is added to the smoothed RTT with the minimum RTO `at`. */
static __always_inline __u32 rto_margin_us(__u32 at, __u32 deviation_us)
{
	__u32 min_us = (RTO_MIN_FIRST_MS * 1000) << at;

	return min_us > deviation_us ? min_us : deviation_us;
}

/* Handles an expiration, while its packet leaves. */
__noinline int add_expiration(struct observation *observation, __u32 srtt_us,
			      __u32 margin_us, __u32 mdev_us)
{
	__u32 deviation_us;

	if (!observation)
		return 0;
	deviation_us = READ_ONCE(observation->deviation_us);
	if (deviation_us < mdev_us)
		deviation_us = mdev_us;
	observation->rto_expirations++;
	observation->rto_ms += (srtt_us + margin_us) / 1000;
	for (__u32 at = 0; at < RTO_MINS; at++) {
		__u32 smaller_us = rto_margin_us(at, deviation_us);

		if (smaller_us < margin_us)
			observation->rto_mins[at].saved_ms +=
				(margin_us - smaller_us) / 1000;
	}
	return 0;
}

/*
 * Handles an expiration. Those after a back-off are left out: it is unknown
 * whether the packet would have arrived at another time.
 */
static __always_inline void rto_at_expiration(struct observation *observation,
					      const struct tcp_sock *tp)
{
	if (tp->srtt_us && !tp->inet_conn.icsk_backoff)
		add_expiration(observation, tp->srtt_us >> 3, tp->rttvar_us,
			       tp->mdev_us);
}

/*
 * Handles the ACK of the oldest segment, sent at sent_us; 0: unknown, or
 * retransmitted.
 */
__noinline int add_ack(struct observation *observation, __u32 sent_us,
		       __u32 srtt_us, __u32 mdev_us)
{
	__u32 now = now_us() | 1, waited_us, since_ack_us, deviation_us;

	if (!observation)
		return 0;
	deviation_us = observation->deviation_us;
	/* As the kernel's variation, without the minimum. */
	if (mdev_us > deviation_us)
		deviation_us = mdev_us;
	else
		deviation_us -= (deviation_us - mdev_us) >> 2;
	WRITE_ONCE(observation->deviation_us, deviation_us);
	waited_us = now - sent_us;
	since_ack_us = now - observation->acked_at_us;
	if (observation->acked_at_us && since_ack_us < waited_us)
		waited_us = since_ack_us;
	observation->acked_at_us = now;
	if (!sent_us || !srtt_us)
		return 0;
	for (__u32 at = 0; at < RTO_MINS; at++)
		if (waited_us > srtt_us + rto_margin_us(at, deviation_us))
			observation->rto_mins[at].needless++;
	return 0;
}

/* Handles an ACK of new data, before TCP does. */
static __always_inline void rto_at_ack(struct observation *observation,
				       const struct tcp_sock *tp, __u32 sent_us)
{
	add_ack(observation, sent_us, tp->srtt_us >> 3, tp->mdev_us);
}

#endif /* PILLION_RTO_MIN_H */
