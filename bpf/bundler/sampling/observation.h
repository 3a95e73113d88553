/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is observed of a connection where two arms are compared, or where it is
 * only looked what bundling would bring: for each segment how long it waited to
 * be acknowledged. It outlives the connection, until user space has read it.
 *
 * Nothing of this is in the programs that the kernel runs unless `observing` is
 * set before they are loaded.
 */
#ifndef PILLION_OBSERVATION_H
#define PILLION_OBSERVATION_H

#include "../endpoints.h"
#include "../maps.h"
#include "../tx/record.h"
#include "../tcp_state.h"

/*
 * Latencies by their logarithm: bucket 0 for what is below 128 us, then 8 for
 * each power of two up to 2^28 us (268 s), the last for all beyond.
 */
enum latency_scale {
	LATENCY_FIRST_BIT = 7,
	LATENCY_LAST_BIT = 27,
	LATENCY_STEP_BITS = 3,
	LATENCY_BUCKETS = 1 + ((LATENCY_LAST_BIT - LATENCY_FIRST_BIT + 1)
			       << LATENCY_STEP_BITS),
};

/* Which connections share an arm (assignment.h). */
enum draw_by {
	DRAW_BY_PEER,
	DRAW_BY_CONNECTION,
};

/* Set before the programs are loaded. */
const volatile bool observing = false;
const volatile __u64 draw_key[2] = {};
const volatile __u64 draw_bundled = 0; /* so many of 2^32 */
const volatile enum draw_by draw_by = DRAW_BY_PEER;
const volatile __u32 grace_us = 0;
const volatile __u32 stall_us = 0;

/* Packets retransmitted, by the state in which TCP did so. */
struct retransmitted {
	__u32 after_timeout;
	__u32 fast;
	__u32 probes; /* of the tail, before a time-out */
};

/* Segments that TCP retransmitted, as bundles would have met them. */
struct losses {
	__u32 segments;
	__u32 needless; /* the receiver reported that it had them twice */
	__u32 repairable; /* the bundle that had them would have arrived */
	__u32 needless_repairable; /* both */
	__u32 unfollowed; /* nothing that could have had them was sent yet */
	__u64 saved_us; /* sooner acknowledged, with all that waited behind */
	__u64 copies_saved_us; /* the same with a copy of each, if none is lost
				*/
};

struct observation {
	struct endpoints ends;
	enum arm arm;
	__u32 opening; /* an enum opening */
	__u64 unit; /* what the arm was drawn for: alike where it is shared */

	/* Written by what stands on the way out. */
	struct retransmitted retransmitted;
	__u32 timeouts;
	__u32 timer; /* icsk_retransmits, when last looked at */
	__u32 unrecorded; /* segments too many to be recorded */
	__u32 held_back; /* segments that would have had a bundle */
	__u64 held_back_bytes; /* that would have ridden along */
	__u32 sent_us[RECORD]; /* of each slot of the record; 0: not known */
	__u8 carrier[RECORD]; /* the bundle that would have had it: slots on */

	/* Written by what stands on the way in. */
	__u32 measured; /* the slot that is to be measured next */
	__u32 rtt_min_us; /* the least so far; 0: none */
	__u8 reported[RECORD]; /* the round (latency.h) of the last report */
	__u64 repairable[RECORD / 64]; /* a bit for each slot, as measured */
	__u64 segments; /* new ones, acknowledged, and their time is known */
	__u64 latency_us; /* of all together; so are the next */
	__u64 waited_us; /* beyond the least RTT */
	__u64 late_us; /* beyond that and the grace */
	__u32 late;
	__u32 stalls; /* latencies beyond stall_us */
	struct losses losses;
	__u32 latencies[LATENCY_BUCKETS];
	enum latency_scale scale[0]; /* has the type reach user space */
	__u32 cut; /* it has ended by an error, and data has not come */
	struct counters counters; /* as of the last ACK */
};

/* The kernel keeps it with 56 bytes before it, and 8 of its allocator's. */
_Static_assert(sizeof(struct observation) <= 2048 - 64, "2 KiB for each");

/* By the socket's cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading, where observing */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct observation);
} pillion_observed SEC(".maps");

/* What an observation begins with, which is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct observation);
} pillion_unobserved SEC(".maps");

/* What is observed of the connection of a program's context, if that is. */
static __always_inline struct observation *observed(void *ctx)
{
	__u64 cookie;

	if (!observing)
		return NULL;
	cookie = bpf_get_socket_cookie(ctx);
	return bpf_map_lookup_elem(&pillion_observed, &cookie);
}

/*
 * Notes which segments the newest one would have had in its bundle. The first
 * bundle that has a segment counts. A global function, as the verifier is to
 * look at the loop once.
 */
__noinline int note_carrier(struct observation *seen, __u32 newest,
			    __u32 segments)
{
	if (!seen)
		return 0;
	for (__u32 i = 1; i < RECORD - 1 && i <= segments; i++) {
		__u8 *carrier = &seen->carrier[(newest - i) & (RECORD - 1)];

		if (!*carrier)
			*carrier = i;
	}
	return 0;
}

/* Is all done as for a bundled connection, except bundling? */
static __always_inline bool is_held_back(const struct flow *flow)
{
	return flow->arm == ARM_PLAIN || flow->arm == ARM_UNOBSERVED;
}

/* The newest segment would have had a bundle, of so much. */
static __always_inline void hold_back(struct __sk_buff *skb,
				      struct egress *egress, __u32 bytes,
				      __u32 segments)
{
	struct observation *seen = observed(skb);

	if (!seen)
		return;
	seen->held_back++;
	seen->held_back_bytes += bytes;
	note_carrier(seen, egress->record.next - 1, segments);
}

#endif /* PILLION_OBSERVATION_H */
