/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which losses did bundles hide?
 *
 * A bundle that repairs a loss arrives in order, so that no duplicate ACK ever
 * tells the sender (LCN 2015, section III.B.1). But a receiver that had the
 * redundant bytes already reports them as duplicates, in the very ACK of that
 * packet: what it does not report was lost before. The ACKs of a receiver that
 * reports none at all do not show it, and nothing is bundled: the published
 * rule, by which an ACK of several segments means loss, also condemns delayed
 * ACKs, and is for those who ask for it.
 */
#ifndef PILLION_HIDDEN_LOSS_H
#define PILLION_HIDDEN_LOSS_H

#include "../rx/ack.h"
#include "../maps.h"
#include "time_saved.h"
#include "resolve_bundles.h"

/*
 * Number of ACKs without a due report after which a receiver counts as one that
 * makes none. A report is due if the receiver had already acknowledged some of
 * the redundant bytes. A loss explains any other ACK without a report, so each
 * counts a quarter; losses alone never reach the limit.
 */
#define LEARN_FROM     8
#define CERTAIN_POINTS 4

/* The lateness that is waited for loses so much of itself with each loss. */
#define LATE_FADES 16

/*
 * Is it the report of an earlier bundle, which the receiver had yet to send? A
 * packet that it expects, and that brings nothing twice, leaves it as it is
 * (tcp_rcv_established()); another's own would have taken its place (RFC 2883,
 * section 4). A global function, as the verifier is not to follow each case.
 */
__noinline int is_of_earlier_bundle(struct record *record, __u32 next,
				    const struct ack *ack, __u32 una,
				    __u32 until)
{
	struct packet earlier = {};

	if (!record || !ack)
		return false;
	find_packet(record, next, ack->duplicate_end + 1, &earlier);
	return earlier.how & REDUNDANT && !(earlier.how & RETRANSMITTED) &&
	       earlier.seq == ack->duplicate_end &&
	       earlier.start == ack->duplicate_start &&
	       after(earlier.end, una) && !after(earlier.end, until);
}

/*
 * The redundant bytes that the receiver did not have. What it reports lies
 * before its next expected byte; or behind a gap, and was waiting there. A
 * report of something else took the place of the packet's own, if it had one.
 *
 * Darwin's receivers report no duplicate of a single byte (tcp_input()).
 */
