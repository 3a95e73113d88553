/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How much earlier the bundle left than a retransmission would have.
 *
 * For a lost segment the estimate is a lower bound. Nothing sent between the
 * loss and the bundle has arrived. Without the bundle, its packet would have
 * been the first one acknowledged selectively. After one such segment, RACK may
 * declare earlier ones lost (tcp_rack_detect_loss()): not before an RTT after
 * that packet left, plus a reordering window if it followed the lost segment
 * closely. Without RACK it takes three.
 *
 * A loss probe or a time-out may fire earlier (tcp_schedule_loss_probe(),
 * tcp_rearm_rto()). But until the ACK arrives the kernel has the same state as
 * without the bundle, so it would have been visible.
 */
#ifndef PILLION_TIME_SAVED_H
#define PILLION_TIME_SAVED_H

#include "../tx/record.h"
#include "../tcp_state.h"
#include "../tx/thin.h"

/* Elapsed time, rounded down; wrong after 1.05 s, because `sent` wraps. */
static __always_inline __u32 elapsed_us(__u16 sent)
{
	__u16 units = (__u16)(now_us() >> SENT_UNIT_BITS) - sent;

	return units ? (units - 1) << SENT_UNIT_BITS : 0;
}

/*
 * The time saved for each lost segment, when the ACK of the repairing packet
 * arrives.
 */
static __always_inline __u32 time_saved_us(struct bpf_tcp_sock *btp, __u16 sent)
{
	__u32 rtt_us = btp->rtt_min, until_ack_us = elapsed_us(sent);

	if (btp->sacked_out)
		return 0; /* TCP knew of it, or acted as if it did */
	if (rtt_us == NO_RTT_SAMPLE)
		return 0;
	/* At most an RTT: the minimum may be from another path. */
	return until_ack_us < rtt_us ? until_ack_us : rtt_us;
}

#endif /* PILLION_TIME_SAVED_H */
