/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ACK latency: from the first sending of a segment to the arrival of the ACK
 * that covers it (LCN 2015, section IV.A). And of what TCP had to retransmit:
 * what a bundle would have saved, had it not been held back.
 *
 * The first bundle that would have had a lost segment would have repaired it if
 * its own packet was acknowledged without being retransmitted, a smoothed RTT
 * after it was sent. What waited behind the segment would have waited no
 * longer. docs/advise.md has what this leaves out.
 */
#ifndef PILLION_LATENCY_H
#define PILLION_LATENCY_H

#include "../rx/ack.h"
#include "observation.h"

#define RCV_SHUTDOWN  1
#define SEND_SHUTDOWN 2

/* Segments that an ACK acknowledges, while they are gone through. */
struct acked {
	__u32 from; /* the next slot */
	__u32 to; /* behind the last */
	__u32 now_us;
	__u32 rtt_min_us; /* 0: not known */
	__u32 srtt_us;

	/* How they would have fared with bundles. */
	__u32 held_us; /* nothing could have been acknowledged before then */
	__u32 began; /* there was a loss */
	__u32 sooner; /* a bundle would have repaired one */
};

/* 0: not known. */
static __always_inline __u32 sent_at(const struct observation *seen, __u32 at)
{
	return READ_ONCE(seen->sent_us[at & (RECORD - 1)]);
}

/* A global function, as the verifier is to look at its branches once. */
__noinline __u32 latency_bucket(__u32 us)
{
	__u32 bit = LATENCY_FIRST_BIT, high = us >> LATENCY_FIRST_BIT;

	if (!high)
		return 0;
	for (__u32 step = 16; step; step /= 2) {
		if (high >> step) {
			high >>= step;
			bit += step;
		}
	}
	if (bit > LATENCY_LAST_BIT)
		return LATENCY_BUCKETS - 1;
	return 1 + ((bit - LATENCY_FIRST_BIT) << LATENCY_STEP_BITS) +
	       (us >> (bit - LATENCY_STEP_BITS) &
		((1 << LATENCY_STEP_BITS) - 1));
}

/* So are the next: the loop has them look once. */
__noinline int add_latency(struct observation *seen, const struct acked *acked,
			   __u32 latency_us)
{
	__u32 bucket = latency_bucket(latency_us), waited_us;

	if (!seen || !acked)
		return 0;
	seen->segments++;
	seen->latency_us += latency_us;
	if (bucket < LATENCY_BUCKETS)
		seen->latencies[bucket]++;
	if (latency_us > stall_us)
		seen->stalls++;
	if (!acked->rtt_min_us || latency_us <= acked->rtt_min_us)
		return 0;
	waited_us = latency_us - acked->rtt_min_us;
	seen->waited_us += waited_us;
	if (waited_us <= grace_us)
		return 0;
	seen->late++;
	seen->late_us += waited_us - grace_us;
	return 0;
}

/* Which round of the record a slot is of: 1 to 255, and then from 1 again. */
static __always_inline __u8 round_of(__u32 at)
{
	return at / RECORD % 255 + 1;
}

static __always_inline bool is_reported(const struct observation *seen,
					__u32 at)
{
	return seen->reported[at & (RECORD - 1)] == round_of(at);
}

/* A bundle would have repaired the loss of the slot's segment. */
static __always_inline void add_repairable(struct observation *seen, __u32 at)
{
	seen->losses.repairable++;
	if (is_reported(seen, at))
		seen->losses.needless_repairable++;
	else
		seen->repairable[at / 64 % (RECORD / 64)] |= 1ULL << at % 64;
}

/* The slot that is gone through is of a segment that TCP had to retransmit. */
__noinline int add_loss(struct observation *seen, struct record *record,
			struct acked *acked)
{
	__u32 distance, carrier, sent_us, repaired_us;

	if (!seen || !record || !acked)
		return 0;
	distance = seen->carrier[acked->from & (RECORD - 1)];
	carrier = acked->from + distance;
	sent_us = sent_at(seen, carrier);
	repaired_us = acked->now_us;
	seen->losses.segments++;
	if (!distance) {
		seen->losses.unfollowed++;
	} else if (before(carrier, acked->to) && sent_us &&
		   !(READ_ONCE(slot(record, carrier)->how) & RETRANSMITTED)) {
		add_repairable(seen, acked->from);
		acked->sooner = 1;
		repaired_us = sent_us + acked->srtt_us;
	}
	if (!acked->began || after(repaired_us, acked->held_us))
		acked->held_us = repaired_us;
	acked->began = 1;
	return 0;
}

__noinline int add_saved(struct observation *seen, const struct acked *acked,
			 __u32 sent_us)
{
	__u32 then_us;

	if (!seen || !acked || !acked->began)
		return 0;
	then_us = sent_us + acked->srtt_us;
	if (before(then_us, acked->now_us))
		seen->losses.copies_saved_us += acked->now_us - then_us;
	then_us = later(then_us, acked->held_us);
	if (acked->sooner && before(then_us, acked->now_us))
		seen->losses.saved_us += acked->now_us - then_us;
	return 0;
}

/* Measures the slot that is gone through. */
__noinline int measure_slot(struct observation *seen, struct record *record,
			    struct acked *acked)
{
	__u32 sent_us;

	if (!seen || !record || !acked)
		return 0;
	sent_us = sent_at(seen, acked->from);
	seen->repairable[acked->from / 64 % (RECORD / 64)] &=
		~(1ULL << acked->from % 64);
	if (!sent_us)
		return 0;
	add_latency(seen, acked, acked->now_us - sent_us);
	if (READ_ONCE(slot(record, acked->from)->how) & RETRANSMITTED)
		add_loss(seen, record, acked);
	add_saved(seen, acked, sent_us);
	return 0;
}

