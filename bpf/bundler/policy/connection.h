/* SPDX-License-Identifier: GPL-2.0-only */
/* What rules ask of a connection. */
#ifndef PILLION_CONNECTION_H
#define PILLION_CONNECTION_H

#include "../endpoints.h"
#include "rule.h"

/* Those nearest the root by which rules are found, the root with them. */
#define CGROUP_LEVELS 14
/* Those on the way up to the root: of sockets deeper down nothing is known. */
#define CGROUP_STEPS 64

struct connection {
	struct endpoints ends;
	/* ids of those that it lies in, nearest the root; in no order */
	__u64 cgroups[CGROUP_LEVELS];
	__u64 is_deep; /* the way up to the root is too long */
	__u32 uid;
	enum opening opening;
};

static __always_inline __u32 uid_of(struct tcp_sock *tp)
{
	return ((struct sock *)tp)->sk_uid.val;
}

/* The one that it lies in; NULL: it is the root. */
static __always_inline struct cgroup *parent_of(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *parent = cgroup->self.parent;

	return parent ? parent->cgroup : NULL;
}

/*
 * Describes a connection for the rules. It is all zero before: places of more
 * cgroups than it lies in stay so. Who may make cgroups below one that a rule
 * names must not get out of the rule: the deepest are forgotten, not the
 * highest.
 */
static __always_inline void describe(struct tcp_sock *tp, enum opening opening,
				     struct connection *connection)
{
	struct sock *sk = (struct sock *)tp;
	struct cgroup *cgroup = sk->sk_cgrp_data.cgroup;
	int place = 0;

	read_ends(&sk->__sk_common, &connection->ends);
	connection->uid = uid_of(tp);
	connection->opening = opening;
	for (int i = 0; i < CGROUP_STEPS && cgroup; i++) {
		/* No remainder: the verifier knows none. */
		if (place == CGROUP_LEVELS)
			place = 0;
		connection->cgroups[place++] = cgroup->kn->id;
		cgroup = parent_of(cgroup);
	}
	connection->is_deep = cgroup != NULL;
}

/* Cgroups that one may lie in, each in the next: more than anybody nests. */
#define DEEPEST 256

/*
 * Is it a socket of this cgroup, or of one below? Programs that are attached
 * to the cgroup see no others.
 */
static __always_inline bool is_below(struct tcp_sock *tp, __u64 id)
{
	struct cgroup *cgroup = ((struct sock *)tp)->sk_cgrp_data.cgroup;

	for (int i = 0; i < DEEPEST && cgroup; i++) {
		if (cgroup->kn->id == id)
			return true;
		cgroup = parent_of(cgroup);
	}
	return false;
}

#endif /* PILLION_CONNECTION_H */
