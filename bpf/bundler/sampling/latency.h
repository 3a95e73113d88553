/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ACK latency: from the first transmission of a segment to the arrival of the
 * ACK that covers it (LCN 2015, section IV.A). For retransmitted segments, also
 * the time that a suppressed bundle would have saved.
 *
 * A suppressed bundle with a lost segment would have repaired it, if its own
 * packet was acknowledged without retransmission. So would a suppressed copy,
 * which arrives if the packet before it did. The repair would have arrived an
 * RTT after it was sent: that of the last segment in a SACK, because receivers
 * do not delay these. Later data would have waited no longer.
 * docs/evidence/advice-model.md lists the limits.
 */
#ifndef PILLION_LATENCY_H
#define PILLION_LATENCY_H

#include "../rx/ack.h"
#include "rto_min.h"
#include "unsent.h"

#define RCV_SHUTDOWN  1
#define SEND_SHUTDOWN 2

/* The segments of an ACK during measurement. */
struct measured_range {
	__u32 next_slot; /* the next slot to measure */
	__u32 end_slot; /* the slot after the last one */
	__u32 now_us;
	__u32 rtt_min_us; /* 0: unknown */
	__u32 rtt_us; /* of the last segment that a SACK reported */
	__u32 itt_us; /* smoothed time between new segments */
	__u32 len; /* of the current slot */

	/* The result that redundancy would have had. */
	__u32 repaired_us; /* when it would have repaired the current slot */
	__u32 blocked_us; /* earliest time of the next acknowledgement */
	__u32 has_loss; /* 1: a segment was lost */
	__u32 is_repaired; /* 1: it would have repaired one */
};

/* Returns the sending time in microseconds; 0 if unknown. */
static __always_inline __u32 sent_at(const struct observation *observation,
				     __u32 at)
{
	return READ_ONCE(observation->sent_us[at & (RECORD_SLOTS - 1)]);
}

static __always_inline __u32 slot_len(struct record *record, __u32 at)
{
	return first_byte(slot(record, at + 1)) - first_byte(slot(record, at));
}

/* A global function, so that the verifier checks its branches once. */
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

/* Global functions here and below, so that the loop's body is checked once. */
__noinline int add_latency(struct observation *observation,
			   const struct measured_range *acked, __u32 latency_us)
{
	__u32 bucket = latency_bucket(latency_us), waited_us;

	if (!observation || !acked)
		return 0;
	observation->segments++;
	observation->latency_us += latency_us;
	if (bucket < LATENCY_BUCKETS)
		observation->latencies[bucket]++;
	if (latency_us > stall_us)
		observation->stalls++;
	if (!acked->rtt_min_us || latency_us <= acked->rtt_min_us)
		return 0;
	waited_us = latency_us - acked->rtt_min_us;
	observation->waited_us += waited_us;
	observation->waited_byte_us += (__u64)waited_us * acked->len;
	if (waited_us <= grace_us)
		return 0;
	observation->late++;
	observation->late_us += waited_us - grace_us;
	return 0;
}

/* Returns the round of the record that a slot is in: 1 to 255, repeating. */
static __always_inline __u8 record_round(__u32 at)
{
	return at / RECORD_SLOTS % 255 + 1;
}

static __always_inline bool is_reported(const struct observation *observation,
					__u32 at)
{
	return observation->reported[at & (RECORD_SLOTS - 1)] ==
	       record_round(at);
}

/* Counts a loss that redundancy would have repaired. */
static __always_inline void add_repairable(struct observation *observation,
					   __u32 at)
{
	observation->losses.repairable++;
	if (is_reported(observation, at))
		observation->losses.spurious_repairable++;
	else
		observation->repairable[at / 64 % (RECORD_SLOTS / 64)] |=
			1ULL << at % 64;
}

static __always_inline bool is_retransmitted(struct record *record, __u32 at)
{
	return READ_ONCE(slot(record, at)->flags) & RETRANSMITTED;
}

/* Returns true if a packet, or its suppressed copy, arrived. */
static __always_inline bool would_arrive(const struct observation *observation,
					 struct record *record, __u32 at)
{
	return !is_retransmitted(record, at) ||
	       (observation->redundancy[at & (RECORD_SLOTS - 1)] &
			SUPPRESSED_COPY &&
		!is_retransmitted(record, at - 1));
}

/* The redundancy of a lost segment. */
enum repair {
	REPAIR_NONE, /* it had none */
	REPAIR_LOST, /* all was lost */
	REPAIRED, /* at acked->repaired_us */
};

/*
 * Finds the first suppressed copy or bundle of a lost segment that would have
 * arrived. A global function, so that the verifier checks the loop once.
 */
__noinline int find_repair(const struct observation *observation,
			   struct record *record, struct measured_range *acked)
{
	__u32 lost, next, sent_us;
	enum repair repair = REPAIR_NONE;

