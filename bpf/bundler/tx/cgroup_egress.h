/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The segments that TCP sends, each one once, as it leaves TCP.
 *
 * A cgroup program at egress sees every packet before any device does, usually
 * within TCP's own call and with the socket locked. TCP's state then
 * distinguishes new data: it advances snd_nxt after the packet has passed, and
 * total_retrans before a retransmission. The program writes the record, and
 * announces a segment to the device program. That one bundles nothing else: not
 * the same packet again at the next device, and nothing once this program is
 * detached.
 */
#ifndef PILLION_CGROUP_EGRESS_H
#define PILLION_CGROUP_EGRESS_H

#include "copies.h"
#include "device_segments.h"
#include "history.h"
#include "../maps.h"
#include "plpmtu.h"
#include "../loss/reaction.h"
#include "sending_rate.h"
#include "../option_parser.h"
#include "truesize.h"

/* The kind of a packet that leaves TCP. */
enum segment_class {
	SEGMENT_NEW,
	SEGMENT_RETRANSMITTED,
	SEGMENT_STALE, /* delayed before this hook; TCP has sent more since */
};

static __always_inline enum segment_class
classify_segment(const struct egress *egress, struct bpf_tcp_sock *btp,
		 const struct segment *seg)
{
	if (seg->seq == btp->snd_nxt)
		return SEGMENT_NEW;
	if (btp->total_retrans != egress->retransmissions &&
	    !after(seg->seq + seg->len, btp->snd_nxt))
		return SEGMENT_RETRANSMITTED;
	return SEGMENT_STALE;
}

static __always_inline void refresh_marks(struct egress *egress, __u32 snd_una)
{
	if (before(record_end(&egress->record), snd_una - MAX_SEQ_DISTANCE)) {
		reset_record(&egress->record, snd_una);
		egress->stored_bytes = 0;
	}
	clamp_seq(&egress->counted_end, snd_una);
	/* Suspected losses may be older than snd_una. */
	clamp_seq(&egress->reduction_end, snd_una - MAX_SEQ_DISTANCE);
	clamp_seq(&egress->final_reduction_end, snd_una - MAX_SEQ_DISTANCE);
	clamp_seq(&egress->undone_reduction_end, snd_una - MAX_SEQ_DISTANCE);
	clamp_seq(&egress->left_to_tcp_end, snd_una - MAX_SEQ_DISTANCE);
	clamp_seq(&egress->prior_left_to_tcp_end, snd_una - MAX_SEQ_DISTANCE);
	clamp_seq(&egress->path.round_end, snd_una);
	clamp_seq(&egress->path.probe_end, snd_una);
	if (before(egress->retrans.end, snd_una - MAX_SEQ_DISTANCE)) {
		WRITE_ONCE(egress->retrans.snd_una_at_start,
			   snd_una - MAX_SEQ_DISTANCE);
		egress->retrans.end = snd_una - MAX_SEQ_DISTANCE;
	}
	if (before(egress->piggyback_end, snd_una)) {
		egress->piggyback_seq = snd_una;
		egress->piggyback_start = snd_una;
		egress->piggyback_end = snd_una;
	}
}

/*
 * Removes recorded data that TCP did not send after all. If a device refuses a
 * packet, TCP sends the same data again later, maybe with more.
 */
static __always_inline void drop_unsent(struct egress *egress, __u32 snd_nxt)
{
	struct record *record = &egress->record;
	__u32 unsent = record_end(record) - snd_nxt, at;

	if (!after(record_end(record), snd_nxt))
		return;
	if (slot(record, record->next - 1)->flags & COPIED)
		egress->copies_paused = COPY_PAUSE;
	egress->stored_bytes -=
		unsent < egress->stored_bytes ? unsent : egress->stored_bytes;
	at = find_segment(record, record->next, snd_nxt);
	if (slot(record, at)->seq != snd_nxt)
		WRITE_ONCE(slot(record, ++at)->seq, snd_nxt);
	STORE_RELEASE(record->next, at);
}

