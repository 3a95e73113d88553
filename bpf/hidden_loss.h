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
#include "level.h"
#include "maps.h"
#include "saved.h"

/* ACKs of bundles without a report after which a receiver makes none. */
#define LEARN_FROM 8

static __always_inline __u32 later(__u32 a, __u32 b)
{
	return after(a, b) ? a : b;
}

static __always_inline __u32 earlier(__u32 a, __u32 b)
{
	return before(a, b) ? a : b;
}

/*
 * Finds the packet whose last byte is acknowledged. Returns 0 if none that is
 * remembered ends there. A global function, as the next: the verifier looks at
 * its loop once, and not once for each way that leads to it.
 */
__noinline int find_packet(struct flow *flow, __u32 ack, __u32 una,
			   struct packet *packet)
{
	__u32 end, i, slot, found = 0;

	if (!flow || !packet)
		return 0;
	packet->covered = 0;
	end = flow->sent_end;
	for (i = 1; i <= HISTORY_SEGMENTS && i <= flow->segments; i++) {
		slot = (flow->next - i) & (HISTORY_SEGMENTS - 1);
		if (!after(end, una))
			break;
		if (end == ack) {
			packet->start = flow->bundles[slot];
			packet->seq = flow->starts[slot];
			packet->sent_us = flow->sent_us[slot];
			found = 1;
		}
		if (found)
			packet->covered++;
		end = flow->starts[slot];
	}
	return found;
}

/* Segments of the history that begin within the range. */
__noinline int segments_in(struct flow *flow, __u32 start, __u32 end)
{
	__u32 i, first, count = 0;

	if (!flow)
		return 0;
	for (i = 1; i <= HISTORY_SEGMENTS && i <= flow->segments; i++) {
		first = flow->starts[(flow->next - i) & (HISTORY_SEGMENTS - 1)];
		if (before(first, start))
			break;
		if (before(first, end))
			count++;
	}
	return count;
}

/* The redundant bytes that the receiver did not have. */
static __always_inline void lost_by_dsack(struct flow *flow,
					  const struct ack *ack,
					  const struct packet *packet,
					  struct loss *loss)
{
	loss->start = packet->start;
	loss->end = packet->seq;
	/* A duplicate is what lies before the receiver's next expected byte. */
	if (ack->duplicate)
		loss->start = later(loss->start, ack->duplicate_end);
	loss->segments = segments_in(flow, loss->start, loss->end);
}

/* All but the last segment that the ACK covers. */
static __always_inline void lost_by_ack(__u32 una, const struct packet *packet,
					struct loss *loss)
{
	if (packet->covered < 2)
		return;
	loss->start = una;
	loss->end = packet->seq;
	loss->segments = packet->covered - 1;
}

/*
 * Does this receiver report duplicates? Silence tells only where it had all
 * that was redundant, having acknowledged it before.
 */
static __always_inline void learn(struct flow *flow, const struct ack *ack,
				  const struct packet *packet, __u32 una)
{
	if (flow->loss_rule != LOSS_RULE_LEARNING)
		return;
	if (ack->duplicate)
		flow->loss_rule = LOSS_RULE_DSACK;
	else if (!after(packet->seq, una) && ++flow->unreported >= LEARN_FROM)
		flow->loss_rule = LOSS_RULE_ACK;
}

/*
 * A segment deemed lost came after all, behind the packet that repaired it: all
 * of it is duplicate, and so its ACK acknowledges nothing.
 */
static __always_inline void look_for_reordering(struct flow *flow,
						const struct ack *ack)
{
	if (!ack->duplicate || !before(ack->duplicate_start, flow->lost_end) ||
	    !after(ack->duplicate_end, flow->lost_start))
		return;
	flow->lost_end = flow->lost_start;
	ADD(flow, reordered, 1);
	take_back_saved(flow);
}

/* Does the ACK end beyond a retransmission that others rode along with? */
static __always_inline bool
is_of_retransmission(struct flow *flow, const struct ack *ack, __u32 una)
{
	return flow->along_pending && before(una, flow->along_start) &&
	       !before(ack->ack, flow->along_end);
}

/*
 * What rode along with a retransmission, and is not reported as duplicate, was
 * lost; by the published rule too, for the ACK covers several segments. TCP has
 * reduced its window already, for the segment that it sent again.
 *
 * But of the others it knows that it sent them once, and takes their
 * acknowledgement for that of the originals: the time-out looks spurious
 * (F-RTO, RFC 5682), and the reduction is undone. Then one is due.
 */
static __always_inline void judge_retransmission(struct flow *flow,
						 const struct ack *ack)
{
	__u32 start = flow->along_start, end = flow->along_end, lost;

	flow->along_pending = 0;
	lost = segments_in(flow, start, end);
	if (ack->duplicate)
		lost -= segments_in(flow, later(start, ack->duplicate_start),
				    earlier(end, ack->duplicate_end));
	if (!lost)
		return;
	ADD(flow, repaired_along, lost);
	flow->lost_start = start;
	flow->lost_end = end;
	flow->lost_saved_us = 0;
	if (flow->reaction_due == NOT_DUE && after(end, flow->reacted_at))
		flow->reaction_due = DUE_IF_UNDONE;
}

/* An ACK arrives, and the kernel has not looked at it yet. */
static __always_inline void on_ack(struct flow *flow, struct bpf_tcp_sock *tp,
				   const struct ack *ack)
{
	struct packet packet = {};
	struct loss loss = {};
	__u32 una = tp->snd_una;

	if (!after(ack->ack, una)) {
		look_for_reordering(flow, ack);
		return;
	}
	if (is_of_retransmission(flow, ack, una)) {
		judge_retransmission(flow, ack);
		return;
	}
	if (!find_packet(flow, ack->ack, una, &packet))
		return;
	if (!before(packet.start, packet.seq))
		return; /* not bundled */
	learn(flow, ack, &packet, una);
	packet.start = later(packet.start, una);
	if (!before(packet.start, packet.seq))
		return; /* what was redundant is acknowledged already */
	if (flow->loss_rule == LOSS_RULE_DSACK)
		lost_by_dsack(flow, ack, &packet, &loss);
	else if (flow->loss_rule == LOSS_RULE_ACK)
		lost_by_ack(una, &packet, &loss);
	if (!before(loss.start, loss.end))
		return;
	ADD(flow, hidden_losses, loss.segments);
	ADD(flow, repaired_bytes, loss.end - loss.start);
	note_run(flow, loss.segments);
	note_saved(flow, tp, &packet, &loss);
	flow->lost_start = loss.start;
	flow->lost_end = loss.end;
	if (after(loss.end, flow->reacted_at))
		flow->reaction_due = DUE;
}

#endif /* PILLION_HIDDEN_LOSS_H */
