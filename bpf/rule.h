/* SPDX-License-Identifier: GPL-2.0-only */
/* The policy's form in the kernel, and the contract with user space about it.
 */
#ifndef PILLION_RULE_H
#define PILLION_RULE_H

#include "flow.h"

#define MAX_RULES 64 /* in one table */
#define ANY_UID	  (~0U)

/* Who opened a connection; a rule has a set of these. */
enum opening {
	OPENED_HERE = 1, /* connect() */
	OPENED_BY_PEER = 2, /* accept() */
	OPENED_BEFORE = 4, /* older than pillion: not known */
};

/* In host order, both ends included. */
struct port_range {
	__u16 first;
	__u16 last;
};

/* Matches a connection of which all of this is true. */
struct rule {
	__u64 peer[2]; /* IPv4 as ::ffff:a.b.c.d */
	__u64 peer_mask[2];
	__u64 cgroup; /* its id, or that of one above; 0: any */
	struct port_range ports; /* the local or the remote one */
	struct port_range local_ports;
	struct port_range remote_ports;
	__u32 uid; /* or ANY_UID */
	__u32 openings; /* a set of enum opening */
	__u32 bundle; /* else leave its segments alone */
	struct options options;
	struct companions companions;
};

/* The first rule that matches decides; without one, a connection is left alone.
 */
struct rules {
	__u32 count;
	struct rule rules[MAX_RULES];
};

#endif /* PILLION_RULE_H */
