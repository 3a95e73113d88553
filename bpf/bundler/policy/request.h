/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the application asks of its socket, and how far the rules grant it.
 *
 * An application can only ask for less than the rules grant: whatever it says,
 * the connection takes its part in congestion control as the administrator has
 * decided.
 */
#ifndef PILLION_REQUEST_H
#define PILLION_REQUEST_H

#include "../../../include/pillion.h"
#include "rule.h"

#define PPM_BY_DEFAULT 1000 /* left unrepaired, where the rules do not say */

enum asked {
	UNSAID,
	ASKED_OFF,
	ASKED_ON,
};

struct request {
	enum asked asked;
	__u32 max_packets; /* 0: as granted; so are the next */
	__u32 max_bytes;
	__u32 mode;
	struct grant grant; /* opening 0: no connection was looked at */
	__u32 uid; /* whose place it takes (quota.h) */
	__u32 multipath; /* its peer's SYN offered MPTCP (multipath.h) */
};

/*
 * Sockets whose application asked for something, or whose connection's rule
 * leaves it to the application, or forbids it. Accepted sockets have what their
 * listener has.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct request);
} pillion_requests SEC(".maps");

/* Do the rules and the application together want it bundled? */
static __always_inline bool is_wanted(const struct grant *grant,
				      const struct request *request)
{
	enum asked asked = request ? request->asked : UNSAID;

	if (request && request->multipath)
		return false;
	if (grant->mode == BUNDLE)
		return asked != ASKED_OFF;
	return grant->mode == ALLOW && asked == ASKED_ON;
}

/* The lower of two limits, of which 0 is none. */
static __always_inline __u32 lower(__u32 a, __u32 b)
{
	return a && (!b || a < b) ? a : b;
}

static __always_inline void narrow(struct options *options,
				   const struct request *request)
{
	options->max_packets =
		lower(options->max_packets, request->max_packets);
	options->max_bytes = lower(options->max_bytes, request->max_bytes);
	if (request->mode & PILLION_ADAPTIVE && options->level == LEVEL_FIXED) {
		options->level = LEVEL_ADAPTIVE;
		options->target_ppm = PPM_BY_DEFAULT;
	}
	if (request->mode & PILLION_WAIT_FOR_LOSS)
		options->wait_for_loss = 1;
	if (request->mode & PILLION_REACT_CWR)
		options->reaction = REACT_CWR;
}

static __always_inline __u32 mode_in(const struct options *options)
{
	__u32 mode = 0;

	if (options->level == LEVEL_ADAPTIVE)
		mode |= PILLION_ADAPTIVE;
	if (options->wait_for_loss)
		mode |= PILLION_WAIT_FOR_LOSS;
	if (options->reaction == REACT_CWR)
		mode |= PILLION_REACT_CWR;
	return mode;
}

#endif /* PILLION_REQUEST_H */
