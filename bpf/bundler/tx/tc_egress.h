/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Redundant Data Bundling: a small new segment carries the unacknowledged bytes
 * before it (LCN 2015, section III).
 *
 * Whole previous segments are bundled, newest first, up to the limits. The
 * packet is only read until everything is decided; then it is sent with a
 * complete bundle or dropped.
 */
#ifndef PILLION_TC_EGRESS_H
#define PILLION_TC_EGRESS_H

#include "ack_thinning.h"
#include "copies.h"
#include "../policy/governor.h"
#include "grow.h"
#include "level.h"
#include "../sampling/observation.h"
#include "plpmtu.h"
#include "retransmission.h"
#include "../rx/sacked.h"
#include "thin.h"
#include "../policy/translation.h"

/* The limits of a bundle with the newest segment, and its contents. */
struct bundle_plan {
	__u32 packets; /* maximum number of previous segments */
	__u32 una; /* the bundle starts here or later */
	__u32 limit; /* payload of the segment with its bundle */
	__u32 stored_bytes; /* bytes right before the segment in history[] */

	__u32 segments; /* number of bundled segments */
	__u32 start; /* start of the first bundled segment */
	bool is_probe; /* the path has not delivered this size yet */
};

/*
 * Counts how many of the last `packets` segments are after all gaps before
 * selectively acknowledged data. TCP knows such a gap, and would treat an
 * unretransmitted segment that fills it as reordered. A global function, so
 * that the verifier checks the loop once.
 */
__noinline int count_after_gaps(struct record *record, struct sacked *sacked,
				__u32 sacked_out, __u32 packets)
{
	bool arrived, later_arrived = false;
	__u32 newest, i;

	if (!record || !sacked)
		return 0;
	if (!sacked_out)
		return packets;
	newest = record->next - 1;
	for (i = 1; i < RECORD_SLOTS - 1 && i <= packets; i++) {
		arrived = is_sacked(sacked, newest - i);
		if (later_arrived && !arrived &&
		    !(slot(record, newest - i)->flags & RETRANSMITTED))
			break;
		later_arrived = arrived;
	}
	return i - 1;
}

/*
 * Finds the previous segments that fit: ELIGIBLE, or the reason for none. A
 * global function, so that the verifier checks the loop once.
 */
__noinline int find_previous(struct record *record, struct bundle_plan *plan)
{
	__u32 newest, start, end, i, seq;

	if (!record || !plan)
		return NO_HISTORY;
	newest = record->next - 1;
	start = slot(record, newest)->seq;
	end = record_end(record);
	plan->start = start;
	for (i = 1; i < RECORD_SLOTS - 1 && i <= plan->packets; i++) {
		seq = slot(record, newest - i)->seq;
		if (before(seq, plan->una) || seq == plan->start)
			break;
		if (end - seq > plan->limit)
			return plan->segments ? ELIGIBLE : NO_ROOM;
		if (start - seq > plan->stored_bytes)
			break;
		plan->segments = i;
		plan->start = seq;
	}
	return plan->segments ? ELIGIBLE : NO_HISTORY;
}

/* ELIGIBLE if new data may carry redundancy now, otherwise the reason. */
static __always_inline enum outcome check_redundancy(struct flow *flow,
						     struct bpf_tcp_sock *btp)
{
	struct egress *egress = &flow->egress;
	enum outcome outcome;

	outcome = check_loss_detection(flow);
	if (outcome != ELIGIBLE)
		return outcome;
	if (flow->options.wait_for_loss && !btp->total_retrans)
		return NO_LOSS;
	update_rtt_min(egress, btp);
	outcome = check_thin(&flow->options, egress, btp);
	if (outcome != ELIGIBLE)
		return outcome;
	if (READ_ONCE(flow->ingress.last_ack_unread))
		return LOSS_DETECTION_UNAVAILABLE;
	return egress->announced.excess ?: ELIGIBLE;
}

/*
 * Plans a bundle for new data: ELIGIBLE with the plan, or the reason.
 * `redundancy` is the result of check_redundancy().
 */
static __always_inline enum outcome
plan_bundle(struct __sk_buff *skb, struct flow *flow, struct bpf_tcp_sock *btp,
	    const struct segment *seg, enum outcome redundancy,
	    struct bundle_plan *plan)
{
	__u32 limit, size, confirmed, wire;
	struct egress *egress = &flow->egress;
	enum outcome outcome;