	if (!observation || !record || !acked)
		return REPAIR_NONE;
	lost = acked->next_slot;
	next = LOAD_ACQUIRE(record->next);
	for (__u32 i = 0; i < RECORD_SLOTS && before(lost + i, next); i++) {
		__u8 redundancy =
			observation
				->redundancy[(lost + i) & (RECORD_SLOTS - 1)];

		if (i ? (redundancy & (SUPPRESSED_COPY - 1)) < i
		      : !(redundancy & SUPPRESSED_COPY))
			continue;
		repair = REPAIR_LOST;
		sent_us = sent_at(observation, lost + i);
		acked->repaired_us = sent_us + acked->rtt_us;
		if (sent_us && before(acked->repaired_us, acked->now_us) &&
		    would_arrive(observation, record, lost + i))
			return REPAIRED;
	}
	/*
	 * Without the loss, the next message would not wait in the socket, but
	 * would have a bundle.
	 */
	if (repair == REPAIR_NONE && observation->suppressed &&
	    READ_ONCE(observation->unsent)) {
		sent_us = sent_at(observation, lost) + acked->itt_us;
		acked->repaired_us = sent_us + acked->rtt_us;
		return before(acked->repaired_us, acked->now_us) ? REPAIRED
								 : REPAIR_LOST;
	}
	return repair;
}

/* Measures a segment that TCP retransmitted. */
__noinline int add_loss(struct observation *observation, struct record *record,
			struct measured_range *acked)
{
	enum repair repair;

	if (!observation || !record || !acked)
		return 0;
	repair = find_repair(observation, record, acked);
	observation->losses.segments++;
	if (repair == REPAIRED) {
		add_repairable(observation, acked->next_slot);
		acked->is_repaired = 1;
	} else {
		observation->losses.uncovered += repair == REPAIR_NONE;
		acked->repaired_us = acked->now_us;
	}
	if (!acked->has_loss || after(acked->repaired_us, acked->blocked_us))
		acked->blocked_us = acked->repaired_us;
	acked->has_loss = 1;
	return 0;
}

__noinline int add_time_saved(struct observation *observation,
			      const struct measured_range *acked, __u32 sent_us)
{
	__u32 bundled_us;

	if (!observation || !acked || !acked->has_loss)
		return 0;
	bundled_us = sent_us + acked->rtt_us;
	if (before(bundled_us, acked->now_us))
		observation->losses.copies_time_saved_byte_us +=
			(__u64)(acked->now_us - bundled_us) * acked->len;
	bundled_us = later(bundled_us, acked->blocked_us);
	if (acked->is_repaired && before(bundled_us, acked->now_us))
		observation->losses.time_saved_byte_us +=
			(__u64)(acked->now_us - bundled_us) * acked->len;
	return 0;
}

/* Measures the current slot. */
__noinline int measure_slot(struct observation *observation,
			    struct record *record, struct measured_range *acked)
{
	__u32 sent_us;

	if (!observation || !record || !acked)
		return 0;
	sent_us = sent_at(observation, acked->next_slot);
	observation->repairable[acked->next_slot / 64 % (RECORD_SLOTS / 64)] &=
		~(1ULL << acked->next_slot % 64);
	if (!sent_us)
		return 0;
	acked->len = slot_len(record, acked->next_slot);
	add_latency(observation, acked, acked->now_us - sent_us);
	if (is_retransmitted(record, acked->next_slot))
		add_loss(observation, record, acked);
	add_time_saved(observation, acked, sent_us);
	return 0;
}

/* Measures the segments that an ACK acknowledges. */
__noinline int measure_acked(struct observation *observation,
			     struct record *record,
			     struct measured_range *acked)
{
	if (!observation || !record || !acked)
		return 0;
	for (__u32 i = 0;
	     i < RECORD_SLOTS && acked->next_slot != acked->end_slot; i++) {
		measure_slot(observation, record, acked);
		acked->next_slot++;
	}
	return 0;
}

/*
 * Marks the measured loss of a slot as spurious. The bit of an unmeasured slot
 * belongs to its previous segment.
 */
static __always_inline void undo_repairable(struct observation *observation,
					    __u32 at)
{
	__u64 *bits = &observation->repairable[at / 64 % (RECORD_SLOTS / 64)];

	if (!before(at, observation->measured) || !(*bits & 1ULL << at % 64))
		return;
	*bits &= ~(1ULL << at % 64);
	observation->losses.spurious_repairable++;
}

/*
 * Handles a report of spurious retransmission: one packet, with one or several
 * segments joined by TCP. Each measured segment counts once.
 */
__noinline int observe_report(struct observation *observation,
			      struct record *record, __u32 next,
			      const struct ack *ack)
{
	__u32 at;

	if (!observation || !record || !ack)
		return 0;
	at = find_segment(record, next, ack->duplicate_start);
	for (int i = 0; i < RECORD_SLOTS && before(at, next); i++, at++) {
		if (!before(first_byte(slot(record, at)), ack->duplicate_end))
			break;
		if (!(READ_ONCE(slot(record, at)->flags) & RETRANSMITTED) ||
		    !sent_at(observation, at) || is_reported(observation, at))
			continue;
		observation->reported[at & (RECORD_SLOTS - 1)] =
			record_round(at);
		observation->losses.spurious++;
		undo_repairable(observation, at);
	}
	return 0;
}

