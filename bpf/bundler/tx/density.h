/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How densely does the receiver acknowledge?
 *
 * An ACK shows the losses that a bundle hid if it ends where the bundle's
 * packet does. A receiver that delays ACKs sends 45 to 50 for 80 segments; a
 * filter on the path back, as cable modems have, may leave one of five. Then
 * most losses are not found, and nothing is bundled. The ends of all small
 * segments count, with bundles or without: so it shows as well when ACKs are
 * dense again.
 */
#ifndef PILLION_DENSITY_H
#define PILLION_DENSITY_H

#include "../lock.h"

#define ENDS	     64 /* of the last small segments */
#define ENDS_THINNED 16 /* if no more have an ACK that ends there */

/*
 * Records whether an ACK ended at an acknowledged segment. `counts` is 1 for a
 * small segment, which a bundle could repair. It is 0 for one that was lost or
 * arrived after a gap, because no ACK has to end there.
 */
static __always_inline void count_end(struct ingress *ingress, __u32 counts,
				      __u32 is_end_of_ack)
{
	WRITE_ONCE(ingress->ends_passed,
		   ingress->ends_passed << counts | (counts & ~is_end_of_ack));
}

/*
 * Number of the last ENDS segment ends at which an ACK ended. Ends not recorded
 * yet count as acknowledged.
 */
static __always_inline __u32 ends_acknowledged(const struct ingress *ingress)
{
	return ENDS - __builtin_popcountll(READ_ONCE(ingress->ends_passed));
}

static __always_inline bool are_acks_thinned(const struct ingress *ingress)
{
	return ends_acknowledged(ingress) <= ENDS_THINNED;
}

/*
 * ELIGIBLE if the receiver's ACKs show the losses that bundles hide, else why
 * they do not.
 */
static __always_inline enum outcome test_acks(const struct flow *flow)
{
	if (flow->sack != SACK_OFFERED && !flow->options.without_sack)
		return NO_SACK;
	if (READ_ONCE(flow->ingress.rule) == LOSS_RULE_NONE)
		return NO_DSACK;
	if (flow->ingress.rule != LOSS_RULE_ACK &&
	    are_acks_thinned(&flow->ingress))
		return ACKS_THINNED;
	return ELIGIBLE;
}

/*
 * Scales a loss count or rate up by the share of segment ends that have an ACK,
 * because a hidden loss shows only where an ACK ends.
 */
static __always_inline __u64 with_unseen(const struct ingress *ingress,
					 __u64 seen)
{
	return seen * ENDS / (ends_acknowledged(ingress) ?: 1);
}

#endif /* PILLION_DENSITY_H */
