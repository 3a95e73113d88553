/* SPDX-License-Identifier: GPL-2.0-only */
/* The properties of a connection that rules match. */
#ifndef PILLION_CONNECTION_H
#define PILLION_CONNECTION_H

#include "../endpoints.h"
#include "rule.h"

/* Maximum number of stored cgroups, the root included. */
#define CGROUP_LEVELS 14
/* Maximum steps to the root; deeper sockets count as too deep. */
#define MAX_CGROUP_DEPTH 64

struct connection {
	struct endpoints endpoints;
	/* ids of its cgroups nearest to the root, unordered; 0: unused */
	__u64 cgroups[CGROUP_LEVELS];
	__u64 is_too_deep; /* 1: more than MAX_CGROUP_DEPTH steps to the root */
	__u32 uid;
	enum open_kind open_kind;
};

static __always_inline __u32 uid_of(struct tcp_sock *tp)
{
	return ((struct sock *)tp)->sk_uid.val;
}

/* The parent; NULL for the root. */
static __always_inline struct cgroup *parent_of(struct cgroup *cgroup)
{
	struct cgroup_subsys_state *parent = cgroup->self.parent;

	return parent ? parent->cgroup : NULL;
}

/*
 * Fills in a connection for the rules. It must be zeroed: unused cgroup entries
 * stay 0. If there are too many cgroups, the deepest are dropped, so that a
 * user who creates cgroups below a matched one cannot leave the rule.
 */
static __always_inline void fill_connection(struct tcp_sock *tp,
					    enum open_kind open_kind,
					    struct connection *connection)
{
	struct sock *sk = (struct sock *)tp;
	struct cgroup *cgroup = sk->sk_cgrp_data.cgroup;
	int slot = 0;

	read_endpoints(&sk->__sk_common, &connection->endpoints);
	connection->uid = uid_of(tp);
	connection->open_kind = open_kind;
	for (int i = 0; i < MAX_CGROUP_DEPTH && cgroup; i++) {
		/* No modulo operator: the verifier does not track it. */
		if (slot == CGROUP_LEVELS)
			slot = 0;
		connection->cgroups[slot++] = cgroup->kn->id;
		cgroup = parent_of(cgroup);
	}
	connection->is_too_deep = cgroup != NULL;
}

/* Maximum nesting of cgroups, more than in practice. */
#define MAX_CGROUP_WALK 256

/*
 * Returns true if the socket is in this cgroup or below. Programs attached to
 * the cgroup see no other sockets.
 */
static __always_inline bool is_below(struct tcp_sock *tp, __u64 id)
{
	struct cgroup *cgroup = ((struct sock *)tp)->sk_cgrp_data.cgroup;

	for (int i = 0; i < MAX_CGROUP_WALK && cgroup; i++) {
		if (cgroup->kn->id == id)
			return true;
		cgroup = parent_of(cgroup);
	}
	return false;
}

#endif /* PILLION_CONNECTION_H */
