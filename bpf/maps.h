/* SPDX-License-Identifier: GPL-2.0-only */
/* The state of the programs, and how each segment's fate is counted. */
#ifndef PILLION_MAPS_H
#define PILLION_MAPS_H

#include "flow.h"

/* A connection is ours while it has an entry here; the entry dies with it. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} pillion_flows SEC(".maps");

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

static __always_inline void count(struct flow *flow, enum verdict verdict,
				  __u32 new_bytes, __u32 redundant_bytes)
{
	struct totals *all = totals();

	if ((__u32)verdict >= VERDICTS || !all)
		return;
	flow->last = verdict;
	flow->counters.verdicts[verdict]++;
	flow->counters.new_bytes += new_bytes;
	flow->counters.redundant_bytes += redundant_bytes;
	all->counters.verdicts[verdict]++;
	all->counters.new_bytes += new_bytes;
	all->counters.redundant_bytes += redundant_bytes;
}

/* Adds to a counter of the connection, and to that of all together. */
#define ADD(flow, counter, n)                                                  \
	do {                                                                   \
		struct totals *all_ = totals();                                \
                                                                               \
		if (all_) {                                                    \
			(flow)->counters.counter += (n);                       \
			all_->counters.counter += (n);                         \
		}                                                              \
	} while (0)

static __always_inline void note_decision(struct flow *flow,
					  const struct decision *decision)
{
	struct totals *all = totals();

	if (!all)
		return;
	flow->decision = *decision;
	all->decision = *decision;
}

#endif /* PILLION_MAPS_H */
