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

#include "../tcp_state.h"
#include "../tx/density.h"
#include "../maps.h"
#include "../segment.h"
#include "../tx/sending_rate.h"
#include "tfrc.h"

#define PRIOR_CWND_UNKNOWN (~0U)

#define KEEP		1
#define KEEP_AND_REDUCE 3

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

/*
 * Bytes a second that TFRC-SP allows after at least one loss, with headers.
 * Two global functions share the work: the verifier looks at each once, and
 * their stacks do not add up.
 */
__noinline __u64 find_allowed_rate(struct flow *flow, __u64 rtt_us)
{
	struct egress *egress;
	__u64 p;

	if (!flow)
		return 0;
	egress = &flow->egress;
	p = loss_event_rate(&egress->loss_events, egress->sending.packets,
			    now_us(), rtt_us);
	return tfrc_rate(with_unseen(&flow->ingress, p), rtt_us);
}

/* Does the stream send no more than this rate, with headers, allows? */
__noinline int is_within_rate(struct flow *flow, __u64 rate, __u64 rtt_us)
{
	struct decision decision = {};
	struct sent sent;

	if (!flow)
		return false;
	decision.at = now_us();
	sent = sending_rate(&flow->egress.sending, decision.at, rtt_us);
	decision.rate_sent = sent.payload;
	decision.rate_allowed = less_headers(rate, &sent);
	note_decision(flow, &decision);
	return sent.payload <= decision.rate_allowed &&
	       sent.packets <= SECOND_US / MIN_INTERVAL_US;
}

static __always_inline bool is_within_allowance(struct flow *flow, __u64 rtt_us)
{
	return is_within_rate(flow, find_allowed_rate(flow, rtt_us), rtt_us);
}

/*
 * Returns true if the congestion control ignores CWR and the stream sends more
 * than TFRC-SP allows. Redundancy then stops, to be fair to other streams.
 */
static __always_inline bool
exceeds_share(struct flow *flow, const struct tcp_sock *sk, __u64 rtt_us)
{
	return ignores_cwr(sk) && flow->options.reaction != REACT_NONE &&
	       !flow->options.published && flow->egress.loss_events.closed &&
	       !is_within_allowance(flow, rtt_us);
}

/*
 * Is TCP finding out whether its time-out was needless, by what it has not
 * retransmitted (F-RTO, RFC 5682)?
 */
static __always_inline bool doubts_timeout(struct tcp_sock *tp)
{
	return ca_state(tp) == TCP_CA_Loss && BPF_CORE_READ_BITFIELD(tp, frto);
}

/*
 * While the kernel reduces the window, whatever for, it does so for all losses
 * of the data that was outstanding when it began: up to high_seq.
 */
static __always_inline bool is_reducing(struct tcp_sock *tp)
{
	return ca_state(tp) >= TCP_CA_CWR;
}

/*
 * Where TCP's last reduction began, if TCP may find it needless and take it
 * back, for as long as it may; 0 once it has (tcp_undo_cwnd_reduction()), or if
 * it never may: nothing is kept of the window from before CWR, or of one that
 * was being reduced already.
 */
static __always_inline __u32 undo_marker(const struct tcp_sock *tp)
{
	return tp->prior_ssthresh ? tp->undo_marker : 0;
}

/*
 * What TCP takes back is undone whole (tcp_undo_cwnd_reduction()). A reduction
 * that is over within the ACK of a tail loss probe (tcp_process_tlp_ack()) has
 * the window at the threshold, below what it was; what was kept of the one
 * before is still there.
 */
static __always_inline bool is_taken_back(const struct tcp_sock *tp)
{
	return !tp->undo_marker && tp->prior_ssthresh &&
	       tp->snd_ssthresh >= tp->prior_ssthresh &&
	       (tp->snd_cwnd >= tp->prior_cwnd ||
		tp->snd_cwnd - tp->snd_ssthresh > 1);
}

/*
 * Has TCP begun a reduction since the last packet? One that is over again shows
 * by the window before it, unless that was the same as with the last one:
 * within the ACK of a tail loss probe (tcp_process_tlp_ack()).
 */
static __always_inline bool has_begun(struct egress *egress,
				      const struct tcp_sock *tp)
{
	bool begun = egress->prior_cwnd != PRIOR_CWND_UNKNOWN &&
		     egress->prior_cwnd != tp->prior_cwnd;

	egress->prior_cwnd = tp->prior_cwnd;
	return begun;
}

/*
 * TCP's own reductions, as the packets show them that leave. Its last one
 * becomes firm when it begins another.
 */
static __always_inline void follow_reductions(struct egress *egress,
					      const struct tcp_sock *tp,
					      bool reducing)
{
	__u32 marker = undo_marker(tp);
	bool undone = is_taken_back(tp), begun = has_begun(egress, tp);

	if (egress->undo_marker && undone) {
		egress->undone_at = egress->reduced_at;
		egress->reduced_at = egress->firm_at;
	} else if (marker != egress->undo_marker) {
		egress->firm_at = egress->reduced_at;
	}
	egress->undo_marker = marker;
	/* Without SACK it may go on in state Loss with what it took back. */
	if (!(reducing || begun) || undone)
		return;
	egress->reduced_at = tp->high_seq;
	if (!marker)
		egress->firm_at = tp->high_seq;
}

/* The losses up to end are left to TCP's own reduction. */
static __always_inline void trust(struct egress *egress, __u32 end)
{
	egress->trusted_end = later(egress->trusted_end, end);
}

