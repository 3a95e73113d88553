/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The observation of a connection in a comparison of two arms, or in a dry run:
 * for each segment the time until its acknowledgement. It remains after the
 * connection until user space has read it.
 *
 * The verifier removes this code unless `observing` is set before loading.
 */
#ifndef PILLION_OBSERVATION_H
#define PILLION_OBSERVATION_H

#include "../endpoints.h"
#include "../maps.h"
#include "../tx/record.h"
#include "../tcp_state.h"

/*
 * Logarithmic latency histogram: bucket 0 is below 128 us, then 8 buckets for
 * each power of two up to 2^28 us (268 s). The last one has all above.
 */
enum latency_scale {
	LATENCY_FIRST_BIT = 7,
	LATENCY_LAST_BIT = 27,
	LATENCY_STEP_BITS = 3,
	LATENCY_BUCKETS = 1 + ((LATENCY_LAST_BIT - LATENCY_FIRST_BIT + 1)
			       << LATENCY_STEP_BITS),
};

/* Which connections share an arm (assignment.h). */
enum assign_by {
	ASSIGN_BY_PEER,
	ASSIGN_BY_CONNECTION,
};

/* Set before the programs are loaded. */
const volatile bool observing = false;
/* Only connections of rules with a holdback are observed, by its share. */
const volatile bool holding_back = false;
const volatile __u64 assignment_key[2] = {};
const volatile __u64 bundled_threshold = 0; /* threshold of a 32-bit hash */
const volatile enum assign_by assign_by = ASSIGN_BY_PEER;
const volatile __u32 grace_us = 0;
const volatile __u32 stall_us = 0;

/* Packets retransmitted, by the state in which TCP did so. */
struct retransmit_counts {
	__u32 after_timeout;
	__u32 fast;
	__u32 probes; /* tail loss probes */
};

/* Segments that TCP retransmitted, and what redundancy would have done. */
struct losses {
	__u32 segments;
	__u32 spurious; /* the receiver reported duplicates of them */
	__u32 repairable; /* a suppressed bundle or copy would have arrived */
	__u32 spurious_repairable; /* spurious and repairable */
	__u32 uncovered; /* they had neither bundle nor copy */
	/* time saved, including that of delayed later data */
	__u64 time_saved_byte_us;
	/* time saved by a copy of each segment, if no copy were lost */
	__u64 copies_time_saved_byte_us;
};

/* Smaller minimum RTOs to compare, each twice the previous one (rto_min.h). */
enum rto_min_scale {
	RTO_MIN_FIRST_MS = 20,
	RTO_MINS = 3,
};

/* The effect that one of these would have had. */
struct rto_min_effect {
	__u32 saved_ms; /* by earlier expirations of the timer */
	__u32 needless; /* expirations before an ACK that came anyway */
};

/* observation.redundancy; the other bits are a number of segments. */
#define SUPPRESSED_COPY 0x80
_Static_assert(RECORD_SLOTS <= SUPPRESSED_COPY, "a bundle has fewer segments");

struct observation {
	struct endpoints endpoints;
	enum arm arm;
	__u16 open_kind; /* an enum open_kind */
	__u16 rule; /* number of the rule that decided last */
	__u64 unit; /* hash of the assignment input; equal for a shared arm */

	/* Written on the egress side. */
	struct retransmit_counts retransmitted;
	__u32 timeouts;
	__u32 rto_expirations; /* without back-off (rto_min.h) */
	__u32 rto_ms; /* time until then, sum over them */
	__u32 timer; /* icsk_retransmits at the last one; 0 after an ACK */
	__u32 unrecorded; /* segments without a slot in the record */
	__u32 suppressed; /* segments that would have had a bundle */
	__u32 suppressed_copies; /* copies that would have been sent */
	__u64 suppressed_bytes; /* bytes of these bundles and copies */
	/* for each slot of the record; 0: unknown */
	__u32 sent_us[RECORD_SLOTS];
	/* segments in the slot's suppressed bundle, and SUPPRESSED_COPY */
	__u8 redundancy[RECORD_SLOTS];

