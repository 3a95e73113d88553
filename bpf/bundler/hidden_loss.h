/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which losses did bundles hide?
 *
 * A bundle that repairs a loss arrives in order, so that no duplicate ACK ever
 * tells the sender (LCN 2015, section III.B.1). But a receiver that had the
 * redundant bytes already reports them as duplicates, in the very ACK of that
 * packet: what it does not report was lost before. Where it reports none at
 * all, an ACK that covers several segments is taken for a loss; this also
 * condemns delayed ACKs.
 */
#ifndef PILLION_HIDDEN_LOSS_H
#define PILLION_HIDDEN_LOSS_H

#include "ack.h"
#include "maps.h"
#include "saved.h"
#include "settle.h"

/* ACKs of bundles without a report after which a receiver makes none. */
#define LEARN_FROM 8

/*
 * The redundant bytes that the receiver did not have. What it reports lies
 * before its next expected byte; or behind a gap, and was waiting there. A
 * report of something else took the place of the packet's own, if it had one.
 */
static __always_inline void lost_by_dsack(const struct ack *ack,
					  const struct packet *packet,
					  __u32 una, struct settled *settled)
{
	settled->lost_start = later(packet->start, una);
	settled->lost_end = packet->seq;
	if (!ack->duplicate)
		return;
	if (!before(ack->duplicate_start, packet->end) ||
	    !after(ack->duplicate_end, packet->start))
		settled->lost_end = settled->lost_start;
	else if (after(ack->duplicate_start, settled->lost_start))
		settled->lost_end = earlier(packet->seq, ack->duplicate_start);
	else
		settled->lost_start =
			later(settled->lost_start, ack->duplicate_end);
}

/*
 * The published rule: all but the last segment that the ACK covers were lost.
 */
static __always_inline void lost_by_ack(const struct packet *packet, __u32 una,
					struct settled *settled)
{
	settled->lost_start = una;
	settled->lost_end = packet->seq;
}

/*
 * Does this receiver report duplicates? A report tells at once; silence does
 * after a while, for in time it would have had one to make.
 */
static __always_inline void learn(struct flow *flow, const struct ack *ack)
{
	struct ingress *ingress = &flow->ingress;
	enum loss_rule asked = READ_ONCE(flow->options.loss_rule);

	if (ingress->asked_rule != asked) {
		ingress->asked_rule = asked;
		ingress->rule = asked;
		ingress->silent = 0;
	}
	if (asked != LOSS_RULE_LEARNING || ingress->rule == LOSS_RULE_DSACK)
		return;
	if (ack->duplicate)
		ingress->rule = LOSS_RULE_DSACK;
	else if (ingress->silent < LEARN_FROM &&
		 ++ingress->silent == LEARN_FROM)
		ingress->rule = LOSS_RULE_ACK;
}

/* Losses that a bundle hid, up to end, are found, or known to be such. */
static __always_inline void count_hidden(struct flow *flow,
					 const struct hidden *hidden, __u32 end)
{
	if (!hidden->segments)
		return;
	ADD(flow, hidden_losses, hidden->segments);
	ADD(flow, repaired_bytes, hidden->bytes);
	ADD(flow, saved_us, hidden->saved_us);
	if (!after(end, READ_ONCE(flow->egress.reduced_at)))
		return;
	WRITE_ONCE(flow->ingress.calls_end, end);
	PUBLISH(flow->ingress.calls, flow->ingress.calls + 1);
}

/*
 * Lost segments have come, and TCP has retransmitted them, or will take those
 * that came for the originals: where it takes back its reduction, up to the end
 * of what is acknowledged, one is due.
 */
static __always_inline void call_if_undone(struct flow *flow, __u32 end)
{
	struct ingress *ingress = &flow->ingress;

	if (!after(end, READ_ONCE(flow->egress.reacted_at)))
		return;
	WRITE_ONCE(ingress->if_undone_end, end);
	PUBLISH(ingress->calls_if_undone, ingress->calls_if_undone + 1);
}

/*
 * A bundle's packet, or TCP's retransmission of all of it, has come. What was
 * lost by then TCP knows, and has reduced its window. But if the bundle came
 * first, it takes that for the originals (RFC 3522, RFC 5682).
 */
static __always_inline void find_retransmitted(struct flow *flow,
					       const struct ack *ack,
					       const struct packet *packet,
					       __u32 una,
					       const struct settled *settled)
{
	struct ingress *ingress = &flow->ingress;
	struct settled lost = *settled;
	struct hidden hidden = {};

	if (ingress->rule != LOSS_RULE_DSACK || !after(packet->seq, una))
		return;
	lost_by_dsack(ack, packet, una, &lost);
	count_lost(&flow->egress.record, ingress, &lost, &hidden);
	if (hidden.retransmitted)
		call_if_undone(flow, ack->ack);
}

static __always_inline void add_hidden(struct hidden *sum,
				       const struct hidden *hidden)
{
	sum->segments += hidden->segments;
	sum->bytes += hidden->bytes;
	sum->saved_us += hidden->saved_us;
}

/*
 * Counts the losses that were in doubt: it is known by now what silence means.
 */
static __always_inline void settle_doubts(struct flow *flow)
{
	struct ingress *ingress = &flow->ingress;

	if (ingress->rule == LOSS_RULE_LEARNING)
		return;
	if (ingress->rule == LOSS_RULE_DSACK)
		count_hidden(flow, &ingress->doubts, ingress->doubts_end);
	else
		count_hidden(flow, &ingress->doubts_by_ack,
			     ingress->doubts_end);
	ingress->doubts = (struct hidden){};
	ingress->doubts_by_ack = (struct hidden){};
}

/* An ACK that ends with a bundle's packet, of which una tells nothing yet. */
static __always_inline void
find_hidden(struct flow *flow, struct bpf_tcp_sock *tp, const struct ack *ack,
	    const struct packet *packet, __u32 una, struct settled *settled)
{
	struct ingress *ingress = &flow->ingress;
	struct record *record = &flow->egress.record;
	struct hidden hidden = {}, by_ack = {};

	learn(flow, ack);
	settle_doubts(flow);
	if (!after(packet->seq, una))
		return; /* what was redundant is acknowledged already */
	if (ingress->rule != LOSS_RULE_DSACK) {
		lost_by_ack(packet, una, settled);
		count_lost(record, ingress, settled, &by_ack);
	}
	if (ingress->rule != LOSS_RULE_ACK) {
		lost_by_dsack(ack, packet, una, settled);
		count_lost(record, ingress, settled, &hidden);
		hidden.saved_us =
			(__u64)hidden.segments * saved_us(tp, packet->sent);
	}
	if (ingress->rule == LOSS_RULE_LEARNING) {
		add_hidden(&ingress->doubts, &hidden);
		add_hidden(&ingress->doubts_by_ack, &by_ack);
		ingress->doubts_end = settled->lost_end;
		settled->lost_end = settled->lost_start;
		return;
	}
	if (ingress->rule == LOSS_RULE_ACK)
		hidden = by_ack;
	else if (hidden.retransmitted)
		call_if_undone(flow, ack->ack);
	count_hidden(flow, &hidden, settled->lost_end);
	if (!hidden.segments)
		return;
	ingress->lost_start = settled->lost_start;
	ingress->lost_end = settled->lost_end;
	ingress->lost_saved_us = hidden.saved_us;
}

#endif /* PILLION_HIDDEN_LOSS_H */
