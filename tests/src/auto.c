/* SPDX-License-Identifier: GPL-2.0-only */
/* Decisions of level `auto`, compiled for this machine. */
#include <linux/types.h>
#include <stdbool.h>

#define __noinline static inline

#include "tx/auto.h"

int pillion_choose_level(const __u16 runs[RUN_LENGTHS], __u32 segments,
			 __u32 target_ppm, __u32 waiting)
{
	struct ingress ingress = {.run_segments = segments};

	__builtin_memcpy(ingress.runs, runs, sizeof(ingress.runs));
	return choose_level(&ingress, target_ppm, waiting);
}

int pillion_are_bundles_insufficient(const __u16 runs[RUN_LENGTHS],
				     __u32 segments, __u32 in_time,
				     __u32 target_ppm, int isolated)
{
	struct ingress ingress = {.run_segments = segments};

	__builtin_memcpy(ingress.runs, runs, sizeof(ingress.runs));
	return are_bundles_insufficient(&ingress, in_time, target_ppm,
					isolated);
}

int pillion_are_bundles_sufficient(__u32 expected, __u32 received,
				   __u32 in_time, __u32 target_ppm)
{
	struct ingress ingress = {
		.copy_reports = {.expected = expected, .received = received},
	};

	return are_bundles_sufficient(&ingress, in_time, target_ppm);
}

int pillion_are_bundles_sufficient_without_reports(
	const __u16 runs[RUN_LENGTHS], __u32 segments, __u32 in_time,
	__u32 target_ppm)
{
	struct ingress ingress = {.run_segments = segments};

	__builtin_memcpy(ingress.runs, runs, sizeof(ingress.runs));
	return are_bundles_sufficient(&ingress, in_time, target_ppm);
}

__u32 pillion_messages_waiting(__u32 itt_us, __u32 srtt_us)
{
	return messages_waiting(itt_us, srtt_us);
}

__u32 pillion_messages_in_time(__u32 deadline_ms, __u32 itt_us)
{
	struct options options = {.deadline_ms = deadline_ms};

	return messages_in_time(&options, itt_us);
}

static struct flow flow;

/* Decides once; returns the copies after it. */
static int decide(const __u16 runs[RUN_LENGTHS], __u32 segments, __u32 itt_us,
		  __u32 srtt_us)
{
	__builtin_memcpy(flow.ingress.runs, runs, sizeof(flow.ingress.runs));
	flow.ingress.run_segments = segments;
	choose_redundancy(&flow, 0, itt_us, srtt_us);
	return flow.ingress.copies;
}

int pillion_copies_after(int copies, int has_queue,
			 const __u16 runs[RUN_LENGTHS], __u32 segments,
			 __u32 itt_us, __u32 srtt_us)
{
	flow = (struct flow){
		.options = {.level = LEVEL_AUTO, .target_ppm = 1000},
		.ingress = {.copies = copies, .has_queue = has_queue},
	};
	return decide(runs, segments, itt_us, srtt_us);
}

int pillion_isolated_copies_last(__u32 itt_us, __u32 srtt_us)
{
	const __u16 lossless[RUN_LENGTHS] = {};
	int decisions;

	flow = (struct flow){
		.options = {.level = LEVEL_AUTO, .target_ppm = 1000},
		.ingress = {.copies = AUTO_COPIES_ISOLATED},
	};
	for (decisions = 0; decisions < MAX_DECISIONS; decisions++)
		decide(lossless, 1000, itt_us, srtt_us);
	return flow.ingress.copies == AUTO_COPIES_ISOLATED;
}

int pillion_decisions_with_copies(int starts)
{
	const __u16 lossy[RUN_LENGTHS] = {81, 8, 1}, lossless[RUN_LENGTHS] = {};
	int decisions = 0;

	flow = (struct flow){
		.options = {.level = LEVEL_AUTO, .target_ppm = 1000},
		.ingress = {.copies = AUTO_COPIES_ISOLATED},
	};
	for (; starts; starts--) {
		if (decide(lossy, 1000, 30000, 150000) != AUTO_COPIES_ALL)
			return 0;
		decisions = 1;
		while (decide(lossless, 1000, 30000, 150000) == AUTO_COPIES_ALL)
			decisions++;
	}
	return decisions;
}
