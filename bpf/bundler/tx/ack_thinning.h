/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How densely the receiver acknowledges.
 *
 * An ACK shows the losses that a bundle hid if it ends with the bundle's
 * packet. A receiver with delayed ACKs sends 45 to 50 for 80 segments. An ACK
 * filter on the reverse path, as in cable modems, may leave one of five. Then
 * most losses stay undetected, and nothing is bundled. All small segments
 * count, with or without bundles, so a return to dense ACKs is detected as
 * well.
 */
#ifndef PILLION_ACK_THINNING_H
#define PILLION_ACK_THINNING_H

#include "../lock.h"

/* Number of remembered ends of small segments. */
#define ENDS 64
/* ACKs are thinned if at most this number of the ends has one. */
#define MAX_THINNED_ENDS 16

/*
 * Records whether an ACK ended at an acknowledged segment. `counts` is 1 for a
 * small segment, which a bundle could repair. It is 0 for one that was lost or
 * arrived after a gap, because no ACK has to end there.
 */
static __always_inline void count_end(struct ingress *ingress, __u32 counts,
				      __u32 is_end_of_ack)
{
	WRITE_ONCE(ingress->unacked_ends,
		   ingress->unacked_ends << counts | (counts & ~is_end_of_ack));
}

/*
 * Number of the last ENDS segment ends at which an ACK ended. Ends not recorded
 * yet count as acknowledged.
 */
static __always_inline __u32 ends_acknowledged(const struct ingress *ingress)
{
	return ENDS - __builtin_popcountll(READ_ONCE(ingress->unacked_ends));
}

static __always_inline bool is_ack_thinned(const struct ingress *ingress)
{
	return ends_acknowledged(ingress) <= MAX_THINNED_ENDS;
}

/* ELIGIBLE if the receiver's ACKs show hidden losses, otherwise the reason. */
static __always_inline enum outcome
check_loss_detection(const struct flow *flow)
{
	if (flow->sack != SACK_OFFERED && !flow->options.without_sack)
		return NO_SACK;
	if (READ_ONCE(flow->ingress.loss_rule) == LOSS_RULE_NONE)
		return NO_DSACK;
	if (flow->ingress.loss_rule != LOSS_RULE_ACK &&
	    is_ack_thinned(&flow->ingress))
		return ACKS_THINNED;
	return ELIGIBLE;
}

/*
 * Scales a loss count or rate up by the share of segment ends that have an ACK,
 * because a hidden loss shows only where an ACK ends.
 */
static __always_inline __u64
scale_by_ack_coverage(const struct ingress *ingress, __u64 seen)
{
	return seen * ENDS / (ends_acknowledged(ingress) ?: 1);
}

#endif /* PILLION_ACK_THINNING_H */
