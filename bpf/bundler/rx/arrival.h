/* SPDX-License-Identifier: GPL-2.0-only */
/* An ACK arrives for a connection of ours. */
#ifndef PILLION_ARRIVAL_H
#define PILLION_ARRIVAL_H

#include "../policy/governor.h"
#include "../loss/reordering.h"
#include "../sampling/latency.h"

/*
 * Does the ACK reach the end of the last retransmission that others rode along
 * with?
 */
static __always_inline bool
is_of_retransmission(struct flow *flow, const struct ack *ack, __u32 una)
{
	const struct egress *egress = &flow->egress;

	return flow->ingress.along_judged != READ_ONCE(egress->along_count) &&
	       before(una, egress->along_start) &&
	       !before(ack->ack, egress->along_end);
}

/*
 * What rode along with a retransmission, and is not reported as duplicate, was
 * lost; by the published rule too, for the ACK covers several segments. TCP has
 * reduced its window already, for the segment that it retransmitted.
 *
 * But of the others it knows that it sent them once, and takes their
 * acknowledgement for that of the originals: the time-out looks spurious
 * (F-RTO, RFC 5682), and the reduction is undone. Then one is due.
 */
static __always_inline void judge_retransmission(struct flow *flow, __u32 una,
						 const struct ack *ack,
						 struct settled *settled)
{
	struct record *record = &flow->egress.record;
	__u32 start = flow->egress.along_start, end = flow->egress.along_end;
	struct ingress *ingress = &flow->ingress;
	struct hidden hidden = {};

	ingress->along_judged = READ_ONCE(flow->egress.along_count);
	if (ingress->rule == LOSS_RULE_NONE)
		return;
	settled->lost_start = start;
	settled->lost_end = end;
	if (ack->duplicate && before(ack->duplicate_start, end) &&
	    after(ack->duplicate_end, start)) {
		/* Of what is reported in the middle, both sides were lost. */
		if (after(ack->duplicate_start, start))
			settled->lost_end = ack->duplicate_start;
		else
			settled->lost_start = ack->duplicate_end;
	}
	count_lost(record, ingress, settled, &hidden);
	if (!hidden.segments)
		return;
	ADD(flow, repaired_along, hidden.segments);
	/* Not by the ACK: TCP has retransmitted what its report may be of. */
	note_pending(flow, una, &hidden);
	call_known(flow, end);
}

/* A packet has arrived behind a gap, and maybe others before it. */
static __always_inline void note_sacked(struct flow *flow, __u32 next,
					const struct tcp_options *options,
					const struct ack *ack, __u32 mss)
{
	struct record *record = &flow->egress.record;
	__u32 end = option_word(options, ack->first_block + 4);
	struct packet packet = {};

	mark_blocks(&flow->ingress.sacked, record, options, ack);
	find_packet(record, next, end, &packet);
	if (packet.end == end && !(packet.how & RETRANSMITTED))
		note_arrival(&flow->ingress, packet.start, end, mss,
			     packet.how);
}

/* What is known of losses before a byte; those in doubt may be older. */
static __always_inline void
forget_losses(struct ingress *ingress, __u32 oldest_byte, __u32 oldest_in_doubt)
{
	if (before(ingress->run.start, oldest_byte))
		ingress->run.start = ingress->run.end = oldest_byte;
	keep_fresh(&ingress->bundle_end, oldest_byte);
	keep_fresh(&ingress->doubts_end, oldest_in_doubt);
}

static __always_inline void
acknowledge(struct flow *flow, struct bpf_tcp_sock *tp, const struct ack *ack,
	    const struct tcp_options *options, __u32 next)
{
	struct record *record = &flow->egress.record;
	struct ingress *ingress = &flow->ingress;
	__u32 end = first_byte(slot(record, next));
	__u32 una = acked_so_far(flow, tp->snd_una, end);
	struct settled settled = {};
	struct packet packet = {};
	__u32 oldest_byte;
	bool reported;

	reported = is_of_ours(ack, first_known(record, next), end);
	choose_rule(flow, ack, reported);
	settled.from = find_segment(record, next, una);
	forget_sacked(&ingress->sacked, settled.from);
	ingress->sacked.answered = 0;
	if (ack->blocks)
		note_sacked(flow, next, options, ack, tp->mss_cache);
	if (!after(ack->ack, una)) {
		if (reported)
			come_late(flow, next, ack, tp->mss_cache,
				  tp->srtt_us >> 3);
		return;
	}
	if (after(ack->ack, end)) {
		/* What was not recorded was not bundled. */
		forget_losses(ingress, una - OLD, una - OLD);
		return;
	}
	find_packet(record, next, ack->ack, &packet);
	settled.ends_with = packet.end == ack->ack;
	settled.to = packet.slot + settled.ends_with;
	settled.lost_start = settled.lost_end = una;
	settled.mss = tp->mss_cache;
	if (is_of_retransmission(flow, ack, una))
		judge_retransmission(flow, una, ack, &settled);
	else if (packet.end == ack->ack && packet.how & REDUNDANT)
		find_hidden(flow, tp, next, ack, reported, &packet, una,
			    &settled);
	settle(record, ingress, &settled);
	count_ends(record, ingress, &settled);
	WRITE_ONCE(ingress->acked, ack->ack);
	/* Of what is older the record has no more. */
	oldest_byte = first_known(record, next);
	forget_losses(ingress, oldest_byte, oldest_byte - OLD);
	if (flow->options.level == LEVEL_ADAPTIVE)
		WRITE_ONCE(ingress->level,
			   choose_level(ingress, flow->options.target_ppm));
}

