/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The cheapest redundancy that is enough: previous segments and copies, by the
 * losses of this connection.
 *
 * A message is late if its extra delay exceeds the deadline. A bundle repairs
 * it in time if it is one of the next deadline / ITT messages; a copy always
 * does. Bundles are cheaper, so copies of all segments start only if bundles
 * leave more late messages than the target, and end once the losses of single
 * packets show that bundles would do. Levels are those of level.h.
 *
 * Isolated segments, which no bundle repairs in time, are copied from the
 * start, because they are few. All segments are copied after at least
 * MIN_SEGMENTS with clearly more late messages than the target: three seen and
 * four times the target, or twice the target as expected from six losses. Each
 * of the two ends after at least 1 << hold_bits decisions, if half the target
 * would be met without it. Each start for all segments doubles that minimum, up
 * to 1 << MAX_HOLD_BITS. So a loss rate between the conditions causes no
 * change, and one that alternates causes fewer and fewer changes. Copies of
 * isolated segments start again if the target is missed. They do not end while
 * the next message is in time: none are sent then, so nothing is learned.
 *
 * While packets wait on the path, losses are a sign of congestion, and more
 * redundancy causes more of them. `auto` then does what the published mechanism
 * does: one previous segment, no copies, and a reaction to each hidden loss
 * (note_queue() in governor.h). With many messages to one network, `auto`
 * bundles one previous segment and sends no copies (holds_back()).
 */
#ifndef PILLION_AUTO_H
#define PILLION_AUTO_H

#include "level.h"

#define MIN_SEGMENTS  64
#define DECIDE_EVERY  16 /* small segments */
#define MIN_HOLD_BITS 3
#define MAX_HOLD_BITS 7
#define MAX_DECISIONS 0xff /* ingress.decisions */
#define MAX_WAITING   64

/*
 * The default deadline is the ITT, at most this because people notice longer
 * delays, plus a margin.
 */
#define MAX_DEADLINE_ITT_US 100000
#define DEADLINE_MARGIN_US  5000

/* The extra delay at which a message is late. */
static __always_inline __u32 deadline_us(const struct options *options,
					 __u32 itt_us)
{
	if (options->deadline_ms)
		return options->deadline_ms * 1000U;
	if (itt_us > MAX_DEADLINE_ITT_US)
		itt_us = MAX_DEADLINE_ITT_US;
	return itt_us + DEADLINE_MARGIN_US;
}

/*
 * The number of following messages whose bundles are in time: 0 if the next
 * message is usually after the deadline; 1 if the ITT is unknown.
 */
static __always_inline __u32 messages_in_time(const struct options *options,
					      __u32 itt_us)
{
	return itt_us ? deadline_us(options, itt_us) / itt_us : 1;
}

/*
 * The number of messages that wait for a retransmission, which takes about an
 * RTT.
 */
static __always_inline __u32 messages_waiting(__u32 itt_us, __u32 srtt_us)
{
	__u32 waiting = itt_us ? srtt_us / itt_us : 0;

	return waiting < MAX_WAITING ? waiting : MAX_WAITING;
}

/*
 * Returns 1 if bundles in time leave too many late messages, otherwise 0. For
 * isolated segments, one loss is enough. The numbers are those of
 * choose_level(). A global function, so that the verifier checks the loop once.
 */
__noinline int are_bundles_insufficient(const struct ingress *ingress,
					__u32 in_time, __u32 target_ppm,
					int isolated)
{
	__u64 unrepaired = 0, runs = 0, shorter, at, tolerable, expected;
	__u32 k;

	if (!ingress)
		return 0;
	for (k = 0; k < RUN_LENGTHS; k++) {
		runs += ingress->runs[k];
		unrepaired += (k + 1) * (__u64)ingress->runs[k];
	}
	shorter = (__u64)ingress->run_segments * ends_acknowledged(ingress) /
		  ENDS;
	/* Times PPM, like all that it is compared with. */
	tolerable = shorter * target_ppm;
	if (isolated)
		return unrepaired * PPM > tolerable;
	if (ingress->run_segments < MIN_SEGMENTS)
		return 0;
	at = unrepaired;
	for (k = 0; k < RUN_LENGTHS && k < in_time; k++) {
		unrepaired -= runs;
		runs -= ingress->runs[k];
		at = ingress->runs[k];
		if (k + 1 < in_time)
			shorter = at;
	}
	if (unrepaired >= 3 && unrepaired * PPM > 4 * tolerable)
		return 1;
	expected = shorter ? at * at * PPM / shorter : 0;
	return at >= 6 && expected > 2 * tolerable;
}

