/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reaction to hidden losses.
 *
 * A cgroup program at egress may return "keep the packet, but there is
 * congestion". The kernel then enters CWR as for a full local queue: at most
 * once a window, with the reduction of the connection's congestion control
 * (Linux 5.3, commit e7a3160d092a).
 *
 * Losses are added to the loss event rate here, where the socket is locked, and
 * not where they are found: ACKs arrive on one processor while another one
 * sends.
 */
#ifndef PILLION_REACTION_H
#define PILLION_REACTION_H

#include "../tcp_state.h"
#include "../tx/level.h"
#include "../maps.h"
#include "../segment.h"
#include "../tx/sending_rate.h"
#include "tfrc.h"

#define PRIOR_CWND_UNKNOWN (~0U)

#define EGRESS_KEEP    1
#define EGRESS_KEEP_CN 3

/*
 * Adds losses to the loss event rate: hidden losses, and those that TCP
 * retransmitted.
 */
static __always_inline void learn_losses(struct flow *flow,
					 struct bpf_tcp_sock *btp)
{
	struct egress *egress = &flow->egress;
	__u32 total_losses = flow->counters.hidden_losses +
			     flow->counters.copy_losses +
			     flow->counters.piggyback_repaired_segments +
			     egress->retransmitted;

	if (total_losses != egress->loss_events.total_losses)
		note_losses(&egress->loss_events, total_losses,
			    egress->sending.packets, now_us(),
			    effective_rtt_us(btp));
}

/*
 * Returns the rate in bytes/s, headers included, that TFRC-SP allows after at
 * least one loss. The work is split into two global functions: the verifier
 * checks each once, and their stacks do not add up.
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
	return tfrc_rate(scale_by_ack_coverage(&flow->ingress, p), rtt_us);
}

static __always_inline bool are_packets_allowed(const struct sent *rate)
{
	return rate->packets <= SECOND_US / MIN_INTERVAL_US;
}

/*
 * Decides whether the stream sends at most this rate, headers included; stores
 * the decision.
 */
__noinline int record_tfrc_decision(struct flow *flow, __u64 rate, __u64 rtt_us)
{
	struct tfrc_decision tfrc_decision = {};
	struct sent sent;

	if (!flow)
		return false;
	tfrc_decision.at = now_us();
	sent = sending_rate(&flow->egress.sending, tfrc_decision.at, rtt_us);
	tfrc_decision.tfrc_sent_bytes_per_s = sent.payload;
	tfrc_decision.tfrc_allowed_bytes_per_s = subtract_headers(rate, &sent);
	store_tfrc_decision(flow, &tfrc_decision);
	return sent.payload <= tfrc_decision.tfrc_allowed_bytes_per_s &&
	       are_packets_allowed(&sent);
}

static __always_inline bool make_tfrc_decision(struct flow *flow, __u64 rtt_us)
{
	return record_tfrc_decision(flow, find_allowed_rate(flow, rtt_us),
				    rtt_us);
}

/*
 * Decides by TFRC-SP, and stores the decision, if the congestion control
 * ignores CWR. Returns true if the stream sends more than allowed. Redundancy
 * then stops, to be fair to other streams.
 */
static __always_inline bool
decide_fair_share(struct flow *flow, const struct tcp_sock *tp, __u64 rtt_us)
{
	return ignores_cwr(tp) && flow->options.reaction != REACT_NONE &&
	       !flow->options.published && flow->egress.loss_events.closed &&
	       !make_tfrc_decision(flow, rtt_us);
}

/*
 * Stops the copies of level `auto` while the stream sends more than TFRC-SP
 * allows; before the first loss, that is a number of packets. Decided once per
 * eight new segments. A global function, so that the verifier does not follow
 * every case.
 */
__noinline int limit_copies(struct flow *flow, __u64 rtt_us)
{
	struct egress *egress;
	struct sent rate;
	bool allowed;

	if (!flow)
		return 0;
	egress = &flow->egress;
	if (egress->record.next % 8)
		return 0;
	if (egress->loss_events.closed) {
		allowed = make_tfrc_decision(flow, rtt_us);
	} else {
		rate = sending_rate(&egress->sending, now_us(), rtt_us);
		allowed = are_packets_allowed(&rate);
	}
	if (allowed)
		egress->copies_limited_us = 0;
	else if (!egress->copies_limited_us)
		egress->copies_limited_us = (__u32)now_us() | 1;
	return 0;
}

/*
 * Level `auto` stops copies before it reduces the window. Returns true if that
 * is the reaction: now, or so recently that the measured rate still includes
 * copies.
 */
static __always_inline bool stop_copies(struct flow *flow, __u64 rtt_us)
{
	struct egress *egress = &flow->egress;
	__u32 now = now_us();

	if (flow->options.level != LEVEL_AUTO || flow->options.published)
		return false;
	if (egress->copies_limited_us)
		return now - egress->copies_limited_us < window_us(rtt_us);
	if (READ_ONCE(flow->ingress.copies) == AUTO_COPIES_NONE)
		return false;
	egress->copies_limited_us = now | 1;
	return true;
}

