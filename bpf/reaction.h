/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What follows from a hidden loss.
 *
 * A cgroup program at egress may say "keep the packet, but there is
 * congestion"; the kernel then enters CWR as for a full queue of its own: at
 * most once a window, with the reduction that the connection's congestion
 * control decides (Linux 5.3, commit e7a3160d092a).
 */
#ifndef PILLION_REACTION_H
#define PILLION_REACTION_H

#include "maps.h"

#define KEEP		1
#define KEEP_AND_REDUCE 3

/* A packet of ours leaves; what the kernel is to be told with it. */
static __always_inline int react(struct flow *flow, struct bpf_tcp_sock *tp)
{
	if (!flow->reaction_due)
		return KEEP;
	flow->reaction_due = 0;
	flow->reacted_at = tp->snd_nxt;
	if (flow->options.reaction == REACT_NONE)
		return KEEP;
	count_reaction(flow);
	return KEEP_AND_REDUCE;
}

#endif /* PILLION_REACTION_H */