/* All losses of segments that bundles can repair. */
static __always_inline __u64 lost_segments(const struct ingress *ingress)
{
	__u64 lost = 0;

	for (int k = 0; k < RUN_LENGTHS; k++)
		lost += (k + 1) * (__u64)ingress->runs[k];
	return lost;
}

/*
 * Returns 1 if bundles without copies would meet half the target. Of copied
 * segments, those with one lost packet have no report (copy_loss.h): twice the
 * loss rate of single packets. Without copies, as in an observation, that rate
 * is that of the segments. A global function, so that the verifier does not
 * follow every case.
 */
__noinline int are_bundles_sufficient(const struct ingress *ingress,
				      __u32 in_time, __u32 target_ppm)
{
	const struct copy_reports *reports;
	__u64 loss_ppm, late_ppm;
	__s32 missing;

	if (!ingress)
		return 0;
	reports = &ingress->copy_reports;
	/* The report of the newest segment is on its way. */
	missing = reports->expected - reports->received - ENDS;
	if (missing < 0)
		missing = 0;
	if (reports->expected)
		loss_ppm = (__u64)missing * PPM / 2 / reports->expected;
	else
		loss_ppm = lost_segments(ingress) * PPM /
			   (ingress->run_segments ?: 1);
	late_ppm = in_time ? loss_ppm * loss_ppm / PPM : loss_ppm;
	return late_ppm * 2 < target_ppm;
}

/* Sets the number of copies; counts of losses start again. */
static __always_inline void set_copies(struct ingress *ingress, __u8 copies)
{
	int k;

	WRITE_ONCE(ingress->copies, copies);
	ingress->decisions = 0;
	ingress->run_segments = 0;
	for (k = 0; k < RUN_LENGTHS; k++)
		ingress->runs[k] = 0;
	ingress->copy_reports = (struct copy_reports){};
}

/*
 * Chooses previous segments and copies after an ACK. `segments_before` is
 * run_segments before it: the ACKs of full segments cause no decision. A global
 * function, so that the verifier does not follow every case.
 */
__noinline int choose_redundancy(struct flow *flow, __u32 segments_before,
				 __u32 itt_us, __u32 srtt_us)
{
	__u32 in_time, target_ppm;
	bool insufficient, isolated;
	struct ingress *ingress;

	if (!flow)
		return 0;
	ingress = &flow->ingress;
	target_ppm = flow->options.target_ppm;
	if (ingress->run_segments / DECIDE_EVERY ==
	    segments_before / DECIDE_EVERY)
		return 0;
	if (ingress->decisions < MAX_DECISIONS)
		ingress->decisions++;
	WRITE_ONCE(ingress->level,
		   choose_level(ingress, target_ppm,
				messages_waiting(itt_us, srtt_us)));
	in_time = messages_in_time(&flow->options, itt_us);
	isolated = !in_time && itt_us > srtt_us;
	insufficient = are_bundles_insufficient(ingress, in_time, target_ppm,
						isolated);
	/*
	 * Losses of a full queue say nothing about the time after it. Those of
	 * isolated segments count: their apparent queue may be delayed ACKs.
	 */
	if (is_congested(flow)) {
		if (ingress->copies == AUTO_COPIES_ALL)
			set_copies(ingress, AUTO_COPIES_ISOLATED);
		if (!isolated)
			return 0;
	}
	if (ingress->copies != AUTO_COPIES_ALL && !isolated && insufficient) {
		if (ingress->hold_bits < MIN_HOLD_BITS)
			ingress->hold_bits = MIN_HOLD_BITS;
		if (ingress->hold_bits < MAX_HOLD_BITS)
			ingress->hold_bits++;
		set_copies(ingress, AUTO_COPIES_ALL);
	} else if (ingress->copies == AUTO_COPIES_NONE && insufficient) {
		set_copies(ingress, AUTO_COPIES_ISOLATED);
	} else if ((ingress->copies == AUTO_COPIES_ALL ||
		    (ingress->copies == AUTO_COPIES_ISOLATED && !in_time)) &&
		   ingress->decisions >>
			   (ingress->hold_bits ?: MIN_HOLD_BITS) &&
		   are_bundles_sufficient(ingress, in_time, target_ppm)) {
		set_copies(ingress, ingress->copies - 1);
	}
	return 0;
}

#endif /* PILLION_AUTO_H */
