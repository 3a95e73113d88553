/* SPDX-License-Identifier: GPL-2.0-only */
/* Processes the ACKs of covered connections. */
#ifndef PILLION_PROCESS_ACK_H
#define PILLION_PROCESS_ACK_H

#include "../policy/governor.h"
#include "../loss/copy_loss.h"
#include "../loss/reordering.h"
#include "../tx/auto.h"
#include "../tx/copies.h"
#include "../sampling/latency.h"

/*
 * Returns true if the ACK reaches the end of the last retransmission with a
 * bundle.
 */
static __always_inline bool covers_piggyback(struct flow *flow,
					     const struct ack *ack, __u32 una)
{
	const struct egress *egress = &flow->egress;

	if (flow->ingress.piggyback_checked ==
	    READ_ONCE(egress->piggyback_count))
		return false;
	order_accesses();
	return before(una, READ_ONCE(egress->piggyback_start)) &&
	       !before(ack->ack, READ_ONCE(egress->piggyback_end));
}

/*
 * Handles the ACK of a retransmission with a bundle. Bundled segments that are
 * not reported as duplicates were lost; also by the published rule, because the
 * ACK covers several segments. TCP has already reduced its window for the
 * retransmitted segment.
 *
 * But TCP sent the others only once, and treats their acknowledgement as that
 * of the originals. The time-out looks spurious (F-RTO, RFC 5682), and TCP
 * undoes the reduction. Then a reaction is due.
 */
static __always_inline void check_piggybacked(struct flow *flow, __u32 una,
					      const struct ack *ack,
					      struct ack_range *range)
{
	struct record *record = &flow->egress.record;
	struct ingress *ingress = &flow->ingress;
	struct hidden_losses hidden = {};
	__u32 start, end;

	/* Before its range: a newer range is then checked again. */
	ingress->piggyback_checked = LOAD_ACQUIRE(flow->egress.piggyback_count);
	start = READ_ONCE(flow->egress.piggyback_start);
	end = READ_ONCE(flow->egress.piggyback_end);
	if (ingress->loss_rule == LOSS_RULE_NONE)
		return;
	range->lost_start = start;
	range->lost_end = end;
	if (ack->duplicate && before(ack->duplicate_start, end) &&
	    after(ack->duplicate_end, start)) {
		/* If the middle is reported, both sides were lost. */
		if (after(ack->duplicate_start, start))
			range->lost_end = ack->duplicate_start;
		else
			range->lost_start = ack->duplicate_end;
	}
	count_lost(record, ingress, range, &hidden);
	if (!hidden.segments)
		return;
	ADD(flow, piggyback_repaired_segments, hidden.segments);
	/*
	 * `una`, not the ACK's number: a later DSACK may report the
	 * retransmission.
	 */
	note_pending(flow, una, &hidden);
	report_retransmitted_losses(flow, end);
}

/* Records the packets that an ACK acknowledges selectively. */
static __always_inline void note_sacked(struct flow *flow, __u32 next,
					const struct header_options *options,
					const struct ack *ack, __u32 mss)
{
	struct record *record = &flow->egress.record;
	__u32 end = option_word(options, ack->first_block + 4);
	struct packet packet = {};

	mark_blocks(&flow->ingress.sacked, record, options, ack);
	find_packet(record, next, end, &packet);
	if (packet.end == end && !(packet.flags & RETRANSMITTED))
		note_arrival(&flow->ingress, packet.start, end, mss,
			     packet.flags);
}

/* Drops loss state from before a byte; suspected losses may be older. */
static __always_inline void
forget_losses(struct ingress *ingress, __u32 oldest_byte, __u32 oldest_in_doubt)
{
	if (before(ingress->run.start, oldest_byte))
		ingress->run.start = ingress->run.end = oldest_byte;
	clamp_seq(&ingress->bundle_end, oldest_byte);
	clamp_seq(&ingress->suspected_losses_end, oldest_in_doubt);
}

