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

__u32 pillion_messages_in_time(__u32 deadline_ms, __u32 itt_us, __u32 srtt_us)
{
	struct options options = {.deadline_ms = deadline_ms};

	return messages_in_time(&options, itt_us, srtt_us);
}
