/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Redundant Data Bundling: a small new segment carries the unacknowledged bytes
 * before it (LCN 2015, section III).
 *
 * Whole previous segments ride along, newest first, as many as the limits
 * allow. The packet is read until all is decided; from then on it is either
 * sent with a whole bundle or not at all.
 */
#ifndef PILLION_BUNDLE_H
#define PILLION_BUNDLE_H

#include "density.h"
#include "../policy/governor.h"
#include "grow.h"
#include "level.h"
#include "../sampling/observation.h"
#include "path.h"
#include "retransmission.h"
#include "../rx/sacked.h"
#include "thin.h"
#include "../policy/translation.h"

/* What may ride along with the newest segment, and what does. */
struct choice {
	__u32 packets; /* at most */
	__u32 una; /* from here on */
	__u32 limit; /* of the payload in all */
	__u32 kept; /* payload before the segment */

	__u32 segments;
	__u32 start; /* where the first of them begins */
	bool is_probe; /* it is not known to come through */
};

/*
 * How many of so many segments before the newest one come behind all gaps that
 * precede what was acknowledged selectively, if anything was. TCP knows of such
 * a gap, and would take for reordered what fills it and was not retransmitted.
 * A global function, as the verifier is to look at the loop once.
 */
__noinline int count_behind_gaps(struct record *record, struct sacked *sacked,
				 __u32 sacked_out, __u32 packets)
{
	bool has_come, later_came = false;
	__u32 newest, i;

	if (!record || !sacked)
		return 0;
	if (!sacked_out)
		return packets;
	newest = record->next - 1;
	for (i = 1; i < RECORD - 1 && i <= packets; i++) {
		has_come = is_sacked(sacked, newest - i);
		if (later_came && !has_come &&
		    !(slot(record, newest - i)->how & RETRANSMITTED))
			break;
		later_came = has_come;
	}
	return i - 1;
}

/*
 * As many of the segments before the newest one as fit: ELIGIBLE, or why there
 * are none. A global function, as the verifier is to look at the loop once.
 */
__noinline int find_previous(struct record *record, struct choice *choice)
{
	__u32 newest, begin, end, i, seq;

	if (!record || !choice)
		return NO_HISTORY;
	newest = record->next - 1;
	begin = slot(record, newest)->seq;
	end = record_end(record);
	choice->start = begin;
	for (i = 1; i < RECORD - 1 && i <= choice->packets; i++) {
		seq = slot(record, newest - i)->seq;
		if (before(seq, choice->una) || seq == choice->start)
			break;
		if (end - seq > choice->limit)
			return choice->segments ? ELIGIBLE : NO_ROOM;
		if (begin - seq > choice->kept)
			break;
		choice->segments = i;
		choice->start = seq;
	}
	return choice->segments ? ELIGIBLE : NO_HISTORY;
}

/* Decides for new data: ELIGIBLE, with what rides along, or why not. */
static __always_inline enum outcome
choose(struct __sk_buff *skb, struct flow *flow, struct bpf_tcp_sock *tp,
       const struct segment *seg, struct choice *choice)
{
	__u32 limit, size, proved;
	struct egress *egress = &flow->egress;
	enum outcome outcome;

	if (!after(seg->seq, tp->snd_una))
		return NOTHING_OUTSTANDING;
	limit = payload_limit(skb, flow, tp, seg);
	if (seg->len >= limit)
		return FULL_SIZE;
	outcome = test_acks(flow);
	if (outcome != ELIGIBLE)
		return outcome;
	if (flow->options.wait_for_loss && !tp->total_retrans)
		return NO_LOSS;
	outcome = test_thin(&flow->options, egress, tp);
	if (outcome != ELIGIBLE)
		return outcome;
	if (READ_ONCE(flow->ingress.unread))
		return UNWATCHED;
	if (egress->announced.excess)
		return egress->announced.excess;
	size = current_limit(&egress->path, &flow->ingress, &flow->options,
			     base_size(seg), egress->announced.varying);
	proved = proved_size(&egress->path, &flow->ingress, &flow->options,
			     egress->announced.varying);
	if (is_probing(&egress->path, tp->snd_una) && proved < size)
		size = proved;
	choice->packets = count_behind_gaps(
		&egress->record, &flow->ingress.sacked, tp->sacked_out,
		allowed_packets(flow) ?: RECORD);
	choice->una = tp->snd_una;
	choice->limit = size < limit ? size : limit;
	choice->kept = egress->announced.kept;
	outcome = find_previous(&egress->record, choice);
	if (outcome == NO_ROOM && size < limit)
		return PATH_SIZE;
	/*
	 * Behind a gap, what comes again of that which TCP has not
	 * retransmitted makes its time-out look needless (F-RTO, RFC 5682).
	 */
	if (outcome == ELIGIBLE && egress->announced.in_doubt &&
	    choice->start != choice->una)
		return UNWATCHED;
	choice->is_probe = seg->seq + seg->len - choice->start > proved;
	return outcome;
}

/* What rides along, and with which segment, is in the record from now on. */
static __always_inline void note_bundle(struct egress *egress,
					const struct segment *seg,
					const struct choice *choice)
{
	struct record *record = &egress->record;
	__u32 newest = record->next - 1, i;

	if (choice->is_probe)
		egress->path.probe_end = seg->seq + seg->len;
	note_length(egress, choice->segments);
	mark(slot(record, newest), seg->seq - choice->start);
	for (i = 1; i < RECORD - 1 && i <= choice->segments; i++)
		mark(slot(record, newest - i), RODE_ALONG);
}