	if (!after(seg->seq, btp->snd_una))
		return NOTHING_OUTSTANDING;
	limit = payload_limit(skb, flow, btp, seg);
	if (seg->len >= limit)
		return FULL_SIZE;
	if (redundancy != ELIGIBLE)
		return redundancy;
	if (flow->options.level == LEVEL_NONE)
		return NO_BUNDLES;
	size = update_path_limit(&egress->path, &flow->ingress, &flow->options,
				 base_payload(seg), egress->announced.varying);
	confirmed = confirmed_size(&egress->path, &flow->ingress,
				   &flow->options, egress->announced.varying);
	if (is_probing(&egress->path, btp->snd_una) && confirmed < size)
		size = confirmed;
	plan->packets = count_after_gaps(&egress->record, &flow->ingress.sacked,
					 btp->sacked_out,
					 allowed_packets(flow) ?: RECORD_SLOTS);
	plan->una = btp->snd_una;
	plan->limit = size < limit ? size : limit;
	wire = max_wire_bytes(&flow->options, seg) /
	       (1 + current_copies(flow, btp, seg));
	if (wire && wire < plan->limit + headers_len(seg))
		plan->limit = wire - headers_len(seg);
	plan->stored_bytes = egress->announced.stored_bytes;
	outcome = find_previous(&egress->record, plan);
	if (outcome == NO_ROOM && size < limit)
		return EXCEEDS_PATH_SIZE;
	/*
	 * After a gap, duplicates of segments that TCP has not retransmitted
	 * would make its time-out look spurious (F-RTO, RFC 5682).
	 */
	if (outcome == ELIGIBLE && egress->announced.timeout_in_doubt &&
	    plan->start != plan->una)
		return LOSS_DETECTION_UNAVAILABLE;
	plan->is_probe = seg->seq + seg->len - plan->start > confirmed;
	return outcome;
}

/* Records the bundle of the newest segment. */
static __always_inline void note_bundle(struct egress *egress,
					const struct segment *seg,
					const struct bundle_plan *plan)
{
	struct record *record = &egress->record;
	__u32 newest = record->next - 1, i;

	if (plan->is_probe)
		egress->path.probe_end = seg->seq + seg->len;
	note_bundle_length(egress, plan->segments);
	set_redundant_len(slot(record, newest), seg->seq - plan->start);
	for (i = 1; i < RECORD_SLOTS - 1 && i <= plan->segments; i++)
		set_flags(slot(record, newest - i), SENT_IN_OTHER_PACKET);
}

/* Adds the stored bytes from start to the segment. */
static __always_inline enum outcome prepend(struct __sk_buff *skb,
					    struct flow *flow,
					    struct segment *seg, __u32 start)
{
	__u32 added = seg->seq - start;
	__be32 seq = bpf_htonl(start);

	if (bpf_skb_change_tail(skb, skb->len + added, 0))
		return NO_MEMORY;
	if (bpf_skb_store_bytes(skb,
				seg->tcp_off + offsetof(struct tcphdr, seq),
				&seq, sizeof(seq), 0) ||
	    write_payload(skb, flow, seg, seg->payload_off, start,
			  added + seg->len, added))
		return DROPPED;
	return BUNDLED;
}

static __always_inline enum outcome
add_redundancy(struct __sk_buff *skb, struct bpf_sock *sk, struct flow *flow,
	       struct bpf_tcp_sock *btp, struct segment *seg, __u32 *copies)
{
	enum outcome redundancy = check_redundancy(flow, btp), outcome;
	struct egress *egress = &flow->egress;
	struct bundle_plan plan = {};

	outcome = plan_bundle(skb, flow, btp, seg, redundancy, &plan);
	/* After a gap, the older bytes are not repeatable. */
	if (!egress->announced.stored_bytes &&
	    repeatable_segments(&flow->options))
		erase_words(flow, 0, HISTORY_WORDS);
	if (copy_to_history(skb, seg->payload_off, flow, seg->seq, seg->len))
		return UNREADABLE;
	egress->stored_bytes = egress->announced.stored_bytes + seg->len;
	if (egress->stored_bytes > HISTORY_BYTES)
		egress->stored_bytes = HISTORY_BYTES;
	if (redundancy == ELIGIBLE)
		*copies = allowed_copies(flow, btp, seg);
	if (outcome != ELIGIBLE && !*copies)
		return outcome;
	if (is_suppressed(flow)) {
		suppress_redundancy(skb, egress, plan.segments,
				    plan.segments ? seg->seq - plan.start : 0,
				    *copies, seg->len);
		*copies = 0;
		return outcome == ELIGIBLE ? SUPPRESSED : outcome;
	}
	if (!take_governor_credit(sk, flow)) {
		*copies = 0;
		return outcome == ELIGIBLE ? GOVERNED : outcome;
	}
	/*
	 * Only here: the credit has refreshed is_busy. Without copies, an
	 * isolated segment would not reach it.
	 */
	if (holds_back(flow))
		*copies = 0;
	if (*copies && flow->options.level == LEVEL_AUTO &&
	    READ_ONCE(flow->ingress.copies) != AUTO_COPIES_ALL &&
	    !take_isolated_copy(sk)) {
		COUNT_IN_TOTALS(copies_capped);
		*copies = 0;
	}
	outcome = apply_caps(outcome, seg->seq - plan.start, seg->len, copies);
	if (outcome != ELIGIBLE)
		return outcome;
	outcome = prepend(skb, flow, seg, plan.start);
	if (outcome == BUNDLED)
		note_bundle(egress, seg, &plan);
	return outcome;
}