/*
 * Starts measuring from the first slot that is neither acknowledged nor
 * measured, up to acked->end_slot; false if there is none.
 */
static __always_inline bool
start_measuring(const struct observation *observation, struct record *record,
		__u32 next, __u32 una, struct measured_range *acked)
{
	acked->next_slot = find_segment(record, next, una);
	if (before(acked->next_slot, observation->measured))
		acked->next_slot = observation->measured;
	acked->now_us = now_us();
	acked->rtt_min_us = observation->rtt_min_us;
	return before(acked->next_slot, acked->end_slot);
}

static __always_inline void note_min_rtt(struct observation *observation,
					 __u32 rtt_us)
{
	if (rtt_us != NO_RTT_SAMPLE &&
	    (!observation->rtt_min_us || rtt_us < observation->rtt_min_us))
		observation->rtt_min_us = rtt_us;
}

/* Measures the segments that an ACK acknowledges, before TCP does. */
static __always_inline void observe_ack(struct observation *observation,
					struct flow *flow,
					struct bpf_tcp_sock *btp,
					struct tcp_sock *tp,
					const struct ack *ack)
{
	struct record *record = &flow->egress.record;
	__u32 next = LOAD_ACQUIRE(record->next);
	__u32 end = first_byte(slot(record, next));
	__u32 una = highest_ack(flow, btp->snd_una, end), oldest;
	struct measured_range acked = {};

	note_min_rtt(observation, btp->rtt_min);
	unsent_at_ack(observation, tp);
	if (ack->duplicate)
		observe_report(observation, record, next, ack);
	if (!after(ack->ack, una))
		return;
	acked.end_slot = find_segment(record, next,
				      after(ack->ack, end) ? end : ack->ack);
	if (!start_measuring(observation, record, next, una, &acked)) {
		rto_at_ack(observation, tp, 0);
		return;
	}
	oldest = acked.next_slot;
	rto_at_ack(observation, tp,
		   is_retransmitted(record, oldest)
			   ? 0
			   : sent_at(observation, oldest));
	acked.rtt_us = tp->rack.rtt_us;
	acked.itt_us = (__u32)READ_ONCE(flow->egress.itt) << ITT_UNIT_BITS;
	measure_acked(observation, record, &acked);
	observation->measured = acked.end_slot;
	WRITE_ONCE(observation->timer, 0);
}

/* Measures unacknowledged segments when the connection ends. */
__noinline int measure_unacked(struct observation *observation,
			       struct record *record,
			       struct measured_range *acked)
{
	if (!observation || !record || !acked)
		return 0;
	for (__u32 i = 0;
	     i < RECORD_SLOTS && acked->next_slot != acked->end_slot; i++) {
		__u32 sent_us = sent_at(observation, acked->next_slot);
		__u32 waited_us = acked->now_us - sent_us;

		acked->len = slot_len(record, acked->next_slot++);

		if (sent_us && waited_us > acked->rtt_min_us)
			add_latency(observation, acked, waited_us);
	}
	return 0;
}

/*
 * Returns true if the connection ends by an error with unacknowledged or unsent
 * data, and neither end had closed it. A FIN counts as a byte.
 */
static __always_inline bool is_aborted(const struct tcp_sock *tp)
{
	const struct sock *sk = (const struct sock *)tp;
	__u32 fin = sk->sk_shutdown & SEND_SHUTDOWN ? 1 : 0;

	return sk->sk_err && !(sk->sk_shutdown & RCV_SHUTDOWN) &&
	       tp->write_seq - tp->snd_una > fin;
}

/*
 * Handles the end of the connection. Unacknowledged segments have waited at
 * least until now; their waits are often the longest. Waits below the minimum
 * RTT are ignored.
 */
static __always_inline void observe_end(struct observation *observation,
					struct flow *flow,
					const struct tcp_sock *tp)
{
	struct record *record = &flow->egress.record;
	__u32 next = LOAD_ACQUIRE(record->next), una;
	struct measured_range acked = {.end_slot = next};

	observation->aborted = is_aborted(tp);
	/* There may have been no ACK but that of the handshake. */
	note_min_rtt(observation, tp->rtt_min.s[0].v);
	if (!observation->rtt_min_us || !lock(&flow->ingress.busy))
		return;
	una = highest_ack(flow, tp->snd_una, first_byte(slot(record, next)));
	if (start_measuring(observation, record, next, una, &acked))
		measure_unacked(observation, record, &acked);
	observation->measured = next;
	observation->counters = flow->counters;
	unlock(&flow->ingress.busy);
}

#endif /* PILLION_LATENCY_H */