/*
 * Is something missing right before what the peer has sent? What follows on
 * what has come lacks nothing that tells of what it acknowledges, even where
 * TCP waits for something older, or for the application.
 */
static __always_inline void note_gap(struct ingress *ingress, struct ack *ack,
				     __u32 rcv_nxt)
{
	__u32 end = rcv_nxt;

	if (ingress->peer_known)
		end = later(ingress->peer_end, end);
	ingress->peer_known = true;

	/* No branch, of which the verifier would follow both sides. */
	ack->behind_gap = (end - ack->seq) >> 31;
	ingress->peer_end = later(end, ack->end);
}

/*
 * Does a segment lie outside the receive window (tcp_sequence())? A global
 * function, as the verifier is not to follow each comparison.
 */
__noinline int is_outside(__u32 seq, __u32 end, __u32 next, __u32 wup,
			  __u32 limit)
{
	return before(end, wup) || after(seq, later(next, limit));
}

/*
 * Does TCP take what the packet acknowledges? Who forges one that it takes has
 * to guess where the receive window is.
 */
static __always_inline bool is_acceptable(struct __sk_buff *skb,
					  const struct segment *seg,
					  const struct tcp_sock *tp,
					  struct ack *ack)
{
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = (void *)(long)skb->data + seg->tcp;
	__u32 seq, len;

	if ((void *)(tcp + 1) > end)
		return false;
	seq = bpf_ntohl(tcp->seq);
	len = skb->len - (seg->tcp + tcp->doff * 4) + tcp->fin;
	ack->seq = seq;
	ack->end = seq + len;
	return !is_outside(seq, seq + len, tp->rcv_nxt, tp->rcv_wup,
			   tp->rcv_wup + tp->rcv_wnd);
}

/* An ACK arrives, and TCP has not looked at it yet. */
static __always_inline void on_ack(struct flow *flow, const struct bpf_sock *sk,
				   struct bpf_tcp_sock *tp,
				   const struct tcp_sock *full, struct ack *ack,
				   const struct tcp_options *options,
				   struct observation *seen)
{
	struct ingress *ingress = &flow->ingress;
	__u32 epoch = READ_ONCE(flow->egress.path.epoch);

	if (!enter(&ingress->busy)) {
		ADD(flow, acks_unread, 1);
		return;
	}
	sample_rtt(flow, sk, tp, full);
	if (seen)
		observe_ack(seen, flow, tp, ack);
	WRITE_ONCE(ingress->unread, ack->unread);
	if (ingress->epoch != epoch) {
		ingress->through = 0;
		PUBLISH(ingress->epoch, epoch);
	}
	if (ack->unread) {
		ADD(flow, acks_unread, 1);
	} else {
		note_gap(ingress, ack, tp->rcv_nxt);
		acknowledge(flow, tp, ack, options,
			    READ_ONCE(flow->egress.record.next));
	}
	if (seen)
		seen->counters = flow->counters;
	leave(&ingress->busy);
}

/*
 * A packet arrives whose IP header is not read, as one with IPv6 extension
 * headers: it may have an ACK, and a report.
 */
static __always_inline void on_unread_packet(struct flow *flow)
{
	struct ingress *ingress = &flow->ingress;

	ADD(flow, acks_unread, 1);
	if (!enter(&ingress->busy))
		return;
	WRITE_ONCE(ingress->unread, 1);
	leave(&ingress->busy);
}

#endif /* PILLION_ARRIVAL_H */
