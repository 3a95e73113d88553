/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The application's request for its socket, and its limits by the rules.
 *
 * An application can only request less than the rules allow. Congestion control
 * stays as the administrator configured it.
 */
#ifndef PILLION_REQUEST_H
#define PILLION_REQUEST_H

#include "../../../include/pillion.h"
#include "rule.h"

#define DEFAULT_TARGET_PPM 1000 /* default of options.target_ppm */

enum app_request {
	APP_UNSET,
	APP_OFF,
	APP_ON,
};

struct request {
	enum app_request bundling;
	__u32 max_packets; /* 0: no lower limit than the rule's */
	__u32 max_bytes; /* 0: no lower limit than the rule's */
	__u32 mode; /* PILLION_MODE bits; 0: as the rule configures it */
	/* open_kind is 0 while no decision is stored */
	struct rule_decision rule_decision;
	__u32 uid; /* the user whose slot it takes (quota.h) */
	__u32 multipath; /* 1: the peer may have used MPTCP (multipath.h) */
};

/*
 * Sockets whose application made a request, or whose rule is "on-request" or
 * "never". Accepted sockets inherit from their listener.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct request);
} pillion_requests SEC(".maps");

/* Returns true if rules and application agree on bundling. */
static __always_inline bool
should_bundle(const struct rule_decision *rule_decision,
	      const struct request *request)
{
	enum app_request bundling = request ? request->bundling : APP_UNSET;

	if (request && request->multipath)
		return false;
	if (rule_decision->mode == RULE_BUNDLE)
		return bundling != APP_OFF;
	return rule_decision->mode == RULE_ON_REQUEST && bundling == APP_ON;
}

/* The lower of two limits, where 0 means no limit. */
static __always_inline __u32 lower_limit(__u32 a, __u32 b)
{
	return a && (!b || a < b) ? a : b;
}

static __always_inline void restrict_options(struct options *options,
					     const struct request *request)
{
	options->max_packets =
		lower_limit(options->max_packets, request->max_packets);
	options->max_bytes =
		lower_limit(options->max_bytes, request->max_bytes);
	if (request->mode & PILLION_ADAPTIVE && options->level == LEVEL_FIXED) {
		options->level = LEVEL_ADAPTIVE;
		options->target_ppm = DEFAULT_TARGET_PPM;
	}
	if (request->mode & PILLION_WAIT_FOR_LOSS)
		options->wait_for_loss = 1;
	if (request->mode & PILLION_REACT_CWR)
		options->reaction = REACT_CWR;
}

static __always_inline __u32 mode_of(const struct options *options)
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
