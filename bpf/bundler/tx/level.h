/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The adaptive number of previous segments in a bundle.
 *
 * A bundle of k previous segments repairs a run of up to k lost ones. The level
 * is the smallest k that leaves fewer segments unrepaired than the target, by
 * the runs seen up to now (future work in LCN 2015, section VI). At level
 * `auto`, those that wait behind an unrepaired one count as well. Counts fade,
 * so the level returns to one when losses stop.
 *
 * Only segments that bundles can repair count. A loss is one that a bundle hid,
 * or that TCP retransmitted, unless the receiver reported the latter as
 * duplicate.
 */
#ifndef PILLION_LEVEL_H
#define PILLION_LEVEL_H

#include "ack_thinning.h"

/* Number of counted segments at which all counts are halved. */
#define FADE_AFTER 1024
#define PPM	   1000000

/*
 * Segments left unrepaired, or waiting behind one, times 1024: the maximum of
 * those seen and those expected. The expected number of longer runs continues
 * the ratio between the last two lengths.
 */
static __always_inline __u64 left_late(__u64 unrepaired, __u64 runs, __u64 at,
				       __u64 shorter, __u32 waiting)
{
	__u64 expected = shorter ? (at * at << 10) / shorter : 0;
	__u64 seen = (unrepaired + runs * waiting) << 10;

	expected *= 1 + waiting;
	return expected > seen ? expected : seen;
}

/*
 * The smallest level that leaves at most the target unrepaired or waiting: each
 * run's excess over the level counts, and `waiting` more segments for each such
 * run, which the receiver cannot deliver before the retransmission. A global
 * function, so that the verifier checks the loops once.
 */
__noinline int choose_level(const struct ingress *ingress, __u32 target_ppm,
			    __u32 waiting)
{
	__u64 unrepaired = 0, runs = 0, shorter, tolerable;
	__u32 k;

	if (!ingress)
		return 1;
	for (k = 0; k < RUN_LENGTHS; k++) {
		runs += ingress->runs[k];
		unrepaired += (k + 1) * (__u64)ingress->runs[k];
	}
	/* Number of segments whose losses could be seen, because an ACK ended
	 * there. */
	shorter = (__u64)ingress->run_segments * ends_acknowledged(ingress) /
		  ENDS;
	tolerable = shorter * target_ppm;
	for (k = 0; k < RUN_LENGTHS; k++) {
		unrepaired -= runs;
		runs -= ingress->runs[k];
		if (left_late(unrepaired, runs, ingress->runs[k], shorter,
			      waiting) *
			    PPM <=
		    tolerable << 10)
			return k + 1;
		shorter = ingress->runs[k];
	}
	return RUN_LENGTHS;
}

static __always_inline __u16 *run_count(struct ingress *ingress, __u32 length)
{
	__u32 last = length < RUN_LENGTHS ? length : RUN_LENGTHS;

	return &ingress->runs[(last - 1) & (RUN_LENGTHS - 1)];
}

/* Adds a lost segment to the run, or starts a run. */
static __always_inline void lengthen_run(struct ingress *ingress, __u32 start,
					 __u32 end)
{
	struct loss_run *run = &ingress->run;

	if (run->counted || !run->segments) {
		run->start = start;
		run->segments = 0;
		run->counted = 0;
	}
	run->end = end;
	run->segments++;
}

/* Ends the current run of losses, because a segment arrived. */
static __always_inline void end_run(struct ingress *ingress)
{
	struct loss_run *run = &ingress->run;

	if (run->counted || !run->segments)
		return;
	(*run_count(ingress, run->segments))++;
	run->counted = 1;
}

/* Shortens the last run by segments that arrived after all. */
static __always_inline void shorten_run(struct ingress *ingress, __u32 segments)
{
	struct loss_run *run = &ingress->run;
	__u16 *count;

	if (segments > run->segments)
		segments = run->segments;
	if (run->counted && segments) {
		count = run_count(ingress, run->segments);
		if (*count)
			(*count)--;
		if (run->segments > segments)
			(*run_count(ingress, run->segments - segments))++;
	}
	run->segments -= segments;
}

static __always_inline void fade(struct ingress *ingress)
{
	__u32 k;

	if (++ingress->run_segments < FADE_AFTER)
		return;
	ingress->run_segments /= 2;
	for (k = 0; k < RUN_LENGTHS; k++)
		ingress->runs[k] /= 2;
}

static __always_inline bool is_unpublished_auto(const struct options *options)
{
	return options->level == LEVEL_AUTO && !options->published;
}

/* Returns true while level `auto` acts as published (auto.h). */
static __always_inline bool is_congested(const struct flow *flow)
{
	return is_unpublished_auto(&flow->options) &&
	       READ_ONCE(flow->ingress.has_queue);
}

/*
 * Returns true while level `auto` bundles one previous segment and sends no
 * copies: packets wait on the path, or the connections send many messages to
 * the peer's network.
 */
static __always_inline bool holds_back(const struct flow *flow)
{
	return is_congested(flow) ||
	       (is_unpublished_auto(&flow->options) &&
		flow->egress.governor_state.allowance.is_busy);
}

/* Maximum previous segments in a bundle; 0: no limit. */
static __always_inline __u32 allowed_packets(struct flow *flow)
{
	__u32 limit = flow->options.max_packets, level;

	if (flow->options.level == LEVEL_FIXED)
		return limit;
	level = READ_ONCE(flow->ingress.level);
	if (level > 1 && holds_back(flow))
		level = 1;
	return limit && limit < level ? limit : level;
}

#endif /* PILLION_LEVEL_H */
