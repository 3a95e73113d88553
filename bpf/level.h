/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many previous segments ride along, where that follows the losses.
 *
 * A bundle of k previous segments repairs a run of up to k lost ones. From the
 * runs seen, the level is the smallest k that leaves fewer segments unrepaired
 * than the target (LCN 2015, section VI, has this as future work). Counts fade,
 * so that the level returns to one when the losses stop.
 */
#ifndef PILLION_LEVEL_H
#define PILLION_LEVEL_H

#include "flow.h"

/* New segments after which all counts are halved. */
#define FADE_AFTER 1024
#define PPM	   1000000

/*
 * Runs longer than k, times 1024: those seen, or those to be expected, if runs
 * get rarer from each length to the next as they did so far.
 */
static __always_inline __u64 runs_beyond(__u64 longer, __u64 at, __u64 shorter)
{
	__u64 expected = shorter ? (at * at << 10) / shorter : 0;

	return expected > longer << 10 ? expected : longer << 10;
}

/* A global function, as the verifier is to look at the loops once. */
__noinline int choose_level(struct flow *flow)
{
	__u64 longer = 0, shorter, bearable;
	__u32 k;

	if (!flow)
		return 1;
	for (k = 0; k < RUN_LENGTHS; k++)
		longer += flow->runs[k];
	shorter = flow->run_segments;
	bearable = shorter * flow->options.target_ppm;
	for (k = 0; k < RUN_LENGTHS; k++) {
		longer -= flow->runs[k];
		if (runs_beyond(longer, flow->runs[k], shorter) * PPM <=
		    bearable << 10)
			return k + 1;
		shorter = flow->runs[k];
	}
	return RUN_LENGTHS;
}

/* So many segments were lost one after the other. */
static __always_inline void note_run(struct flow *flow, __u32 length)
{
	__u32 last = length < RUN_LENGTHS ? length - 1 : RUN_LENGTHS - 1;

	if (!length || last >= RUN_LENGTHS)
		return;
	flow->runs[last]++;
	flow->level = choose_level(flow);
}

static __always_inline void note_new_segment(struct flow *flow)
{
	__u32 k;

	if (++flow->run_segments < FADE_AFTER)
		return;
	flow->run_segments /= 2;
	for (k = 0; k < RUN_LENGTHS; k++)
		flow->runs[k] /= 2;
	flow->level = choose_level(flow);
}

/* Previous segments that may ride along; 0: no limit. */
static __always_inline __u32 allowed_packets(const struct flow *flow)
{
	__u32 limit = flow->options.max_packets;

	if (flow->options.level == LEVEL_FIXED)
		return limit;
	return limit && limit < flow->level ? limit : flow->level;
}

#endif /* PILLION_LEVEL_H */