/*
 * Adds the announced segment to the record; false if it is full. Data since the
 * record's end that did not pass here becomes one segment.
 */
static __always_inline bool add_to_record(struct egress *egress,
					  const struct segment *seg,
					  __u32 snd_una, bool small)
{
	struct record *record = &egress->record;
	__u64 now = now_us();
	bool gap;

	note_itt(egress, now);
	egress->sending.messages += small;
	drop_unsent(egress, seg->seq);
	gap = record_end(record) != seg->seq;
	egress->announced.stored_bytes = gap ? 0 : egress->stored_bytes;
	egress->stored_bytes = 0;
	if (is_full(record, gap ? 2 : 1, snd_una, egress->max_bundled))
		return false;
	if (gap)
		add_segment(record, seg->seq, 0, now);
	add_segment(record, seg->seq + seg->len, small ? SMALL : 0, now);
	return true;
}

/*
 * Marks the data from start to end as retransmitted, in one packet or in
 * several with unknown ends. A global function, so that the verifier checks the
 * loop once.
 */
__noinline int mark_retransmitted(struct record *record, __u32 start, __u32 end,
				  bool several, struct lost_bundles *lost)
{
	struct sent_segment *segment;
	__u32 at, i, size, ended;

	if (!record || !lost)
		return 0;
	at = find_segment(record, record->next, start);
	for (i = 0; i < RECORD_SLOTS && at != record->next; i++, at++) {
		segment = slot(record, at);
		if (!before(segment->seq, end))
			break;
		/* No branch, because the verifier would follow both sides. */
		ended = several | (slot(record, at + 1)->seq == end);
		set_flags(segment, ended * RETRANSMISSION_END);
		if (segment->flags & RETRANSMITTED)
			continue;
		set_flags(segment, RETRANSMITTED);
		if (!redundant_len(segment->flags))
			continue;
		size = slot(record, at + 1)->seq -
		       packet_start(segment->seq, segment->flags);
		lost->last = segment->seq;
		if (!lost->smallest || size < lost->smallest)
			lost->smallest = size;
	}
	return 0;
}

/*
 * Records the first retransmission of a series; its timestamp distinguishes
 * retransmissions from originals. Readers see a new first_tsval only with its
 * snd_una_at_start, because an old one is earlier.
 */
static __always_inline void note_retransmission(struct __sk_buff *skb,
						struct egress *egress,
						const struct segment *seg,
						struct bpf_tcp_sock *btp)
{
	if (!before(btp->snd_una, egress->retrans.end)) {
		WRITE_ONCE(egress->retrans.snd_una_at_start, btp->snd_una);
		WRITE_ONCE(egress->retrans.snd_nxt_at_start, btp->snd_nxt);
		WRITE_ONCE(egress->retrans.newest_tsval, egress->newest_tsval);
		STORE_RELEASE(egress->retrans.first_tsval,
			      read_tsval(skb, seg->tcp_off, seg->payload_off));
	}
	egress->retrans.end = later(egress->retrans.end, seg->seq + seg->len);
}

/*
 * Handles retransmissions that TCP counted, but this program could not parse.
 * Any unacknowledged data may have been retransmitted, at an unknown time. If
 * every packet was parsed, a filter dropped the retransmission, or it was a
 * handshake packet.
 */
static __always_inline void
note_unobserved_retransmission(struct egress *egress, struct bpf_tcp_sock *btp,
			       __u32 seen)
{
	__u32 snd_una = btp->snd_una, end = record_end(&egress->record);
	__u32 all = btp->total_retrans - egress->retransmissions;
	struct lost_bundles lost = {};

	egress->retransmissions = btp->total_retrans;
	if (all == seen || !READ_ONCE(egress->missed_packet))
		return;
	WRITE_ONCE(egress->missed_packet, 0);
	if (!before(snd_una, egress->retrans.end)) {
		WRITE_ONCE(egress->retrans.snd_una_at_start, snd_una);
		WRITE_ONCE(egress->retrans.snd_nxt_at_start, btp->snd_nxt);
	}
	STORE_RELEASE(egress->retrans.first_tsval, 0);
	egress->retrans.end = later(egress->retrans.end, end);
	mark_retransmitted(&egress->record, snd_una, end, true, &lost);
}

