/* SPDX-License-Identifier: GPL-2.0-only */
/* What rules ask of a connection. */
#ifndef PILLION_CONNECTION_H
#define PILLION_CONNECTION_H

#include "endpoints.h"
#include "rule.h"

#define CGROUP_LEVELS 16

struct connection {
	struct endpoints ends;
	__u64 cgroups[CGROUP_LEVELS]; /* ids, from its own on upwards */
	__u32 uid;
	enum opening opening;
};

static __always_inline __u32 uid_of(struct tcp_sock *tp)
{
	return ((struct sock *)tp)->sk_uid.val;
}

/*
 * Describes a connection for the rules. It is all zero before: the cgroups
 * above the root stay so.
 */
static __always_inline void describe(struct tcp_sock *tp, enum opening opening,
				     struct connection *connection)
{
	struct sock *sk = (struct sock *)tp;
	struct cgroup *cgroup = sk->sk_cgrp_data.cgroup;
	struct cgroup_subsys_state *above;

	read_ends(&sk->__sk_common, &connection->ends);
	connection->uid = uid_of(tp);
	connection->opening = opening;
	for (int i = 0; i < CGROUP_LEVELS && cgroup; i++) {
		connection->cgroups[i] = cgroup->kn->id;
		above = cgroup->self.parent;
		cgroup = above ? above->cgroup : NULL;
	}
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
	struct cgroup_subsys_state *above;

	for (int i = 0; i < DEEPEST && cgroup; i++) {
		if (cgroup->kn->id == id)
			return true;
		above = cgroup->self.parent;
		cgroup = above ? above->cgroup : NULL;
	}
	return false;
}

#endif /* PILLION_CONNECTION_H */