/*
 * May a loss still turn out to be reordering? As RACK does, the reordering
 * window starts at a quarter of the minimum RTT (RFC 8985, section 6.2) and
 * grows with how late segments arrived on this path. It never exceeds an RTT:
 * TCP might have found the loss by itself by then. The published mechanism does
 * not wait.
 *
 * The window starts with the first pending loss, even if that one arrives late
 * and others are pending: a reaction may come too early then, but a stream of
 * late segments never postpones the reaction to a real loss.
 */
static __always_inline bool may_come_late(const struct flow *flow,
					  struct bpf_tcp_sock *tp)
{
	const struct ingress *ingress = &flow->ingress;
	__u32 late_us = READ_ONCE(ingress->late_us), srtt_us = tp->srtt_us >> 3;
	__u32 wait_us = late_us + late_us / 4, least_us = tp->rtt_min / 4;

	if (flow->options.published)
		return false;
	if (wait_us < least_us)
		wait_us = least_us;
	if (wait_us > srtt_us)
		wait_us = srtt_us;
	return (__u32)now_us() - READ_ONCE(ingress->pending.since) < wait_us;
}

/*
 * Is a loss to be answered for that TCP did not know of? Not if it was reducing
 * the window anyway; but what lies behind high_seq is left for later, as the
 * ACK that ends the reduction may be waiting for the application.
 */
static __always_inline bool
is_unanswered(struct flow *flow, struct bpf_tcp_sock *tp, bool reducing)
{
	struct egress *egress = &flow->egress;
	__u64 call = READ_ONCE(flow->ingress.found.hidden);
	__u32 end = call;

	if (call == egress->answered.hidden)
		return false;
	if (after(end, egress->reduced_at))
		return !reducing && !may_come_late(flow, tp);
	egress->answered.hidden = call;
	trust(egress, end);
	return false;
}

/*
 * Lost segments have come that TCP has retransmitted, or takes for the
 * originals. If it did not reduce its window for them, it sent them as a probe,
 * and will.
 */
static __always_inline void note_known(struct egress *egress,
				       const struct ingress *ingress)
{
	__u64 call = READ_ONCE(ingress->found.known);
	__u32 end = call;

	if (call == egress->answered.known)
		return;
	egress->answered.known = call;
	if (!after(end, later(egress->reduced_at, egress->undone_at)))
		trust(egress, end);
}

/* Has TCP taken back the reduction that a loss was left to? */
static __always_inline bool is_undone(const struct egress *egress)
{
	return after(egress->trusted_end, egress->reduced_at) &&
	       !after(egress->trusted_end, egress->undone_at);
}

/*
 * The kernel may have been asked for a reduction in vain. If the packet is
 * refused with an error behind this program, by a route or for want of memory,
 * TCP sees the error instead of the congestion (ip_finish_output(),
 * tcp_transmit_skb()). The loss is unanswered then, as before. Had it been
 * heard, nothing would be kept of the window before (tcp_enter_cwr()), and
 * high_seq be what it is asked for, as it also is after a time-out. A global
 * function, as the verifier is not to follow each case.
 */
__noinline int forget_unheard(struct flow *flow, __u32 high_seq,
			      __u32 prior_ssthresh)
{
	struct egress *egress;

	if (!flow)
		return false;
	egress = &flow->egress;
	if (!egress->asked)
		return false;
	egress->asked = false;
	if (high_seq != egress->asked_high_seq ||
	    (high_seq == egress->reduced_at && !prior_ssthresh))
		return false;
	egress->answered.hidden = 0;
	egress->trusted_end = egress->asked_trusted;
	egress->reduced_at = egress->asked_after;
	egress->firm_at = egress->asked_after;
	return true;
}

/* A packet of ours leaves; what the kernel is to be told with it. */
static __always_inline int react(struct flow *flow, struct bpf_tcp_sock *tp,
				 struct tcp_sock *sk)
{
	enum reaction reaction = flow->options.reaction;
	struct egress *egress = &flow->egress;
	struct ingress *ingress = &flow->ingress;
	bool reducing = is_reducing(sk), due;
	/* A repeated request is the same reaction. */
	__u64 more = !forget_unheard(flow, sk->high_seq, sk->prior_ssthresh);

	learn_losses(flow, tp);
	follow_reductions(egress, sk, reducing);
	due = is_unanswered(flow, tp, reducing);
	note_known(egress, ingress);
	if (reducing || !(due || is_undone(egress)))
		return KEEP;
	egress->answered.hidden = READ_ONCE(ingress->found.hidden);
	egress->asked_trusted = egress->trusted_end;
	egress->trusted_end = egress->reduced_at;
	if (ignores_cwr(sk))
		reaction = REACT_NONE;
	if (reaction == REACT_TFRC_SP &&
	    is_within_allowance(flow, round_trip_us(tp))) {
		ADD(flow, reactions_spared, 1);
		return KEEP;
	}
	egress->asked_after = egress->reduced_at;
	egress->reduced_at = tp->snd_nxt;
	egress->firm_at = tp->snd_nxt;
	if (reaction == REACT_NONE)
		return KEEP;
	egress->asked = true;
	egress->asked_high_seq = sk->high_seq;
	ADD(flow, reactions, more);
	return KEEP_AND_REDUCE;
}

#endif /* PILLION_REACTION_H */