static __always_inline void announce(const struct __sk_buff *skb,
				     struct egress *egress,
				     const struct segment *seg,
				     enum announcement_kind announced,
				     __u32 varying, __u32 room)
{
	egress->announced.seq = seg->seq;
	egress->announced.end = seg->seq + seg->len;
	egress->announced.ifindex = skb->ifindex;
	egress->announced.varying = varying;
	egress->announced.room = room;
	WRITE_ONCE(egress->announced.kind, announced);
}

/* Counts an announced segment, also if it did not reach an attached device. */
static __always_inline void
close_announcement(struct flow *flow, const struct tcp_sock *tp, __u32 snd_nxt)
{
	struct egress *egress = &flow->egress;

	/* Until snd_nxt advances, TCP has not sent it. */
	if (egress->announced.ifindex && before(egress->announced.seq, snd_nxt))
		count_for_device(tp, egress->announced.ifindex,
				 egress->announced.kind == ANNOUNCED_NOTHING);
	egress->announced.ifindex = 0;
	if (egress->announced.kind == ANNOUNCED_RETRANSMISSION)
		count(flow, RETRANSMISSION);
	else if (egress->announced.kind == ANNOUNCED_NEW_DATA &&
		 before(egress->announced.seq, snd_nxt))
		count(flow, UNATTACHED_DEVICE);
	egress->announced.kind = ANNOUNCED_NOTHING;
}

/*
 * Returns true if the connection sends more than SO_MAX_PACING_RATE allows,
 * headers and redundant bytes included. TCP itself paces only its own bytes. A
 * global function, so that the verifier does not follow every case.
 */
__noinline int exceeds_pacing_rate(const struct sending *sending, __u64 limit,
				   __u64 rtt_us)
{
	return sending && limit < MAX_RATE &&
	       exceeds_rate(sending, now_us(), rtt_us, limit);
}

/*
 * Returns PACING_LIMIT or OVER_FAIR_SHARE if the connection sends as much as it
 * may, otherwise 0; stores the TFRC-SP decision.
 */
static __always_inline __u8 decide_excess(struct flow *flow,
					  struct bpf_tcp_sock *btp,
					  const struct tcp_sock *tp)
{
	__u64 rtt_us = effective_rtt_us(btp);

	if (exceeds_pacing_rate(&flow->egress.sending,
				((struct sock *)tp)->sk_max_pacing_rate,
				rtt_us))
		return PACING_LIMIT;
	if (flow->options.level == LEVEL_AUTO && !flow->options.published)
		limit_copies(flow, rtt_us);
	return decide_fair_share(flow, tp, rtt_us) ? OVER_FAIR_SHARE : 0;
}