	/* Written on both sides (unsent.h). */
	__u32 unsent; /* bytes in the socket after the last packet or ACK */
	__u32 unsent_at_us; /* when that was; 0: never */
	__u32 written_at_us; /* when data was sent without waiting */
	__u32 written; /* its bytes */
	__u64 unsent_byte_us; /* waits in the socket, sum over all bytes */
	__u64 nagle_byte_us; /* part of it, for Nagle's algorithm */
	__u64 reduced_byte_us; /* part of it, for a window reduced by losses */

	/* Written on the ingress side. */
	__u32 measured; /* the next slot to measure */
	__u32 rtt_min_us; /* minimum so far; 0: no sample */
	__u32 deviation_us; /* 4 times that of the RTT (rto_min.h) */
	__u32 acked_at_us; /* when data was last acknowledged; 0: never */
	struct rto_min_effect rto_mins[RTO_MINS]; /* also egress side */
	/* round (latency.h) of the last report for each slot */
	__u8 reported[RECORD_SLOTS];
	/* a bit for each slot: 1 for a repairable loss without report */
	__u64 repairable[RECORD_SLOTS / 64];
	__u64 segments; /* acknowledged, with a known sending time */
	__u64 latency_us; /* latencies, sum over all segments */
	__u64 waited_us; /* beyond the minimum RTT, sum over all segments */
	__u64 waited_byte_us; /* the same, each byte on its own */
	__u64 late_us; /* beyond minimum RTT and grace_us, sum over late ones */
	__u32 late; /* number of segments beyond minimum RTT and grace_us */
	__u32 stalls; /* number of segments with latency beyond stall_us */
	struct losses losses;
	__u32 latencies[LATENCY_BUCKETS];
	enum latency_scale scale[0]; /* puts the type into BTF, for Rust */
	enum rto_min_scale rto_min_scale[0];
	__u32 aborted; /* ended by an error, with undelivered data */
	struct counters counters; /* as of the last ACK */
};

/* The kernel adds 56 bytes before it, and 8 of its allocator. */
_Static_assert(sizeof(struct observation) <= 2048 - 64, "2 KiB for each");

/* By the socket's cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading, where observing */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct observation);
} pillion_observed SEC(".maps");

/* An initial observation, which is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct observation);
} pillion_unobserved SEC(".maps");

/* Returns the observation of the context's connection, or NULL. */
static __always_inline struct observation *find_observation(void *ctx)
{
	__u64 cookie;

	if (!observing)
		return NULL;
	cookie = bpf_get_socket_cookie(ctx);
	return bpf_map_lookup_elem(&pillion_observed, &cookie);
}

/*
 * Returns true for a connection that is not bundled. A holdback costs no
 * unobserved connection its bundles.
 */
static __always_inline bool is_suppressed(const struct flow *flow)
{
	return flow->arm == ARM_PLAIN ||
	       (flow->arm == ARM_UNOBSERVED && !holding_back);
}

/* Counts the suppressed bundle and copies of the newest segment. */
static __always_inline void suppress_redundancy(struct __sk_buff *skb,
						struct egress *egress,
						__u32 segments, __u32 bundled,
						__u32 copies, __u32 len)
{
	struct observation *observation = find_observation(skb);
	__u32 newest = egress->record.next - 1;

	/* Copies limit themselves by the sending rate (limit_copies()). */
	egress->sending.packets += copies;
	egress->sending.current.packets += copies;
	egress->sending.current.payload += copies * (len + bundled);
	egress->sending.current.wire += copies * (len + bundled);
	if (!observation)
		return;
	observation->suppressed += !!segments;
	observation->suppressed_copies += copies;
	observation->suppressed_bytes += bundled + copies * (len + bundled);
	observation->redundancy[newest & (RECORD_SLOTS - 1)] =
		segments | (copies ? SUPPRESSED_COPY : 0);
}

#endif /* PILLION_OBSERVATION_H */
