/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How much sooner than a retransmission did a bundle leave?
 *
 * Of a segment that was lost the estimate is never too high. Nothing that was
 * sent between the loss and the bundle has arrived, so that the bundle's own
 * packet, without its bundle, would have been the first that the receiver
 * acknowledged selectively. From one such segment on, RACK may deem lost what
 * was sent before it (tcp_rack_detect_loss()): not before an RTT after that
 * packet left, and a reordering window later if it followed the lost segment
 * closely. Without RACK it would take three.
 *
 * A loss probe or a time-out may come sooner (tcp_schedule_loss_probe(),
 * tcp_rearm_rto()). But until the ACK arrives the kernel knows no more than it
 * would without the bundle: had they come sooner, they would have been seen.
 */
#ifndef PILLION_TIME_SAVED_H
#define PILLION_TIME_SAVED_H

#include "../tx/record.h"
#include "../tcp_state.h"
#include "../tx/thin.h"

/* Whole units that have passed for certain; less if they are too many. */
static __always_inline __u32 since_us(__u16 sent)
{
	__u16 units = (__u16)(now_us() >> SENT_UNIT_BITS) - sent;

	return units ? (units - 1) << SENT_UNIT_BITS : 0;
}

/*
 * The time saved for each segment that was lost, as the ACK of the packet that
 * repaired it tells just now.
 */
static __always_inline __u32 saved_us(struct bpf_tcp_sock *tp, __u16 sent)
{
	__u32 rtt_us = tp->rtt_min, until_ack_us = since_us(sent);

	if (tp->sacked_out)
		return 0; /* TCP knew of it, or acted as if it did */
	if (rtt_us == NO_RTT_SAMPLE)
		return 0;
	/* The minimum may be that of another path. */
	return until_ack_us < rtt_us ? until_ack_us : rtt_us;
}

#endif /* PILLION_TIME_SAVED_H */