/*
 * Returns true while TCP checks whether its time-out was spurious, by ACKs of
 * data that it has not retransmitted (F-RTO, RFC 5682).
 */
static __always_inline bool is_timeout_in_doubt(struct tcp_sock *tp)
{
	return ca_state(tp) == TCP_CA_Loss && BPF_CORE_READ_BITFIELD(tp, frto);
}

/*
 * Returns true while the kernel reduces the window for any reason. The
 * reduction covers all losses of data outstanding at its start, up to high_seq.
 */
static __always_inline bool is_reducing(struct tcp_sock *tp)
{
	return ca_state(tp) >= TCP_CA_CWR;
}

/*
 * Returns the start of TCP's last reduction while TCP may still undo it.
 * Returns 0 once it is undone (tcp_undo_cwnd_reduction()), or if it can never
 * be: TCP stores no window for CWR, or for a reduction within another one.
 */
static __always_inline __u32 undoable_reduction_id(const struct tcp_sock *tp)
{
	return tp->prior_ssthresh ? tp->undo_marker : 0;
}

/*
 * Returns true if TCP undid its reduction, which restores the whole window
 * (tcp_undo_cwnd_reduction()). A reduction that starts and ends within the ACK
 * of a tail loss probe (tcp_process_tlp_ack()) leaves the window at the
 * threshold, below its old value; the stored values of the one before remain.
 */
static __always_inline bool tcp_undid_reduction(const struct tcp_sock *tp)
{
	return !tp->undo_marker && tp->prior_ssthresh &&
	       tp->snd_ssthresh >= tp->prior_ssthresh &&
	       (tp->snd_cwnd >= tp->prior_cwnd ||
		tp->snd_cwnd - tp->snd_ssthresh > 1);
}

/*
 * Stores TCP's prior_cwnd. Returns true if TCP started a reduction since the
 * last packet. A finished one changes prior_cwnd, unless the window before it
 * was the same as the last time. It may start and finish within the ACK of a
 * tail loss probe (tcp_process_tlp_ack()).
 */
static __always_inline bool update_prior_cwnd(struct egress *egress,
					      const struct tcp_sock *tp)
{
	bool has_started = egress->prior_cwnd != PRIOR_CWND_UNKNOWN &&
			   egress->prior_cwnd != tp->prior_cwnd;

	egress->prior_cwnd = tp->prior_cwnd;
	return has_started;
}

/*
 * Tracks TCP's own reductions by the state at each packet. The last one is
 * final when another one starts.
 */
static __always_inline void track_reductions(struct egress *egress,
					     const struct tcp_sock *tp,
					     bool reducing)
{
	__u32 marker = undoable_reduction_id(tp);
	bool undone = tcp_undid_reduction(tp),
	     has_started = update_prior_cwnd(egress, tp);

	if (egress->last_undoable_reduction && undone) {
		egress->undone_reduction_end = egress->reduction_end;
		egress->reduction_end = egress->final_reduction_end;
	} else if (marker != egress->last_undoable_reduction) {
		egress->final_reduction_end = egress->reduction_end;
	}
	egress->last_undoable_reduction = marker;
	/* Without SACK, TCP may stay in state Loss after the undo. */
	if (!(reducing || has_started) || undone)
		return;
	egress->reduction_end = tp->high_seq;
	if (!marker)
		egress->final_reduction_end = tp->high_seq;
}

/* Leaves the losses up to end to TCP's own reduction. */
static __always_inline void leave_to_tcp(struct egress *egress, __u32 end)
{
	egress->left_to_tcp_end = later(egress->left_to_tcp_end, end);
}

/*
 * Returns true if a loss may still prove to be reordering. As in RACK, the
 * reordering window starts at a quarter of the minimum RTT (RFC 8985, section
 * 6.2) and grows with the lateness of segments on this path. It never exceeds
 * an RTT, after which TCP might have detected the loss. The published mechanism
 * does not wait.
 *
 * The window starts with the first pending loss, even if that one arrives and
 * others are pending. A reaction may then be early, but a stream of late
 * segments never postpones the reaction to a real loss.
 */
static __always_inline bool may_be_reordered(const struct flow *flow,
					     struct bpf_tcp_sock *btp)
{
	const struct ingress *ingress = &flow->ingress;
	__u32 reorder_window_us = READ_ONCE(ingress->reorder_window_us),
	      srtt_us = btp->srtt_us >> 3;
	__u32 wait_us = reorder_window_us + reorder_window_us / 4,
	      least_us = btp->rtt_min / 4;

	if (flow->options.published)
		return false;
	if (wait_us < least_us)
		wait_us = least_us;
	if (wait_us > srtt_us)
		wait_us = srtt_us;
	return (__u32)now_us() - READ_ONCE(ingress->pending.start_us) < wait_us;
}