/* Counts redundant bytes added to a segment. */
static __always_inline void add_redundant(struct flow *flow, __u32 bytes)
{
	ADD(flow, redundant_bytes, bytes);
	flow->egress.sending.current.payload += bytes;
	flow->egress.sending.current.wire += bytes;
}

/*
 * Compares the segment at the device with the announced one: ELIGIBLE, or the
 * reason against bundling. UNATTACHED_DEVICE means another segment here, and is
 * not counted.
 */
static __always_inline enum outcome
match_announcement(const struct egress *egress, struct bpf_tcp_sock *btp,
		   const struct segment *seg, enum outcome parsed)
{
	__u32 end = seg->seq + seg->len;

	if (parsed == UNPARSED_IP)
		return parsed;
	if (end != egress->announced.end ||
	    after(seg->seq, egress->announced.seq))
		return UNATTACHED_DEVICE;
	if (seg->seq != egress->announced.seq)
		return OVERLAP;
	if (egress->announced.kind == ANNOUNCED_NEW_DATA &&
	    seg->seq != btp->snd_nxt)
		return STALE;
	return parsed;
}

/* Bundles the packet if it is the announced segment; counts the outcome. */
static __always_inline enum outcome
process_announced(struct __sk_buff *skb, struct bpf_sock *sk, struct flow *flow,
		  struct bpf_tcp_sock *btp, struct segment *seg,
		  enum outcome parsed)
{
	struct egress *egress = &flow->egress;
	enum announcement_kind announced = egress->announced.kind;
	enum outcome outcome;
	__u32 len_before = skb->len, copies = 0;

	outcome = match_announcement(egress, btp, seg, parsed);
	if (announced == ANNOUNCED_NOTHING || outcome == UNATTACHED_DEVICE)
		return outcome;
	egress->announced.kind = ANNOUNCED_NOTHING;
	if (outcome == ELIGIBLE && gets_helper_port(skb, sk, seg))
		outcome = HELPER_PORT;
	if (outcome == ELIGIBLE)
		outcome = announced == ANNOUNCED_NEW_DATA
				  ? add_redundancy(skb, sk, flow, btp, seg,
						   &copies)
				  : bundle_into_retransmission(skb, flow, btp,
							       sk, seg);
	else if (announced == ANNOUNCED_RETRANSMISSION)
		outcome = RETRANSMISSION;
	trim_history(flow);
	count(flow, outcome);
	if (outcome == DROPPED || (skb->len == len_before && !copies))
		return outcome;
	add_redundant(flow, skb->len - len_before);
	learn_translation(skb, sk, flow, seg);
	if (copies)
		send_copies(skb, flow, seg, copies);
	return outcome;
}

/* Handles every packet of a covered connection that leaves by a device. */
static __always_inline int handle_tc_egress(struct __sk_buff *skb,
					    struct bpf_sock *sk,
					    struct flow *flow,
					    enum link_header link)
{
	struct egress *egress = &flow->egress;
	struct bpf_tcp_sock *btp;
	struct segment seg = {};
	enum outcome outcome;

	if (READ_ONCE(egress->announced.kind) == ANNOUNCED_NOTHING)
		return TCX_NEXT;
	btp = bpf_tcp_sock(sk);
	if (!btp)
		return TCX_NEXT;
	outcome = parse_link(skb, &seg, link) ? UNPARSED_IP
					      : parse_tcp(skb, &seg);
	if (seg.in_tunnel || (outcome != UNPARSED_IP && !seg.len))
		return TCX_NEXT;
	if (!try_lock(&egress->busy))
		return TCX_NEXT;
	outcome = process_announced(skb, sk, flow, btp, &seg, outcome);
	unlock(&egress->busy);
	return outcome == DROPPED ? TCX_DROP : TCX_NEXT;
}

#endif /* PILLION_TC_EGRESS_H */
