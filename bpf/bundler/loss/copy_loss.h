/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Losses that copies hid.
 *
 * A receiver reports each packet that arrives again as a duplicate (RFC 2883).
 * A missing report means that one of the packets was lost, or the ACK with the
 * report. So losses are estimated: the reports due, reduced by the share of
 * ACKs that do not arrive, minus those received. A loss counts once the excess
 * is larger than the standard deviation of lost ACKs, plus MISSING_AT_RANDOM,
 * the reports that are on their way, and those that were due before that share
 * was known: at first, all ACKs seem to arrive. Segments that needed another
 * repair are not included; that repair shows their losses. If no report of the
 * first copies arrives, the receiver is assumed to send none.
 */
#ifndef PILLION_COPY_LOSS_H
#define PILLION_COPY_LOSS_H

#include "hidden_loss.h"

#define MISSING_AT_RANDOM   2
#define MAX_DELAYED_REPORTS 8

#define PLAIN_ACKS_HALF 128 /* half of 255, for ingress.plain_acks */

#define REPORT_ONE   ENDS /* a report, in units of struct copy_reports */
#define FADE_REPORTS (512 * REPORT_ONE)

/* Adds `copies` due reports of a segment whose packet arrived. */
static __always_inline void expect_reports(struct ingress *ingress,
					   __u32 copies)
{
	struct copy_reports *reports = &ingress->copy_reports;
	__u32 acked = ends_acknowledged(ingress);

	reports->expected += copies * acked;
	/* Twice: of the reports, and of the share of ACKs that arrive. */
	reports->variance += 2 * copies * acked * (ENDS - acked);
	if (reports->expected < FADE_REPORTS)
		return;
	reports->expected /= 2;
	reports->received /= 2;
	reports->counted /= 2;
	reports->variance /= 2;
}

/*
 * Returns true if the ACK reports a copy: a whole packet of which there was
 * more than one. A bundle's own report ends before the segment.
 */
static __always_inline bool is_copy_report(struct record *record, __u32 next,
					   const struct ack *ack)
{
	struct packet packet = {};

	find_packet(record, next, ack->duplicate_end, &packet);
	return packet.flags & COPIED && !(packet.flags & RETRANSMITTED) &&
	       packet.end == ack->duplicate_end &&
	       packet.start == ack->duplicate_start;
}

/*
 * Notes the first ACK that acknowledges a copied segment; returns true if it is
 * a report after a lost plain ACK. A receiver that acknowledges at once sends
 * two ACKs: if the report acknowledged the segment as well, more ACKs would
 * seem to arrive than do. One that delays ACKs sends only the report.
 */
static __always_inline bool replaces_plain_ack(struct ingress *ingress,
					       bool is_report)
{
	__u8 plain = ingress->plain_acks;

	if (is_report)
		plain -= plain / 8;
	else
		plain += (255 - plain) / 8;
	ingress->plain_acks = plain;
	return is_report && plain >= PLAIN_ACKS_HALF;
}

/* More reports than due, as of a duplicating path, never wrap the number. */
static __always_inline void note_copy_report(struct ingress *ingress)
{
	if (ingress->copy_reports.received < FADE_REPORTS)
		ingress->copy_reports.received += REPORT_ONE;
}

/* The number of reports that may be late at once because copies are delayed. */
static __always_inline __u32 delayed_reports(const struct flow *flow)
{
	return flow->options.copy_delay_ms ? MAX_DELAYED_REPORTS : 0;
}

/*
 * Counts a loss if more reports are missing than lost ACKs explain. A global
 * function, so that the verifier does not follow every case.
 */
__noinline int count_copy_loss(struct flow *flow, __u32 acked)
{
	struct copy_reports *reports;
	__s32 missing;

	if (!flow)
		return 0;
	reports = &flow->ingress.copy_reports;
	if (flow->ingress.loss_rule == LOSS_RULE_LEARNING) {
		if (reports->expected >=
		    (MAX_MISSING_REPORTS + delayed_reports(flow)) * REPORT_ONE)
			WRITE_ONCE(flow->ingress.loss_rule, LOSS_RULE_NONE);
		return 0;
	}
	missing = reports->expected - reports->received - reports->counted;
	missing -= (MISSING_AT_RANDOM + (flow->options.copies ?: 1) +
		    (ENDS - ends_acknowledged(&flow->ingress)) / 2 +
		    delayed_reports(flow)) *
		   REPORT_ONE;
	if (missing <= 0)
		return 0;
	if ((__u32)missing * missing <= reports->variance)
		return 0;
	reports->counted += REPORT_ONE;
	ADD(flow, copy_losses, 1);
	forget_pending(&flow->ingress);
	STORE_RELEASE(flow->ingress.notice.hidden,
		      next_notice(flow->ingress.notice.hidden, acked));
	return 1;
}

#endif /* PILLION_COPY_LOSS_H */
