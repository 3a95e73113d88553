/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds the losses that bundles hid.
 *
 * A bundle that repairs a loss arrives in order, so the sender gets no
 * duplicate ACK (LCN 2015, section III.B.1). But a receiver that already had
 * the redundant bytes reports them as duplicates, in the ACK of that same
 * packet. Redundant bytes that it does not report were lost before. If a
 * receiver never reports duplicates, losses are invisible and nothing is
 * bundled. The published rule, where an ACK of several segments means loss,
 * also counts delayed ACKs; it is used only on request.
 */
#ifndef PILLION_HIDDEN_LOSS_H
#define PILLION_HIDDEN_LOSS_H

#include "../rx/ack.h"
#include "../maps.h"
#include "time_saved.h"
#include "resolve_segments.h"

/*
 * A receiver counts as one that sends no reports after MAX_MISSING_REPORTS ACKs
 * without a due report. A report is due if the receiver had already
 * acknowledged some of the redundant bytes (POINTS_IF_CERTAIN each). A loss
 * explains any other ACK without a report (1 point each).
 */
#define MAX_MISSING_REPORTS 8
#define POINTS_IF_CERTAIN   4

/* Part of the reorder window that each loss subtracts (1/16). */
#define REORDER_WINDOW_FADE 16

/*
 * Returns true if the ACK carries the delayed report of an earlier bundle. A
 * packet in order without duplicate bytes leaves that report pending
 * (tcp_rcv_established()); a packet with its own report would replace it (RFC
 * 2883, section 4). A global function, so that the verifier does not follow
 * every case.
 */
__noinline int reports_earlier_bundle(struct record *record, __u32 next,
				      const struct ack *ack, __u32 una,
				      __u32 until)
{
	struct packet earlier = {};

	if (!record || !ack)
		return false;
	find_packet(record, next, ack->duplicate_end + 1, &earlier);
	return redundant_len(earlier.flags) &&
	       !(earlier.flags & RETRANSMITTED) &&
	       earlier.seq == ack->duplicate_end &&
	       earlier.start == ack->duplicate_start &&
	       after(earlier.end, una) && !after(earlier.end, until);
}

/*
 * Sets the range of redundant bytes that the receiver did not have. A reported
 * range lies before its next expected byte, or it was received after a gap. A
 * report of other bytes replaced the packet's own report, if there was one.
 *
 * Darwin's receivers report no duplicate of a single byte (tcp_input()).
 */
static __always_inline void lost_by_dsack(struct record *record,
					  const struct ingress *ingress,
					  __u32 next, const struct ack *ack,
					  const struct packet *packet,
					  __u32 una, struct ack_range *range)
{
	range->lost_start = later(packet->start, una);
	range->lost_end = packet->seq;
	if (packet->seq - packet->start == 1 && !ingress->reports_single_bytes)
		range->lost_end = range->lost_start;
	if (!ack->duplicate)
		return;
	if (!before(ack->duplicate_start, packet->seq)) {
		range->lost_end = range->lost_start;
	} else if (!after(ack->duplicate_end, packet->start)) {
		if (!reports_earlier_bundle(record, next, ack, una,
					    packet->start))
			range->lost_end = range->lost_start;
	} else if (after(ack->duplicate_start, range->lost_start)) {
		range->lost_end = earlier(packet->seq, ack->duplicate_start);
	} else {
		range->lost_start =
			later(range->lost_start, ack->duplicate_end);
	}
}

/*
 * The published rule: all but the last segment that the ACK covers were lost.
 */
static __always_inline void lost_by_ack(const struct packet *packet, __u32 una,
					struct ack_range *range)
{
	range->lost_start = una;
	range->lost_end = packet->seq;
}

/*
 * Returns true if the ACK reports a duplicate of sent data. Any other report,
 * such as one whose numbers were rewritten on the path, is ignored.
 */
static __always_inline bool reports_sent_data(const struct ack *ack,
					      __u32 oldest_byte, __u32 end)
{
	return ack->duplicate && !before(ack->duplicate_start, oldest_byte) &&
	       !after(ack->duplicate_end, end);
}

/* Forgets pending losses: they can no longer turn out to be reordered. */
static __always_inline void forget_pending(struct ingress *ingress)
{
	ingress->pending = (struct pending_losses){};
	WRITE_ONCE(ingress->pending.start_us, (__u32)now_us());
}

/*
 * The rule of the options. Without SACK no report can arrive, so the option to
 * bundle to such peers implies the published rule.
 */
static __always_inline enum loss_rule
configured_loss_rule(const struct flow *flow)
{
	enum loss_rule configured = READ_ONCE(flow->options.loss_rule);

	if (configured == LOSS_RULE_LEARNING && flow->options.without_sack &&
	    flow->sack == SACK_MISSING)
		return LOSS_RULE_ACK;
	return configured;
}

/*
 * Chooses the loss rule for this receiver. A report proves that it reports
 * duplicates, even if it was classified as silent before. If the configured
 * rule changes, losses found before it are certain. A global function, so that
 * the verifier does not follow every case.
 */