/* Lets the remembered bytes from start on ride along. */
static __always_inline enum outcome prepend(struct __sk_buff *skb,
					    struct flow *flow,
					    struct segment *seg, __u32 start)
{
	__u32 grown = seg->seq - start;
	__be32 seq = bpf_htonl(start);

	if (bpf_skb_change_tail(skb, skb->len + grown, 0))
		return NO_MEMORY;
	if (bpf_skb_store_bytes(skb, seg->tcp + offsetof(struct tcphdr, seq),
				&seq, sizeof(seq), 0) ||
	    fill(skb, flow, seg, seg->payload, start, grown + seg->len, grown))
		return DROPPED;
	return BUNDLED;
}

static __always_inline enum outcome
send_new(struct __sk_buff *skb, struct bpf_sock *sk, struct flow *flow,
	 struct bpf_tcp_sock *tp, struct segment *seg)
{
	struct egress *egress = &flow->egress;
	struct choice choice = {};
	enum outcome outcome;

	outcome = choose(skb, flow, tp, seg, &choice);
	if (keep(skb, seg->payload, flow, seg->seq, seg->len))
		return UNREADABLE;
	egress->kept = egress->announced.kept + seg->len;
	if (egress->kept > HISTORY_BYTES)
		egress->kept = HISTORY_BYTES;
	if (outcome != ELIGIBLE)
		return outcome;
	if (is_held_back(flow)) {
		hold_back(skb, egress, seg->seq - choice.start,
			  choice.segments);
		return HELD_BACK;
	}
	if (!is_allowed(sk, flow))
		return GOVERNED;
	outcome = prepend(skb, flow, seg, choice.start);
	if (outcome == BUNDLED)
		note_bundle(egress, seg, &choice);
	return outcome;
}

/* So many redundant bytes have been added to what TCP sends. */
static __always_inline void add_redundant(struct flow *flow, __u32 bytes)
{
	ADD(flow, redundant_bytes, bytes);
	flow->egress.sending.current.payload += bytes;
	flow->egress.sending.current.wire += bytes;
}

/*
 * Is the segment at the device the one that TCP has announced? Then nothing but
 * its headers may be against bundling. ELSEWHERE if it is another one.
 */
static __always_inline enum outcome identify(const struct egress *egress,
					     struct bpf_tcp_sock *tp,
					     const struct segment *seg,
					     enum outcome parsed)
{
	__u32 end = seg->seq + seg->len;

	if (parsed == NOT_PLAIN_IP)
		return parsed;
	if (end != egress->announced.end ||
	    after(seg->seq, egress->announced.seq))
		return ELSEWHERE;
	if (seg->seq != egress->announced.seq)
		return OVERLAP;
	if (egress->announced.kind == NEW_DATA && seg->seq != tp->snd_nxt)
		return WAITED;
	return parsed;
}

/* The announced segment, one way or another, or something else. */
static __always_inline enum outcome
send(struct __sk_buff *skb, struct bpf_sock *sk, struct flow *flow,
     struct bpf_tcp_sock *tp, struct segment *seg, enum outcome parsed)
{
	struct egress *egress = &flow->egress;
	enum announced announced = egress->announced.kind;
	enum outcome outcome;
	__u32 grown = skb->len;

	outcome = identify(egress, tp, seg, parsed);
	if (announced == NOTHING || outcome == ELSEWHERE)
		return outcome;
	egress->announced.kind = NOTHING;
	if (outcome == ELIGIBLE && gets_helper_port(skb, sk, seg))
		outcome = HELPER_PORT;
	if (outcome == ELIGIBLE)
		outcome = announced == NEW_DATA
				  ? send_new(skb, sk, flow, tp, seg)
				  : retransmit(skb, flow, tp, sk, seg);
	else if (announced == RETRANSMISSION)
		outcome = OLD_DATA;
	count(flow, outcome);
	if (outcome == BUNDLED || outcome == RETRANSMISSION_BUNDLED) {
		add_redundant(flow, skb->len - grown);
		learn_translation(skb, sk, flow, seg);
	}
	return outcome;
}

/* A packet of a connection that is ours leaves by a device. */
static __always_inline int bundle(struct __sk_buff *skb, struct bpf_sock *sk,
				  struct flow *flow, enum link_header link)
{
	struct egress *egress = &flow->egress;
	struct bpf_tcp_sock *tp;
	struct segment seg = {};
	enum outcome outcome;

	if (READ_ONCE(egress->announced.kind) == NOTHING)
		return TCX_NEXT;
	tp = bpf_tcp_sock(sk);
	if (!tp)
		return TCX_NEXT;
	outcome = parse_link(skb, &seg, link) ? NOT_PLAIN_IP
					      : parse_tcp(skb, &seg);
	if (seg.in_tunnel || (outcome != NOT_PLAIN_IP && !seg.len))
		return TCX_NEXT;
	if (!try_enter(&egress->busy))
		return TCX_NEXT;
	outcome = send(skb, sk, flow, tp, &seg, outcome);
	leave(&egress->busy);
	return outcome == DROPPED ? TCX_DROP : TCX_NEXT;
}

#endif /* PILLION_BUNDLE_H */
