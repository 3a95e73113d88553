/* SPDX-License-Identifier: GPL-2.0-only */
/* The counters of all connections, and of the outcome of each segment. */
#ifndef PILLION_MAPS_H
#define PILLION_MAPS_H

#include "flow_storage.h"
#include "lock.h"

/* Counts of all connections, one struct per processor. */
struct totals {
	__u64 outcomes[OUTCOMES]; /* instead of those in counters */
	struct counters counters;
	__u64 connections; /* added at or after establishment */
	__u64 connections_failed; /* no memory for their state */
	__u64 connection_limit_hits; /* sockets without a free slot (quota.h) */
	__u64 unobserved; /* connections without a free observation */
	__u64 copies_refused; /* the device's queue did not take them */
	__u64 copies_capped; /* segments whose copies exceed a cap (caps.h) */
	__u64 tcp_options_set[TCP_OPTION_COUNT]; /* times, by enum tcp_option */
	__u64 tcp_options_refused[TCP_OPTION_COUNT]; /* by the kernel */
	struct tfrc_decision tfrc_decision; /* the last one of any connection */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct totals);
} pillion_totals SEC(".maps");

static __always_inline struct totals *totals(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&pillion_totals, &zero);
}

/* For counters with writers on both sides, or on several processors. */
#define ADD_TO(counter, n) ((void)__sync_fetch_and_add(&(counter), n))

/* Adds to a counter of the connection, and to the one in the totals. */
#define ADD(flow, counter, n)                                                  \
	do {                                                                   \
		struct totals *all_ = totals();                                \
                                                                               \
		if (all_) {                                                    \
			ADD_TO((flow)->counters.counter, n);                   \
			ADD_TO(all_->counters.counter, n);                     \
		}                                                              \
	} while (0)

/* Adds 1 to a counter that only the totals have. */
#define COUNT_IN_TOTALS(counter)                                               \
	do {                                                                   \
		struct totals *all_ = totals();                                \
                                                                               \
		if (all_)                                                      \
			ADD_TO(all_->counter, 1);                              \
	} while (0)

/* Counts the outcome of a segment. */
static __always_inline void count(struct flow *flow, enum outcome outcome)
{
	struct totals *all = totals();
	__u32 at = outcome;

	/* One register for check and index, because of Linux 6.1. */
	asm volatile("" : "+r"(at));
	if (at >= OUTCOMES || !all)
		return;
	flow->egress.last = at;
	ADD_TO(flow->counters.outcomes[at], 1);
	ADD_TO(all->outcomes[at], 1);
}

static __always_inline void
store_tfrc_decision(struct flow *flow,
		    const struct tfrc_decision *tfrc_decision)
{
	struct totals *all = totals();

	if (!all)
		return;
	flow->egress.tfrc_decision = *tfrc_decision;
	all->tfrc_decision = *tfrc_decision;
}

#endif /* PILLION_MAPS_H */
