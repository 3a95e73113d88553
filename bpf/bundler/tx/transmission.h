/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What TCP sends: each segment, once, as it leaves TCP's hands.
 *
 * A cgroup program at egress sees every packet before any device does, as a
 * rule within TCP's own call and so with the socket locked. There, TCP's state
 * tells new data from old: it moves snd_nxt once the packet has passed, and
 * total_retrans before a retransmission is passed on. Here the record is
 * written; and what may be bundled is announced to the program at the device,
 * which bundles nothing else: not the same packet once more at the next device,
 * nor anything once this program is gone.
 */
#ifndef PILLION_TRANSMISSION_H
#define PILLION_TRANSMISSION_H

#include "history.h"
#include "../maps.h"
#include "path.h"
#include "../loss/reaction.h"
#include "sending_rate.h"
#include "../tcp_options.h"
#include "truesize.h"

/* A packet that leaves TCP, as it is told apart. */
enum transmission {
	IS_NEW,
	IS_RETRANSMISSION,
	IS_LATE, /* it waited on the way: TCP has gone on meanwhile */
};

static __always_inline enum transmission tell(const struct egress *egress,
					      struct bpf_tcp_sock *tp,
					      const struct segment *seg)
{
	if (seg->seq == tp->snd_nxt)
		return IS_NEW;
	if (tp->total_retrans != egress->retransmissions &&
	    !after(seg->seq + seg->len, tp->snd_nxt))
		return IS_RETRANSMISSION;
	return IS_LATE;
}

static __always_inline void refresh(struct egress *egress, __u32 snd_una)
{
	if (before(record_end(&egress->record), snd_una - OLD)) {
		begin_record(&egress->record, snd_una);
		egress->kept = 0;
	}
	/* Losses that are in doubt may be older than what is acknowledged. */
	keep_fresh(&egress->reduced_at, snd_una - OLD);
	keep_fresh(&egress->firm_at, snd_una - OLD);
	keep_fresh(&egress->undone_at, snd_una - OLD);
	keep_fresh(&egress->trusted_end, snd_una - OLD);
	keep_fresh(&egress->asked_trusted, snd_una - OLD);
	keep_fresh(&egress->path.round_end, snd_una);
	keep_fresh(&egress->path.probe_end, snd_una);
	if (before(egress->retrans.end, snd_una - OLD)) {
		WRITE_ONCE(egress->retrans.start, snd_una - OLD);
		egress->retrans.end = snd_una - OLD;
	}
	if (before(egress->along_end, snd_una)) {
		egress->along_seq = snd_una;
		egress->along_start = snd_una;
		egress->along_end = snd_una;
	}
}

/*
 * Takes back what TCP turned out not to have sent: where a device refuses a
 * packet, it sends the same again later, and maybe more with it.
 */
static __always_inline void drop_unsent(struct egress *egress, __u32 snd_nxt)
{
	struct record *record = &egress->record;
	__u32 unsent = record_end(record) - snd_nxt, at;

	if (!after(record_end(record), snd_nxt))
		return;
	egress->kept -= unsent < egress->kept ? unsent : egress->kept;
	at = find_segment(record, record->next, snd_nxt);
	if (slot(record, at)->seq != snd_nxt)
		WRITE_ONCE(slot(record, ++at)->seq, snd_nxt);
	PUBLISH(record->next, at);
}

/*
 * The announced segment enters the record; false if there is no place for it.
 * What TCP sent since the record's end, and did not show here, stands in it as
 * one segment.
 */
static __always_inline bool record_new(struct egress *egress,
				       const struct segment *seg, __u32 snd_una,
				       bool small)
{
	struct record *record = &egress->record;
	__u64 now = now_us();
	bool gap;

	drop_unsent(egress, seg->seq);
	gap = record_end(record) != seg->seq;
	egress->announced.kept = gap ? 0 : egress->kept;
	egress->kept = 0;
	if (is_full(record, gap ? 2 : 1, snd_una, egress->longest))
		return false;
	if (gap)
		add_segment(record, seg->seq, 0, now);
	add_segment(record, seg->seq + seg->len, small ? SMALL : 0, now);
	return true;
}

/*
 * TCP retransmits what lies between start and end, in one packet or in several,
 * of which it is not known where they end. A global function, as the verifier
 * is to look at the loop once.
 */