/* Resolves the segments that an ACK acknowledges or reports. */
static __always_inline void
process_ack(struct flow *flow, struct bpf_tcp_sock *btp, const struct ack *ack,
	    const struct header_options *options, __u32 next_slot)
{
	struct record *record = &flow->egress.record;
	struct ingress *ingress = &flow->ingress;
	__u32 record_end_seq = first_byte(slot(record, next_slot));
	__u32 highest_acked = highest_ack(flow, btp->snd_una, record_end_seq);
	struct ack_range range = {};
	struct packet packet = {};
	bool reported, is_of_copy;
	__u32 oldest_byte, segments_before;

	reported = reports_sent_data(ack, oldest_valid_seq(record, next_slot),
				     record_end_seq);
	choose_loss_rule(flow, ack, reported);
	range.first_slot = find_segment(record, next_slot, highest_acked);
	forget_sacked(&ingress->sacked, range.first_slot);
	ingress->sacked.first_block_is_new = 0;
	if (ack->blocks)
		note_sacked(flow, next_slot, options, ack, btp->mss_cache);
	is_of_copy = reported && is_copy_report(record, next_slot, ack);
	if (is_of_copy)
		note_copy_report(ingress);
	if (!after(ack->ack, highest_acked)) {
		if (reported && !is_of_copy)
			handle_reordering(flow, next_slot, ack, btp->mss_cache,
					  btp->srtt_us >> 3);
		return;
	}
	if (after(ack->ack, record_end_seq)) {
		/* Unrecorded segments had no bundle. */
		forget_losses(ingress, highest_acked - MAX_SEQ_DISTANCE,
			      highest_acked - MAX_SEQ_DISTANCE);
		return;
	}
	find_packet(record, next_slot, ack->ack, &packet);
	range.is_last_complete = packet.end == ack->ack;
	range.is_end_acked = range.is_last_complete &&
			     !(packet.flags & COPIED &&
			       replaces_plain_ack(ingress, is_of_copy));
	range.end_slot = packet.slot + range.is_last_complete;
	range.lost_start = range.lost_end = highest_acked;
	range.mss = btp->mss_cache;
	if (covers_piggyback(flow, ack, highest_acked))
		check_piggybacked(flow, highest_acked, ack, &range);
	else if (packet.end == ack->ack && redundant_len(packet.flags))
		find_hidden(flow, btp, next_slot, ack, reported, &packet,
			    highest_acked, &range);
	segments_before = ingress->run_segments;
	resolve_segments(record, ingress, &range);
	count_ends(record, ingress, &range);
	expect_reports(ingress, range.copied * (flow->options.copies ?: 1));
	count_copy_loss(flow, ack->ack);
	WRITE_ONCE(ingress->acked, ack->ack);
	/* The record has no older segments. */
	oldest_byte = oldest_valid_seq(record, next_slot);
	forget_losses(ingress, oldest_byte, oldest_byte - MAX_SEQ_DISTANCE);
	if (flow->options.level == LEVEL_ADAPTIVE)
		WRITE_ONCE(ingress->level,
			   choose_level(ingress, flow->options.target_ppm, 0));
	else if (flow->options.level == LEVEL_AUTO)
		choose_redundancy(flow, segments_before,
				  (__u32)READ_ONCE(flow->egress.itt)
					  << ITT_UNIT_BITS,
				  btp->srtt_us >> 3);
}

/*
 * Sets after_gap if data is missing right before the peer's segment. A segment
 * that follows arrived data lacks no report, even if TCP waits for older data,
 * or for the application.
 */
static __always_inline void note_gap(struct ingress *ingress, struct ack *ack,
				     __u32 rcv_nxt)
{
	__u32 end = rcv_nxt;

	if (ingress->peer_end_valid)
		end = later(ingress->peer_end, end);
	ingress->peer_end_valid = true;

	/* The sign bit: no branch, which the verifier would follow twice. */
	ack->after_gap = (end - ack->seq) >> 31;
	ingress->peer_end = later(end, ack->end);
}

/*
 * Returns true for a segment outside the receive window (tcp_sequence()). A
 * global function, so that the verifier does not follow every comparison.
 */
__noinline int is_outside_window(__u32 seq, __u32 end, __u32 next, __u32 wup,
				 __u32 limit)
{
	return before(end, wup) || after(seq, later(next, limit));
}

/*
 * Returns true if TCP accepts the packet's acknowledgement. A forger would have
 * to guess the receive window.
 */
static __always_inline bool is_acceptable(struct __sk_buff *skb,
					  const struct segment *seg,
					  const struct tcp_sock *tp,
					  struct ack *ack)
{
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = (void *)(long)skb->data + seg->tcp_off;
	__u32 seq, len;

	if ((void *)(tcp + 1) > end)
		return false;
	seq = bpf_ntohl(tcp->seq);
	len = skb->len - (seg->tcp_off + tcp->doff * 4) + tcp->fin;
	ack->seq = seq;
	ack->end = seq + len;
	return !is_outside_window(seq, seq + len, tp->rcv_nxt, tp->rcv_wup,
				  tp->rcv_wup + tp->rcv_wnd);
}

/* Processes an ACK before TCP does. */
static __always_inline void on_ack(struct flow *flow, const struct bpf_sock *sk,
				   struct bpf_tcp_sock *btp,
				   struct tcp_sock *tp, struct ack *ack,
				   const struct header_options *options,
				   struct observation *observation)
{
	struct ingress *ingress = &flow->ingress;
	__u32 epoch = READ_ONCE(flow->egress.path.epoch);

	if (!lock(&ingress->busy)) {
		ADD(flow, acks_unparsed, 1);
		return;
	}
	sample_rtt(flow, sk, btp, tp);
	if (observation)
		observe_ack(observation, flow, btp, tp, ack);
	WRITE_ONCE(ingress->last_ack_unread, ack->has_invalid_options);
	if (ingress->epoch != epoch) {
		ingress->largest_bundle = 0;
		STORE_RELEASE(ingress->epoch, epoch);
	}
	if (ack->has_invalid_options) {
		ADD(flow, acks_unparsed, 1);
	} else {
		note_gap(ingress, ack, btp->rcv_nxt);
		process_ack(flow, btp, ack, options,
			    LOAD_ACQUIRE(flow->egress.record.next));
	}
	if (observation)
		observation->counters = flow->counters;
	unlock(&ingress->busy);
}

/*
 * Handles a packet whose IP header is not parsed, such as one with IPv6
 * extension headers. It may have an ACK with a report.
 */
static __always_inline void on_unparsed_packet(struct flow *flow)
{
	struct ingress *ingress = &flow->ingress;

	ADD(flow, acks_unparsed, 1);
	if (!lock(&ingress->busy))
		return;
	WRITE_ONCE(ingress->last_ack_unread, 1);
	unlock(&ingress->busy);
}

#endif /* PILLION_PROCESS_ACK_H */
