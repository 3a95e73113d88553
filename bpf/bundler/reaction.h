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
#define TCP_CA_CWR	2 /* Recovery and Loss are higher */

/*
 * Losses for the loss event rate: those that bundles hid, and those that made
 * TCP retransmit.
 */
static __always_inline void learn_losses(struct flow *flow,
					 struct bpf_tcp_sock *tp)
{
	struct egress *egress = &flow->egress;
	__u32 known = flow->counters.hidden_losses +
		      flow->counters.repaired_along + egress->retransmitted;

	if (known != egress->loss_events.known)
		note_losses(&egress->loss_events, known,
			    egress->sending.packets, now_us(),
			    round_trip_us(tp));
}

/* Does the stream send no more than it may, after at least one loss? */
static __always_inline bool within_allowance(struct flow *flow,
					     struct bpf_tcp_sock *tp)
{
	struct egress *egress = &flow->egress;
	__u64 now = now_us(), rtt_us = round_trip_us(tp), p;
	struct sent sent = sending_rate(&egress->sending, now, rtt_us);
	struct decision decision = {.at = now, .rate_sent = sent.payload};
	bool within;

	p = loss_event_rate(&egress->loss_events, egress->sending.packets, now,
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
 * Has TCP taken back the reduction with which it retransmitted? Then its
 * threshold is what it was before (tcp_undo_cwnd_reduction()).
 */
static __always_inline bool is_undone(const struct egress *egress,
				      struct bpf_tcp_sock *tp)
{
	return tp->snd_ssthresh > egress->reduced_to;
}

/*
 * While the kernel reduces the window, whatever for, it does so for all losses
 * of the data that was outstanding when it began.
 */
static __always_inline bool is_reducing(struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) >=
	       TCP_CA_CWR;
}

/* Does it so for what it may find not to have been lost? */
static __always_inline bool may_undo(struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state) >
	       TCP_CA_CWR;
}

/*
 * The kernel's reduction is the answer to what was lost before high_seq. What
 * is found behind it, while the ACK that ends the reduction waits for the
 * application, is left for the next one.
 */
static __always_inline void
answer(struct egress *egress, const struct ingress *ingress, __u32 high_seq)
{
	__u32 calls = READ_ONCE(ingress->calls);

	if (!after(READ_ONCE(ingress->calls_end), high_seq))
		egress->answered = calls;
}

/* Is there a loss to answer for that the kernel has not answered for? */
static __always_inline bool is_due(struct flow *flow, struct bpf_tcp_sock *tp)
{
	__u32 if_undone = READ_ONCE(flow->ingress.calls_if_undone);
	__u32 calls = READ_ONCE(flow->ingress.calls);
	struct egress *egress = &flow->egress;
	bool due = calls != egress->answered;

	egress->answered = calls;
	if (if_undone == egress->answered_if_undone)
		return due;
	if (before(tp->snd_una, READ_ONCE(flow->ingress.if_undone_end)))
		return due; /* TCP has not looked at the ACK yet */
	egress->answered_if_undone = if_undone;
	return due || is_undone(egress, tp);
}

/* A packet of ours leaves; what the kernel is to be told with it. */
static __always_inline int react(struct flow *flow, struct bpf_tcp_sock *tp,
				 struct tcp_sock *sk)
{
	enum reaction reaction = flow->options.reaction;
	struct egress *egress = &flow->egress;

	if (reaction == REACT_TFRC_SP)
		learn_losses(flow, tp);
	if (is_reducing(sk)) {
		WRITE_ONCE(egress->reduced_at, sk->high_seq);
		answer(egress, &flow->ingress, sk->high_seq);
		return KEEP;
	}
	if (!is_due(flow, tp))
		return KEEP;
	if (reaction == REACT_TFRC_SP && within_allowance(flow, tp))
		return KEEP;
	WRITE_ONCE(egress->reduced_at, tp->snd_nxt);
	WRITE_ONCE(egress->reacted_at, tp->snd_nxt);
	if (reaction == REACT_NONE)
		return KEEP;
	ADD(flow, reactions, 1);
	return KEEP_AND_REDUCE;
}

#endif /* PILLION_REACTION_H */