/* Records and announces new data. */
static __always_inline void
record_new_segment(struct __sk_buff *skb, struct flow *flow,
		   struct bpf_tcp_sock *btp, struct tcp_sock *tp,
		   const struct segment *seg, enum outcome outcome)
{
	struct egress *egress = &flow->egress;
	__u32 varying = 0, room, end = seg->seq + seg->len;
	bool small = false;

	if (outcome == ELIGIBLE && !options_are_plain(skb, seg, &varying))
		outcome = TCP_OPTION;
	if (outcome == ELIGIBLE)
		small = seg->len + varying < btp->mss_cache &&
			seg->len < HISTORY_BYTES;
	/* TCP may extend or split a segment that a device refused. */
	clamp_seq(&egress->counted_end, seg->seq);
	if (before(egress->counted_end, end)) {
		if (!flow->disabled_by_application)
			ADD(flow, new_bytes, end - egress->counted_end);
		egress->counted_end = end;
	}
	if (!add_to_record(egress, seg, btp->snd_una, small) &&
	    outcome == ELIGIBLE)
		outcome = LOSS_DETECTION_UNAVAILABLE;
	if (flow->disabled_by_application)
		return;
	if (outcome != ELIGIBLE) {
		count(flow, outcome);
		return;
	}
	if (!small) {
		count(flow, FULL_SIZE);
		return;
	}
	egress->newest_tsval = read_tsval(skb, seg->tcp_off, seg->payload_off);
	room = room_in_memory(tp, egress, seg);
	egress->announced.timeout_in_doubt = is_timeout_in_doubt(tp);
	egress->announced.excess = decide_excess(flow, btp, tp);
	announce(skb, egress, seg, ANNOUNCED_NEW_DATA, varying, room);
}

/*
 * Handles a retransmission. Appended segments must end within the peer's
 * window, which may have shrunk.
 */
static __always_inline void
record_retransmission(struct __sk_buff *skb, struct flow *flow,
		      struct bpf_tcp_sock *btp, const struct tcp_sock *tp,
		      const struct segment *seg, enum outcome outcome)
{
	__u32 packets = skb->gso_size ? skb->gso_segs : 1;
	struct egress *egress = &flow->egress;
	struct lost_bundles lost = {};
	__u32 varying = 0, room, window;

	note_unobserved_retransmission(egress, btp, packets);
	egress->retransmitted += packets;
	note_retransmission(skb, egress, seg, btp);
	mark_retransmitted(&egress->record, seg->seq, seg->seq + seg->len,
			   skb->gso_size, &lost);
	note_lost_bundles(&egress->path, &flow->ingress, &lost, btp->snd_nxt);
	if (flow->disabled_by_application)
		return;
	if (outcome != ELIGIBLE || !flow->options.retransmissions ||
	    !options_are_plain(skb, seg, &varying) ||
	    decide_excess(flow, btp, tp)) {
		count(flow, RETRANSMISSION);
		return;
	}
	room = room_to_retransmit(egress, seg);
	window = btp->snd_una + tp->snd_wnd - seg->seq;
	announce(skb, egress, seg, ANNOUNCED_RETRANSMISSION, varying,
		 window < room ? window : room);
}

/*
 * Measures all sent data for TFRC-SP. Also for other reactions, so that the
 * data is complete if the reaction changes later.
 */
static __always_inline void measure(struct __sk_buff *skb, struct flow *flow,
				    struct bpf_tcp_sock *btp,
				    const struct segment *seg)
{
	struct sent sent = {.payload = seg->len};

	sent.packets = skb->gso_size ? skb->gso_segs : 1;
	sent.wire = seg->len + sent.packets * (seg->payload_off - seg->ip_off);
	note_sent(&flow->egress.sending, now_us(), effective_rtt_us(btp),
		  &sent);
}

/* Handles one segment with data; parsed is the outcome of its headers. */
static __always_inline void
record_segment(struct __sk_buff *skb, struct flow *flow,
	       struct bpf_tcp_sock *btp, struct tcp_sock *tp,
	       const struct segment *seg, enum outcome parsed)
{
	close_announcement(flow, tp, btp->snd_nxt);
	switch (classify_segment(&flow->egress, btp, seg)) {
	case SEGMENT_NEW:
		note_unobserved_retransmission(&flow->egress, btp, 0);
		record_new_segment(skb, flow, btp, tp, seg, parsed);
		break;
	case SEGMENT_RETRANSMITTED:
		record_retransmission(skb, flow, btp, tp, seg, parsed);
		break;
	default:
		note_unobserved_retransmission(&flow->egress, btp, 0);
		if (!flow->disabled_by_application)
			count(flow, STALE);
	}
	measure(skb, flow, btp, seg);
}

#endif /* PILLION_CGROUP_EGRESS_H */
