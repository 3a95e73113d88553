/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What follows from a hidden loss.
 *
 * A cgroup program at egress may say "keep the packet, but there is
 * congestion"; the kernel then enters CWR as for a full queue of its own: at
 * most once a window, with the reduction that the connection's congestion
 * control decides (Linux 5.3, commit e7a3160d092a).
 *
 * Losses enter the loss event rate here, and not where they are found: ACKs
 * arrive on one processor while another one sends, but here the socket is
 * locked.
 */
#ifndef PILLION_REACTION_H
#define PILLION_REACTION_H

#include "maps.h"
#include "round_trip.h"
#include "segment.h"
#include "sending_rate.h"
#include "tfrc.h"

#define KEEP		1
#define KEEP_AND_REDUCE 3

/* Those that bundles hid, and those that made TCP send again. */
static __always_inline void learn_losses(struct flow *flow,
					 struct bpf_tcp_sock *tp)
{
	__u32 known = flow->counters.hidden_losses +
		      flow->counters.repaired_along +
		      flow->counters.verdicts[OLD_DATA] +
		      flow->counters.verdicts[RETRANSMISSION_BUNDLED];

	if (known != flow->loss_events.known)
		note_losses(&flow->loss_events, known, flow->sending.packets,
			    now_us(), round_trip_us(tp));
}

/* Does the stream send no more than it may, after at least one loss? */
static __always_inline bool within_allowance(struct flow *flow,
					     struct bpf_tcp_sock *tp)
{
	__u64 now = now_us(), rtt_us = round_trip_us(tp), p;
	struct sent sent = sending_rate(&flow->sending, now, rtt_us);
	struct decision decision = {.at = now, .rate_sent = sent.payload};
	bool within;

	p = loss_event_rate(&flow->loss_events, flow->sending.packets, now,
			    rtt_us);
	decision.rate_allowed = less_headers(tfrc_rate(p, rtt_us), &sent);
	within = sent.payload <= decision.rate_allowed &&
		 sent.packets <= SECOND_US / MIN_INTERVAL_US;
	note_decision(flow, &decision);
	if (within)
		ADD(flow, reactions_spared, 1);
	return within;
}

/*
 * Has TCP a larger window again than it reduced it to? Its threshold bounds the
 * slow start after a time-out.
 */
static __always_inline bool is_undone(const struct flow *flow,
				      struct bpf_tcp_sock *tp)
{
	return tp->snd_cwnd > flow->reduced_to;
}

/* A packet of ours leaves; what the kernel is to be told with it. */
static __always_inline int react(struct flow *flow, struct bpf_tcp_sock *tp)
{
	enum reaction reaction = flow->options.reaction;
	bool due = true;

	if (reaction == REACT_TFRC_SP)
		learn_losses(flow, tp);
	if (flow->reaction_due == NOT_DUE)
		return KEEP;
	if (flow->reaction_due == DUE_IF_UNDONE) {
		if (before(tp->snd_una, flow->along_end))
			return KEEP; /* TCP has not looked at the ACK yet */
		due = is_undone(flow, tp);
	}
	flow->reaction_due = NOT_DUE;
	if (!due)
		return KEEP;
	if (reaction == REACT_TFRC_SP && within_allowance(flow, tp))
		return KEEP;
	flow->reacted_at = tp->snd_nxt;
	if (reaction == REACT_NONE)
		return KEEP;
	ADD(flow, reactions, 1);
	return KEEP_AND_REDUCE;
}

#endif /* PILLION_REACTION_H */
