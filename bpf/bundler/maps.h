/* SPDX-License-Identifier: GPL-2.0-only */
/* The state of the programs, and how each segment's fate is counted. */
#ifndef PILLION_MAPS_H
#define PILLION_MAPS_H

#include "flow_storage.h"
#include "lock.h"

/* What was done on all connections together, one per processor. */
struct totals {
	__u64 outcomes[OUTCOMES]; /* instead of those in counters */
	struct counters counters;
	__u64 connections; /* taken in at or after establishment */
	__u64 connections_refused; /* no memory for their state */
	__u64 over_limit; /* sockets that found no place (quota.h) */
	__u64 unobserved; /* connections that found none to be observed */
	__u64 companions_set[COMPANIONS]; /* times, by enum companion */
	__u64 companions_refused[COMPANIONS]; /* by the kernel */
	struct decision decision; /* the last of any connection */
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

/* What both sides of a connection add to, or several processors. */
#define ADD_TO(counter, n) ((void)__sync_fetch_and_add(&(counter), n))

/* Adds to a counter of the connection, and to that of all together. */
#define ADD(flow, counter, n)                                                  \
	do {                                                                   \
		struct totals *all_ = totals();                                \
                                                                               \
		if (all_) {                                                    \
			ADD_TO((flow)->counters.counter, n);                   \
			ADD_TO(all_->counters.counter, n);                     \
		}                                                              \
	} while (0)

/* What has become of a segment. */
static __always_inline void count(struct flow *flow, enum outcome outcome)
{
	struct totals *all = totals();

	if ((__u32)outcome >= OUTCOMES || !all)
		return;
	flow->egress.last = outcome;
	ADD_TO(flow->counters.outcomes[outcome], 1);
	ADD_TO(all->outcomes[outcome], 1);
}

static __always_inline void note_decision(struct flow *flow,
					  const struct decision *decision)
{
	struct totals *all = totals();

	if (!all)
		return;
	flow->egress.decision = *decision;
	all->decision = *decision;
}

#endif /* PILLION_MAPS_H */