/* Where the loss of a notice ends: the lower half (struct loss_notice). */
static __always_inline __u32 notice_end(__u64 notice)
{
	return notice;
}

/*
 * Returns true if a hidden loss requires a reaction. It does not if TCP was
 * reducing the window anyway. Losses after high_seq are left for later, because
 * the ACK that ends the reduction may be waiting for the application.
 */
static __always_inline bool
needs_reaction(struct flow *flow, struct bpf_tcp_sock *btp, bool reducing)
{
	struct egress *egress = &flow->egress;
	__u64 notice = READ_ONCE(flow->ingress.notice.hidden);
	__u32 end = notice_end(notice);

	if (notice == egress->handled.hidden)
		return false;
	order_accesses(); /* pending was written before the notice */
	if (after(end, egress->reduction_end))
		return !reducing && !may_be_reordered(flow, btp);
	egress->handled.hidden = notice;
	leave_to_tcp(egress, end);
	return false;
}

/*
 * Leaves losses to TCP that it retransmitted, or whose repair it takes for the
 * original segments. If TCP has not reduced its window for them yet, they were
 * a tail loss probe, and TCP's reduction follows.
 */
static __always_inline void
leave_retransmitted_to_tcp(struct egress *egress, const struct ingress *ingress)
{
	__u64 notice = READ_ONCE(ingress->notice.retransmitted);
	__u32 end = notice_end(notice);

	if (notice == egress->handled.retransmitted)
		return;
	egress->handled.retransmitted = notice;
	if (!after(end,
		   later(egress->reduction_end, egress->undone_reduction_end)))
		leave_to_tcp(egress, end);
}

/* Returns true if TCP undid the reduction that a loss was left to. */
static __always_inline bool has_uncovered_loss(const struct egress *egress)
{
	return after(egress->left_to_tcp_end, egress->reduction_end) &&
	       !after(egress->left_to_tcp_end, egress->undone_reduction_end);
}

/*
 * Restores the state before the last requested reduction if the request was
 * lost; returns true then. If a route, or lack of memory, rejects the packet
 * after this program, TCP gets the error instead of the congestion signal
 * (ip_finish_output(), tcp_transmit_skb()). The loss then still requires a
 * reaction. A received request would have cleared the stored window
 * (tcp_enter_cwr()) and set high_seq to the requested value, as a time-out also
 * does. A global function, so that the verifier does not follow every case.
 */
__noinline int rearm_lost_cwr_request(struct flow *flow, __u32 high_seq,
				      __u32 prior_ssthresh)
{
	struct egress *egress;

	if (!flow)
		return false;
	egress = &flow->egress;
	if (!egress->cwr_requested)
		return false;
	egress->cwr_requested = false;
	if (high_seq != egress->cwr_high_seq ||
	    (high_seq == egress->reduction_end && !prior_ssthresh))
		return false;
	egress->handled.hidden = 0;
	egress->left_to_tcp_end = egress->prior_left_to_tcp_end;
	egress->reduction_end = egress->prior_reduction_end;
	egress->final_reduction_end = egress->prior_reduction_end;
	return true;
}

/* Reacts to hidden losses with each packet; returns the kernel's verdict. */
static __always_inline int react(struct flow *flow, struct bpf_tcp_sock *btp,
				 struct tcp_sock *tp)
{
	enum reaction reaction = flow->options.reaction;
	struct egress *egress = &flow->egress;
	struct ingress *ingress = &flow->ingress;
	bool reducing = is_reducing(tp), due;
	__u64 is_first_request;

	is_first_request =
		!rearm_lost_cwr_request(flow, tp->high_seq, tp->prior_ssthresh);
	learn_losses(flow, btp);
	track_reductions(egress, tp, reducing);
	due = needs_reaction(flow, btp, reducing);
	leave_retransmitted_to_tcp(egress, ingress);
	if (reducing || !(due || has_uncovered_loss(egress)))
		return EGRESS_KEEP;
	egress->handled.hidden = READ_ONCE(ingress->notice.hidden);
	egress->prior_left_to_tcp_end = egress->left_to_tcp_end;
	egress->left_to_tcp_end = egress->reduction_end;
	if (ignores_cwr(tp))
		reaction = REACT_NONE;
	if (reaction == REACT_TFRC_SP && !is_congested(flow) &&
	    (make_tfrc_decision(flow, effective_rtt_us(btp)) ||
	     stop_copies(flow, effective_rtt_us(btp)))) {
		ADD(flow, reactions_suppressed, 1);
		return EGRESS_KEEP;
	}
	egress->prior_reduction_end = egress->reduction_end;
	egress->reduction_end = btp->snd_nxt;
	egress->final_reduction_end = btp->snd_nxt;
	if (reaction == REACT_NONE)
		return EGRESS_KEEP;
	egress->cwr_requested = true;
	egress->cwr_high_seq = tp->high_seq;
	/* A repeated request is the same reaction. */
	ADD(flow, reactions, is_first_request);
	return EGRESS_KEEP_CN;
}

#endif /* PILLION_REACTION_H */