__noinline int mark_retransmitted(struct record *record, __u32 start, __u32 end,
				  bool several, struct lost_bundles *lost)
{
	struct sent_segment *segment;
	__u32 at, i, size, ended;

	if (!record || !lost)
		return 0;
	at = find_segment(record, record->next, start);
	for (i = 0; i < RECORD && at != record->next; i++, at++) {
		segment = slot(record, at);
		if (!before(segment->seq, end))
			break;
		/* No branch, of which the verifier would follow both sides. */
		ended = several | (slot(record, at + 1)->seq == end);
		mark(segment, ended * ENDED_OLD);
		if (segment->how & RETRANSMITTED)
			continue;
		mark(segment, RETRANSMITTED);
		if (!(segment->how & REDUNDANT))
			continue;
		size = slot(record, at + 1)->seq -
		       packet_start(segment->seq, segment->how);
		lost->last = segment->seq;
		if (!lost->smallest || size < lost->smallest)
			lost->smallest = size;
	}
	return 0;
}

/*
 * The first of all that is retransmitted until it is acknowledged tells the
 * others' time from that of the originals. Who reads sees a new time only with
 * its start: an old one is earlier.
 */
static __always_inline void note_retransmission(struct __sk_buff *skb,
						struct egress *egress,
						const struct segment *seg,
						struct bpf_tcp_sock *tp)
{
	if (!before(tp->snd_una, egress->retrans.end)) {
		WRITE_ONCE(egress->retrans.start, tp->snd_una);
		WRITE_ONCE(egress->retrans.next, tp->snd_nxt);
		WRITE_ONCE(egress->retrans.newest_time, egress->newest_time);
		PUBLISH(egress->retrans.time,
			own_timestamp(skb, seg->tcp, seg->payload));
	}
	egress->retrans.end = later(egress->retrans.end, seg->seq + seg->len);
}

/*
 * TCP has retransmitted more than was seen, and a packet has left unread: what
 * that was does not show, nor when it left. It may be any of what is not
 * acknowledged. What has not come here has not left either: a filter refused
 * it; or it is a handshake's, repeated.
 */
static __always_inline void note_unseen(struct egress *egress,
					struct bpf_tcp_sock *tp, __u32 seen)
{
	__u32 snd_una = tp->snd_una, end = record_end(&egress->record);
	__u32 all = tp->total_retrans - egress->retransmissions;
	struct lost_bundles lost = {};

	egress->retransmissions = tp->total_retrans;
	if (all == seen || !READ_ONCE(egress->unread))
		return;
	WRITE_ONCE(egress->unread, 0);
	if (!before(snd_una, egress->retrans.end)) {
		WRITE_ONCE(egress->retrans.start, snd_una);
		WRITE_ONCE(egress->retrans.next, tp->snd_nxt);
	}
	PUBLISH(egress->retrans.time, 0);
	egress->retrans.end = later(egress->retrans.end, end);
	mark_retransmitted(&egress->record, snd_una, end, true, &lost);
}

static __always_inline void announce(struct egress *egress,
				     const struct segment *seg,
				     enum announced announced, __u32 varying,
				     __u32 room)
{
	egress->announced.seq = seg->seq;
	egress->announced.end = seg->seq + seg->len;
	egress->announced.varying = varying;
	egress->announced.room = room;
	WRITE_ONCE(egress->announced.kind, announced);
}

/* The segment announced last did not come to a device of ours. */
static __always_inline void close_announcement(struct flow *flow, __u32 snd_nxt)
{
	struct egress *egress = &flow->egress;

	if (egress->announced.kind == RETRANSMISSION)
		count(flow, OLD_DATA);
	else if (egress->announced.kind == NEW_DATA &&
		 before(egress->announced.seq, snd_nxt))
		count(flow, ELSEWHERE);
	egress->announced.kind = NOTHING;
}

/*
 * Does the connection send more than SO_MAX_PACING_RATE allows, headers and
 * redundant bytes included? TCP paces what it sends itself. A global function,
 * as the verifier is not to follow each case.
 */
__noinline int exceeds_pacing_rate(const struct sending *sending, __u64 limit,
				   __u64 rtt_us)
{
	return sending && limit < MAX_RATE &&
	       exceeds_rate(sending, now_us(), rtt_us, limit);
}

/* PACED or OVER_SHARE, if the connection sends as much as it may; or 0. */
static __always_inline __u8 find_excess(struct flow *flow,
					struct bpf_tcp_sock *tp,
					const struct tcp_sock *full)
{
	__u64 rtt_us = round_trip_us(tp);

	if (exceeds_pacing_rate(&flow->egress.sending,
				((struct sock *)full)->sk_max_pacing_rate,
				rtt_us))
		return PACED;
	return exceeds_share(flow, full, rtt_us) ? OVER_SHARE : 0;
}