__noinline int choose_loss_rule(struct flow *flow, const struct ack *ack,
				bool reported)
{
	struct ingress *ingress;
	enum loss_rule configured;

	if (!flow || !ack)
		return 0;
	ingress = &flow->ingress;
	configured = configured_loss_rule(flow);

	if (ingress->configured_loss_rule != configured) {
		ingress->configured_loss_rule = configured;
		WRITE_ONCE(ingress->loss_rule, configured);
		ingress->missing_report_points = 0;
		forget_pending(ingress);
	}
	if (!reported)
		return 0;
	if (configured == LOSS_RULE_LEARNING)
		WRITE_ONCE(ingress->loss_rule, LOSS_RULE_DSACK);
	if (ack->duplicate_end - ack->duplicate_start == 1)
		ingress->reports_single_bytes = true;
	return 0;
}

/*
 * Handles an ACK of a bundle without a report. If the receiver certainly had
 * some of the redundant bytes (is_certain), a report was due. After enough of
 * them it counts as a receiver without reports; the suspected losses then most
 * likely did not occur. A global function, so that the verifier does not follow
 * every case.
 */
__noinline int note_missing_report(struct ingress *ingress, bool is_certain)
{
	if (!ingress || ingress->loss_rule != LOSS_RULE_LEARNING)
		return 0;
	ingress->missing_report_points += is_certain ? POINTS_IF_CERTAIN : 1;
	if (ingress->missing_report_points <
	    MAX_MISSING_REPORTS * POINTS_IF_CERTAIN)
		return 0;
	WRITE_ONCE(ingress->loss_rule, LOSS_RULE_NONE);
	forget_pending(ingress);
	return 0;
}

/*
 * Returns the notice of losses that end at `end`: a counter and the end in one
 * word, so that readers get both.
 */
static __always_inline __u64 next_notice(__u64 last, __u32 end)
{
	return ((last >> 32) + 1) << 32 | end;
}

/* Shrinks the reorder window with each lost segment. */
static __always_inline void fade_reorder_window(struct ingress *ingress)
{
	WRITE_ONCE(ingress->reorder_window_us,
		   ingress->reorder_window_us -
			   ingress->reorder_window_us / REORDER_WINDOW_FADE);
}

/* Returns true if no reaction to the found losses has happened yet. */
static __always_inline bool is_waiting(const struct flow *flow)
{
	return flow->ingress.notice.hidden !=
	       READ_ONCE(flow->egress.handled.hidden);
}

/* Counts segments as lost by this ACK; they may still prove to be reordered. */
static __always_inline void note_pending(struct flow *flow, __u32 by,
					 const struct hidden_losses *hidden)
{
	struct ingress *ingress = &flow->ingress;

	if (!hidden->segments)
		return;
	if (!is_waiting(flow) && !ingress->suspected_losses.segments)
		forget_pending(ingress);
	ingress->pending.segments += hidden->segments;
	ingress->loss_ack = by;
}

/* Reports lost segments up to end that TCP has retransmitted. */
static __always_inline void report_retransmitted_losses(struct flow *flow,
							__u32 end)
{
	struct ingress *ingress = &flow->ingress;

	WRITE_ONCE(ingress->notice.retransmitted,
		   next_notice(ingress->notice.retransmitted, end));
}

/* Counts losses up to end that a bundle hid. */
static __always_inline void
count_hidden(struct flow *flow, const struct hidden_losses *hidden, __u32 end)
{
	struct ingress *ingress = &flow->ingress;

	if (hidden->retransmitted)
		report_retransmitted_losses(flow, end);
	if (!hidden->segments)
		return;
	ADD(flow, hidden_losses, hidden->segments);
	ADD(flow, repaired_bytes, hidden->bytes);
	ADD(flow, time_saved_us, hidden->time_saved_us);
	ingress->pending.time_saved_us += hidden->time_saved_us;
	fade_reorder_window(ingress);
	STORE_RELEASE(ingress->notice.hidden,
		      next_notice(ingress->notice.hidden, end));
}

/*
 * The packet whose arrival is shown by an ACK that ends with a bundle's packet.
 */
enum arrival {
	BUNDLE_ARRIVED,
	RETRANSMISSION_ARRIVED,
	BOTH_ARRIVED, /* but the bundle's own ACK did not */
	EITHER_ARRIVED, /* one of the two, unknown which */
	/* a packet after a gap, or an ACK without information on the bundle */
	OTHER_ARRIVED,
};

/*
 * Classifies the arrival that an ACK shows.
 *
 * After a packet that arrives after a gap, the receiver forgets a pending
 * report (tcp_data_queue()), so its ACK has no information. The same holds if
 * the ACK itself arrives after a gap: the peer's lost segment before it may
 * have carried the report.
 *
 * If TCP retransmitted the packet's segment, mostly as a tail loss probe (RFC
 * 8985, section 7), data received after a gap required the bundle. If the
 * segment's own bytes are reported, the retransmission duplicated them, and the
 * bundle's own report is unknown because its ACK may have been delayed.
 * Otherwise timestamps decide, if the bundle left before all retransmissions.
 * The timestamp of a packet in order is echoed from then on (RFC 7323, section
 * 4.3), so an older echo belongs to an earlier packet.
 *
 * A global function, so that the verifier does not follow every case.
 */