/* Measures the segments that an ACK acknowledges. */
__noinline int measure_acked(struct observation *seen, struct record *record,
			     struct acked *acked)
{
	if (!seen || !record || !acked)
		return 0;
	for (__u32 i = 0; i < RECORD && acked->from != acked->to; i++) {
		measure_slot(seen, record, acked);
		acked->from++;
	}
	return 0;
}

/*
 * What was measured of the slot was no loss. A slot that is not measured yet
 * has the bit of the segment that was there before it.
 */
static __always_inline void take_back_repairable(struct observation *seen,
						 __u32 at)
{
	__u64 *bits = &seen->repairable[at / 64 % (RECORD / 64)];

	if (!before(at, seen->measured) || !(*bits & 1ULL << at % 64))
		return;
	*bits &= ~(1ULL << at % 64);
	seen->losses.needless_repairable++;
}

/*
 * A report of what had been retransmitted, though it was not lost: one packet,
 * of one segment or of several that TCP joined. Each segment counts once, and
 * none that is measured nowhere.
 */
__noinline int observe_report(struct observation *seen, struct record *record,
			      __u32 next, const struct ack *ack)
{
	__u32 at;

	if (!seen || !record || !ack)
		return 0;
	at = find_segment(record, next, ack->duplicate_start);
	for (int i = 0; i < RECORD && before(at, next); i++, at++) {
		if (!before(first_byte(slot(record, at)), ack->duplicate_end))
			break;
		if (!(READ_ONCE(slot(record, at)->how) & RETRANSMITTED) ||
		    !sent_at(seen, at) || is_reported(seen, at))
			continue;
		seen->reported[at & (RECORD - 1)] = round_of(at);
		seen->losses.needless++;
		take_back_repairable(seen, at);
	}
	return 0;
}

/*
 * Begins to measure from the first slot that is not acknowledged, nor measured,
 * to what acked has as the end; is there any?
 */
static __always_inline bool begin_measuring(const struct observation *seen,
					    struct record *record, __u32 next,
					    __u32 una, struct acked *acked)
{
	acked->from = find_segment(record, next, una);
	if (before(acked->from, seen->measured))
		acked->from = seen->measured;
	acked->now_us = now_us();
	acked->rtt_min_us = seen->rtt_min_us;
	return before(acked->from, acked->to);
}

static __always_inline void note_least_rtt(struct observation *seen,
					   __u32 rtt_us)
{
	if (rtt_us != NO_RTT_SAMPLE &&
	    (!seen->rtt_min_us || rtt_us < seen->rtt_min_us))
		seen->rtt_min_us = rtt_us;
}

/* An ACK arrives, and TCP has not looked at it yet. */
static __always_inline void observe_ack(struct observation *seen,
					struct flow *flow,
					struct bpf_tcp_sock *tp,
					const struct ack *ack)
{
	struct record *record = &flow->egress.record;
	__u32 next = READ_ONCE(record->next);
	__u32 end = first_byte(slot(record, next));
	__u32 una = acked_so_far(flow, tp->snd_una, end);
	struct acked acked = {};

	note_least_rtt(seen, tp->rtt_min);
	if (ack->duplicate)
		observe_report(seen, record, next, ack);
	if (!after(ack->ack, una))
		return;
	acked.to = find_segment(record, next,
				after(ack->ack, end) ? end : ack->ack);
	if (!begin_measuring(seen, record, next, una, &acked))
		return;
	acked.srtt_us = tp->srtt_us >> 3;
	measure_acked(seen, record, &acked);
	seen->measured = acked.to;
	WRITE_ONCE(seen->timer, 0);
}

/* Measures what was not acknowledged when the connection ended. */
__noinline int measure_unacked(struct observation *seen, struct acked *acked)
{
	if (!seen || !acked)
		return 0;
	for (__u32 i = 0; i < RECORD && acked->from != acked->to; i++) {
		__u32 sent_us = sent_at(seen, acked->from++);
		__u32 waited_us = acked->now_us - sent_us;

		if (sent_us && waited_us > acked->rtt_min_us)
			add_latency(seen, acked, waited_us);
	}
	return 0;
}

/*
 * Does the connection end by an error that leaves data behind, on its way or
 * still to be sent? Not if an end had closed it before: the peer's wanted no
 * more, and ours did not wait. A FIN counts as a byte.
 */
static __always_inline bool is_cut(const struct tcp_sock *tp)
{
	const struct sock *sk = (const struct sock *)tp;
	__u32 fin = sk->sk_shutdown & SEND_SHUTDOWN ? 1 : 0;

	return sk->sk_err && !(sk->sk_shutdown & RCV_SHUTDOWN) &&
	       tp->write_seq - tp->snd_una > fin;
}

/*
 * The connection ends. What was not acknowledged has waited until now, at
 * least: who gives up on a connection does so after the longest waits. What is
 * younger than the least RTT tells nothing, however the connection fared.
 */
static __always_inline void observe_end(struct observation *seen,
					struct flow *flow,
					const struct tcp_sock *tp)
{
	struct record *record = &flow->egress.record;
	__u32 next = READ_ONCE(record->next), una;
	struct acked acked = {.to = next};

	seen->cut = is_cut(tp);
	/* There may have been no ACK but that of the handshake. */
	note_least_rtt(seen, tp->rtt_min.s[0].v);
	if (!seen->rtt_min_us || !enter(&flow->ingress.busy))
		return;
	una = acked_so_far(flow, tp->snd_una, first_byte(slot(record, next)));
	if (begin_measuring(seen, record, next, una, &acked))
		measure_unacked(seen, &acked);
	seen->measured = next;
	seen->counters = flow->counters;
	leave(&flow->ingress.busy);
}

#endif /* PILLION_LATENCY_H */