/* TCP sends new data. */
static __always_inline void
transmit_new(struct __sk_buff *skb, struct flow *flow, struct bpf_tcp_sock *tp,
	     struct tcp_sock *full, const struct segment *seg,
	     enum outcome outcome)
{
	struct egress *egress = &flow->egress;
	__u32 varying = 0, room, counted = record_end(&egress->record);
	bool small = false;

	if (outcome == ELIGIBLE && !options_are_plain(skb, seg, &varying))
		outcome = TCP_OPTION;
	if (outcome == ELIGIBLE)
		small = seg->len + varying < tp->mss_cache &&
			seg->len < HISTORY_BYTES;
	/* All of it, or what came to be sent with it since it failed. */
	if (before(counted, seg->seq + seg->len)) {
		if (before(counted, seg->seq))
			counted = seg->seq;
		if (!flow->off)
			ADD(flow, new_bytes, seg->seq + seg->len - counted);
	}
	if (!record_new(egress, seg, tp->snd_una, small) && outcome == ELIGIBLE)
		outcome = UNWATCHED;
	if (flow->off)
		return;
	if (outcome != ELIGIBLE) {
		count(flow, outcome);
		return;
	}
	if (!small) {
		count(flow, FULL_SIZE);
		return;
	}
	egress->newest_time = own_timestamp(skb, seg->tcp, seg->payload);
	room = room_in_memory(full, egress, seg);
	egress->announced.in_doubt = doubts_timeout(full);
	egress->announced.excess = find_excess(flow, tp, full);
	announce(egress, seg, NEW_DATA, varying, room);
}

/*
 * TCP retransmits. What is to follow ends within the peer's window, which may
 * have shrunk since it was sent.
 */
static __always_inline void
transmit_retransmission(struct __sk_buff *skb, struct flow *flow,
			struct bpf_tcp_sock *tp, const struct tcp_sock *full,
			const struct segment *seg, enum outcome outcome)
{
	__u32 packets = skb->gso_size ? skb->gso_segs : 1;
	struct egress *egress = &flow->egress;
	struct lost_bundles lost = {};
	__u32 varying = 0, room, window;

	note_unseen(egress, tp, packets);
	egress->retransmitted += packets;
	note_retransmission(skb, egress, seg, tp);
	mark_retransmitted(&egress->record, seg->seq, seg->seq + seg->len,
			   skb->gso_size, &lost);
	note_lost_bundles(&egress->path, &flow->ingress, &lost, tp->snd_nxt);
	if (flow->off)
		return;
	if (outcome != ELIGIBLE || !flow->options.retransmissions ||
	    !options_are_plain(skb, seg, &varying) ||
	    find_excess(flow, tp, full)) {
		count(flow, OLD_DATA);
		return;
	}
	room = room_to_retransmit(egress, seg);
	window = tp->snd_una + full->snd_wnd - seg->seq;
	announce(egress, seg, RETRANSMISSION, varying,
		 window < room ? window : room);
}

/*
 * Measures what is sent for TFRC-SP, whose rate counts all of it: whatever the
 * reaction, so that nobody who changes it in between is measured by less.
 */
static __always_inline void measure(struct __sk_buff *skb, struct flow *flow,
				    struct bpf_tcp_sock *tp,
				    const struct segment *seg)
{
	struct sent sent = {.payload = seg->len};

	sent.packets = skb->gso_size ? skb->gso_segs : 1;
	sent.wire = seg->len + sent.packets * (seg->payload - seg->ip);
	note_sent(&flow->egress.sending, now_us(), round_trip_us(tp), &sent);
}

/*
 * TCP sends one segment with data; parsed is what the headers say against
 * bundling.
 */
static __always_inline void
transmit(struct __sk_buff *skb, struct flow *flow, struct bpf_tcp_sock *tp,
	 struct tcp_sock *full, const struct segment *seg, enum outcome parsed)
{
	close_announcement(flow, tp->snd_nxt);
	switch (tell(&flow->egress, tp, seg)) {
	case IS_NEW:
		note_unseen(&flow->egress, tp, 0);
		transmit_new(skb, flow, tp, full, seg, parsed);
		break;
	case IS_RETRANSMISSION:
		transmit_retransmission(skb, flow, tp, full, seg, parsed);
		break;
	default:
		note_unseen(&flow->egress, tp, 0);
		if (!flow->off)
			count(flow, WAITED);
	}
	measure(skb, flow, tp, seg);
}

#endif /* PILLION_TRANSMISSION_H */