static __always_inline void lost_by_dsack(struct record *record,
					  const struct ingress *ingress,
					  __u32 next, const struct ack *ack,
					  const struct packet *packet,
					  __u32 una, struct settled *settled)
{
	settled->lost_start = later(packet->start, una);
	settled->lost_end = packet->seq;
	if (packet->seq - packet->start == 1 && !ingress->reports_a_byte)
		settled->lost_end = settled->lost_start;
	if (!ack->duplicate)
		return;
	if (!before(ack->duplicate_start, packet->seq)) {
		settled->lost_end = settled->lost_start;
	} else if (!after(ack->duplicate_end, packet->start)) {
		if (!is_of_earlier_bundle(record, next, ack, una,
					  packet->start))
			settled->lost_end = settled->lost_start;
	} else if (after(ack->duplicate_start, settled->lost_start)) {
		settled->lost_end = earlier(packet->seq, ack->duplicate_start);
	} else {
		settled->lost_start =
			later(settled->lost_start, ack->duplicate_end);
	}
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
 * Is a duplicate reported of what was sent? One of anything else, as of numbers
 * that somebody on the path has changed, tells nothing of the receiver.
 */
static __always_inline bool is_of_ours(const struct ack *ack, __u32 oldest_byte,
				       __u32 end)
{
	return ack->duplicate && !before(ack->duplicate_start, oldest_byte) &&
	       !after(ack->duplicate_end, end);
}

/* What was deemed lost by now can turn out to be late no more. */
static __always_inline void forget_pending(struct ingress *ingress)
{
	ingress->pending = (struct pending){};
	WRITE_ONCE(ingress->pending.since, (__u32)now_us());
}

/*
 * The rule that the options ask for. Without SACK no report can come, and the
 * published rule is what bundling to such peers is asked for with.
 */
static __always_inline enum loss_rule asked_rule(const struct flow *flow)
{
	enum loss_rule asked = READ_ONCE(flow->options.loss_rule);

	if (asked == LOSS_RULE_LEARNING && flow->options.without_sack &&
	    flow->sack == SACK_MISSING)
		return LOSS_RULE_ACK;
	return asked;
}

/*
 * Does this receiver report duplicates? A report shows it at once, also after
 * it was taken for one that does not. Where the rule is asked for anew, what
 * was found before is in no doubt. A global function, as the verifier is not to
 * follow each case.
 */
__noinline int choose_rule(struct flow *flow, const struct ack *ack,
			   bool reported)
{
	struct ingress *ingress;
	enum loss_rule asked;

	if (!flow || !ack)
		return 0;
	ingress = &flow->ingress;
	asked = asked_rule(flow);

	if (ingress->asked_rule != asked) {
		ingress->asked_rule = asked;
		WRITE_ONCE(ingress->rule, asked);
		ingress->silent = 0;
		forget_pending(ingress);
	}
	if (!reported)
		return 0;
	if (asked == LOSS_RULE_LEARNING)
		WRITE_ONCE(ingress->rule, LOSS_RULE_DSACK);
	if (ack->duplicate_end - ack->duplicate_start == 1)
		ingress->reports_a_byte = true;
	return 0;
}

/*
 * The ACK of a bundle has no report. Is it certain that the receiver had some
 * of what the bundle brought again? Then one was due. After enough of them the
 * receiver makes none, and what seemed lost by its silence most likely was not.
 * A global function, as the verifier is not to follow each case.
 */
__noinline int note_silence(struct ingress *ingress, bool is_certain)
{
	if (!ingress || ingress->rule != LOSS_RULE_LEARNING)
		return 0;
	ingress->silent += is_certain ? CERTAIN_POINTS : 1;
	if (ingress->silent < LEARN_FROM * CERTAIN_POINTS)
		return 0;
	WRITE_ONCE(ingress->rule, LOSS_RULE_NONE);
	forget_pending(ingress);
	return 0;
}

/*
 * What is told of losses that end there, after what was told last: a number of
 * its own, and the end, in one word, so that who reads has both.
 */
static __always_inline __u64 next_call(__u64 last, __u32 end)
{
	return ((last >> 32) + 1) << 32 | end;
}

/* What is known of how late segments come ages with each one that is lost. */
static __always_inline void fade_lateness(struct ingress *ingress)
{
	WRITE_ONCE(ingress->late_us,
		   ingress->late_us - ingress->late_us / LATE_FADES);
}

/* Has nobody answered yet for losses that were found? */
static __always_inline bool is_waiting(const struct flow *flow)
{
	return flow->ingress.found.hidden !=
	       READ_ONCE(flow->egress.answered.hidden);
}

/*
 * Segments are deemed lost, by this acknowledgement; it may yet turn out that
 * they were late.
 */
static __always_inline void note_pending(struct flow *flow, __u32 by,
					 const struct hidden *hidden)
{
	struct ingress *ingress = &flow->ingress;

	if (!hidden->segments)
		return;
	if (!is_waiting(flow) && !ingress->doubts.segments)
		forget_pending(ingress);
	ingress->pending.segments += hidden->segments;
	ingress->lost_by = by;
}

/* Lost segments up to end have come that TCP has retransmitted. */
static __always_inline void call_known(struct flow *flow, __u32 end)
{
	struct ingress *ingress = &flow->ingress;

	WRITE_ONCE(ingress->found.known, next_call(ingress->found.known, end));
}

/* Losses that a bundle hid, up to end, are found, or known to be such. */
static __always_inline void count_hidden(struct flow *flow,
					 const struct hidden *hidden, __u32 end)
{
	struct ingress *ingress = &flow->ingress;

	if (hidden->retransmitted)
		call_known(flow, end);
	if (!hidden->segments)
		return;
	ADD(flow, hidden_losses, hidden->segments);
	ADD(flow, repaired_bytes, hidden->bytes);
	ADD(flow, saved_us, hidden->saved_us);
	ingress->pending.saved_us += hidden->saved_us;
	fade_lateness(ingress);
	PUBLISH(ingress->found.hidden, next_call(ingress->found.hidden, end));
}

/* Whose arrival does an ACK tell that ends with a bundle's packet? */
enum arrived {
	BUNDLE_CAME,
	RETRANSMISSION_CAME,
	BOTH_CAME, /* and the bundle's own ACK never did */
	EITHER_CAME, /* it is not known which */
	ANOTHER_CAME, /* behind a gap; or what told of the bundle did not */
};

/*
 * What comes behind a gap has the receiver forget the report that it has yet to
 * send (tcp_data_queue()): the ACK that answers it tells nothing. Nor does the
 * silence of one that has itself come behind a gap: its peer's segment before
 * may have had the report, and be lost.
 *
 * Where TCP has retransmitted the packet's segment, mostly as a probe of the
 * tail (RFC 8985, section 7), what came behind a gap needed the bundle to be
 * acknowledged. If the segment's own bytes are reported, the retransmission
 * brought them again, and what the bundle's ACK would have reported is not
 * known: it may have been delayed until then. Else timestamps tell, if the
 * bundle left before all that was retransmitted. That of a packet that comes in
 * order is echoed from then on (RFC 7323, section 4.3): an older echo is that
 * of what came before.
 *
 * A global function, as the verifier is not to follow each case.
 */
__noinline int tell_arrival(struct egress *egress, struct ingress *ingress,
			    const struct ack *ack, const struct packet *packet,
			    __u32 una)
{
	__u32 time, next;

	if (!egress || !ingress || !ack || !packet)
		return EITHER_CAME;
	time = READ_ONCE(egress->retrans.time);
	next = READ_ONCE(egress->retrans.next);
	if ((ingress->sacked.answered || ack->behind_gap) && !ack->duplicate)
		return ANOTHER_CAME;
	if (!(packet->how & RETRANSMITTED))
		return BUNDLE_CAME;
	if (is_sacked(&ingress->sacked, packet->slot))
		return EITHER_CAME;
	if (ack->duplicate && !before(ack->duplicate_start, packet->seq))
		return BOTH_CAME;
	if (!time || !ack->echo || after(packet->end, next))
		return EITHER_CAME;
	if (!before(ack->echo, time))
		return RETRANSMISSION_CAME;
	if (packet->end == next && !after(packet->start, una) &&
	    before(ack->echo, READ_ONCE(egress->retrans.newest_time)))
		return RETRANSMISSION_CAME;
	return BUNDLE_CAME;
}

static __always_inline void add_hidden(struct hidden *sum,
				       const struct hidden *hidden)
{
	sum->segments += hidden->segments;
	sum->bytes += hidden->bytes;
	sum->saved_us += hidden->saved_us;
	sum->retransmitted |= hidden->retransmitted;
}

/*
 * Once the receiver is known to make reports, its silence so far meant losses.
 * If it makes none, losses until then are unknown, and no reaction follows.
 * A global function, as the verifier is not to follow each case.
 */
__noinline int settle_doubts(struct flow *flow)
{
	struct ingress *ingress;

	if (!flow)
		return 0;
	ingress = &flow->ingress;
	if (ingress->rule == LOSS_RULE_LEARNING)
		return 0;
	if (ingress->rule == LOSS_RULE_DSACK)
		count_hidden(flow, &ingress->doubts, ingress->doubts_end);
	ingress->doubts = (struct hidden){};
	return 0;
}

/* An ACK that ends with a bundle's packet. */
static __always_inline void find_hidden(struct flow *flow,
					struct bpf_tcp_sock *tp, __u32 next,
					const struct ack *ack, bool reported,
					const struct packet *packet, __u32 una,
					struct settled *settled)
{
	struct ingress *ingress = &flow->ingress;
	struct record *record = &flow->egress.record;
	struct hidden hidden = {};
	enum arrived arrived;

	arrived = tell_arrival(&flow->egress, ingress, ack, packet, una);
	if (arrived == BUNDLE_CAME && !reported)
		note_silence(ingress, after(una, packet->start));
	settle_doubts(flow);
	if ((arrived == BUNDLE_CAME || arrived == BOTH_CAME) &&
	    packet->how & RETRANSMITTED)
		note_arrival(ingress, packet->start, packet->end, settled->mss,
			     packet->how);
	if ((arrived != BUNDLE_CAME && arrived != EITHER_CAME) ||
	    !after(packet->seq, una))
		return; /* it tells nothing of what was redundant */
	if (ingress->rule == LOSS_RULE_NONE)
		return;
	if (ingress->rule == LOSS_RULE_ACK)
		lost_by_ack(packet, una, settled);
	else
		lost_by_dsack(record, ingress, next, ack, packet, una, settled);
	count_lost(record, ingress, settled, &hidden);
	if (ingress->rule != LOSS_RULE_ACK && arrived == BUNDLE_CAME)
		hidden.saved_us = hidden.segments * saved_us(tp, packet->sent);
	note_pending(flow, ack->ack, &hidden);
	if (ingress->rule == LOSS_RULE_LEARNING) {
		add_hidden(&ingress->doubts, &hidden);
		ingress->doubts_end = settled->lost_end;
		settled->in_doubt = true;
		return;
	}
	count_hidden(flow, &hidden, settled->lost_end);
}

#endif /* PILLION_HIDDEN_LOSS_H */
