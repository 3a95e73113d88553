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
#ifndef PILLION_SAVED_H
#define PILLION_SAVED_H

#include "history.h"
#include "maps.h"
#include "thin.h"

/* A packet of the history. */
struct packet {
	__u32 start; /* of its payload */
	__u32 seq; /* of its new data */
	__u32 sent_us; /* when it left */
	__u32 covered; /* segments up to its end, so far unacknowledged */
};

struct loss {
	__u32 start;
	__u32 end;
	__u32 segments;
};

/* The loss was found just now, by the ACK of the packet that repaired it. */
static __always_inline __u64 saved_us(struct flow *flow,
				      struct bpf_tcp_sock *tp,
				      const struct packet *packet,
				      const struct loss *loss)
{
	__u32 rtt_us = tp->rtt_min, until_ack_us = now_us() - packet->sent_us;

	if (flow->loss_rule != LOSS_RULE_DSACK)
		return 0; /* it may have been a delayed ACK */
	if (tp->sacked_out || was_sent_again(flow, loss->start, loss->end))
		return 0; /* TCP knew of it, or acted as if it did */
	if (rtt_us == NO_RTT_SAMPLE)
		return 0;
	/* The minimum may be that of another path. */
	if (until_ack_us < rtt_us)
		rtt_us = until_ack_us;
	return (__u64)rtt_us * loss->segments;
}

static __always_inline void note_saved(struct flow *flow,
				       struct bpf_tcp_sock *tp,
				       const struct packet *packet,
				       const struct loss *loss)
{
	flow->lost_saved_us = saved_us(flow, tp, packet, loss);
	ADD(flow, saved_us, flow->lost_saved_us);
}

/* The loss found last was none. */
static __always_inline void take_back_saved(struct flow *flow)
{
	ADD(flow, saved_us, -flow->lost_saved_us);
	flow->lost_saved_us = 0;
}

#endif /* PILLION_SAVED_H */