__noinline int classify_arrival(struct egress *egress, struct ingress *ingress,
				const struct ack *ack,
				const struct packet *packet, __u32 una)
{
	__u32 first_tsval, snd_nxt_at_start;

	if (!egress || !ingress || !ack || !packet)
		return EITHER_ARRIVED;
	if ((ingress->sacked.first_block_is_new || ack->after_gap) &&
	    !ack->duplicate)
		return OTHER_ARRIVED;
	if (!(packet->flags & RETRANSMITTED))
		return BUNDLE_ARRIVED;
	if (is_sacked(&ingress->sacked, packet->slot))
		return EITHER_ARRIVED;
	if (ack->duplicate && !before(ack->duplicate_start, packet->seq))
		return BOTH_ARRIVED;
	order_accesses(); /* first_tsval was written before the flag */
	first_tsval = LOAD_ACQUIRE(egress->retrans.first_tsval);
	snd_nxt_at_start = READ_ONCE(egress->retrans.snd_nxt_at_start);
	if (!first_tsval || !ack->tsecr || after(packet->end, snd_nxt_at_start))
		return EITHER_ARRIVED;
	if (!before(ack->tsecr, first_tsval))
		return RETRANSMISSION_ARRIVED;
	if (packet->end == snd_nxt_at_start && !after(packet->start, una) &&
	    before(ack->tsecr, READ_ONCE(egress->retrans.newest_tsval)))
		return RETRANSMISSION_ARRIVED;
	return BUNDLE_ARRIVED;
}

static __always_inline void add_hidden(struct hidden_losses *sum,
				       const struct hidden_losses *hidden)
{
	sum->segments += hidden->segments;
	sum->bytes += hidden->bytes;
	sum->time_saved_us += hidden->time_saved_us;
	sum->retransmitted |= hidden->retransmitted;
}

/*
 * Counts suspected losses once the receiver is known to report duplicates. If
 * it does not, they are unknown and no reaction follows. A global function, so
 * that the verifier does not follow every case.
 */
__noinline int resolve_suspected_losses(struct flow *flow)
{
	struct ingress *ingress;

	if (!flow)
		return 0;
	ingress = &flow->ingress;
	if (ingress->loss_rule == LOSS_RULE_LEARNING)
		return 0;
	if (ingress->loss_rule == LOSS_RULE_DSACK)
		count_hidden(flow, &ingress->suspected_losses,
			     ingress->suspected_losses_end);
	ingress->suspected_losses = (struct hidden_losses){};
	return 0;
}

/* Counts the losses that the ACK of a bundle's packet reveals. */
static __always_inline void find_hidden(struct flow *flow,
					struct bpf_tcp_sock *btp, __u32 next,
					const struct ack *ack, bool reported,
					const struct packet *packet, __u32 una,
					struct ack_range *range)
{
	struct ingress *ingress = &flow->ingress;
	struct record *record = &flow->egress.record;
	struct hidden_losses hidden = {};
	enum arrival arrived;

	arrived = classify_arrival(&flow->egress, ingress, ack, packet, una);
	if (arrived == BUNDLE_ARRIVED && !reported)
		note_missing_report(ingress, after(una, packet->start));
	resolve_suspected_losses(flow);
	if ((arrived == BUNDLE_ARRIVED || arrived == BOTH_ARRIVED) &&
	    packet->flags & RETRANSMITTED)
		note_arrival(ingress, packet->start, packet->end, range->mss,
			     packet->flags);
	if ((arrived != BUNDLE_ARRIVED && arrived != EITHER_ARRIVED) ||
	    !after(packet->seq, una))
		return; /* no information about the redundant bytes */
	if (ingress->loss_rule == LOSS_RULE_NONE)
		return;
	if (ingress->loss_rule == LOSS_RULE_ACK)
		lost_by_ack(packet, una, range);
	else
		lost_by_dsack(record, ingress, next, ack, packet, una, range);
	count_lost(record, ingress, range, &hidden);
	if (ingress->loss_rule != LOSS_RULE_ACK && arrived == BUNDLE_ARRIVED)
		hidden.time_saved_us =
			hidden.segments * time_saved_us(btp, packet->sent);
	note_pending(flow, ack->ack, &hidden);
	if (ingress->loss_rule == LOSS_RULE_LEARNING) {
		add_hidden(&ingress->suspected_losses, &hidden);
		ingress->suspected_losses_end = range->lost_end;
		range->is_suspected = true;
		return;
	}
	count_hidden(flow, &hidden, range->lost_end);
}

#endif /* PILLION_HIDDEN_LOSS_H */
