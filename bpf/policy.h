/* SPDX-License-Identifier: GPL-2.0-only */
/* Which connections are ours, and how they become so. */
#ifndef PILLION_POLICY_H
#define PILLION_POLICY_H

#include "connection.h"
#include "maps.h"

/* Set before the programs are loaded. */
const volatile __u64 netns_cookie = 0; /* 0: any network namespace */

/*
 * Two tables, of which one is in force. User space writes the other one and
 * then says that it is in force, so that nobody ever sees half a policy.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct rules);
} pillion_rules SEC(".maps");

/* Which table that is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} pillion_in_force SEC(".maps");

static __always_inline bool is_in(const struct port_range *range, __u16 port)
{
	return range->first <= port && port <= range->last;
}

static __always_inline bool matches(const struct rule *rule,
				    const struct connection *connection)
{
	const struct endpoints *ends = &connection->ends;
	const __u64 *peer = (const __u64 *)ends->peer;

	if (!(rule->openings & connection->opening))
		return false;
	if (rule->uid != ANY_UID && rule->uid != connection->uid)
		return false;
	if (!is_in(&rule->local_ports, ends->local_port) ||
	    !is_in(&rule->remote_ports, ends->peer_port))
		return false;
	if (!is_in(&rule->ports, ends->local_port) &&
	    !is_in(&rule->ports, ends->peer_port))
		return false;
	if ((peer[0] & rule->peer_mask[0]) != rule->peer[0] ||
	    (peer[1] & rule->peer_mask[1]) != rule->peer[1])
		return false;
	if (!rule->cgroup)
		return true;
	for (int i = 0; i < CGROUP_LEVELS; i++)
		if (connection->cgroups[i] == rule->cgroup)
			return true;
	return false;
}

/*
 * True if the connection is to be bundled, and then how; and which companions
 * it gets, bundled or not. A global function: the verifier looks at its loops
 * apart from all that a caller may know.
 */
__noinline int is_covered(const struct connection *connection,
			  struct options *options,
			  struct companions *companions)
{
	const struct rule *rule;
	const struct rules *all;
	__u32 key = 0, *in_force;

	in_force = bpf_map_lookup_elem(&pillion_in_force, &key);
	if (!in_force || !connection || !options || !companions)
		return false;
	key = *in_force;
	all = bpf_map_lookup_elem(&pillion_rules, &key);
	if (!all)
		return false;
	for (int i = 0; i < MAX_RULES && i < all->count; i++) {
		rule = &all->rules[i];
		if (!matches(rule, connection))
			continue;
		*options = rule->options;
		*companions = rule->companions;
		return rule->bundle;
	}
	return false;
}

/* The connection is ours from now on, if there is memory. */
static __always_inline struct flow *take_in(void *sk, struct tcp_sock *tp,
					    enum opening opening,
					    const struct options *options)
{
	struct flow *flow = bpf_sk_storage_get(&pillion_flows, sk, NULL,
					       BPF_SK_STORAGE_GET_F_CREATE);
	__u32 snd_nxt = tp->snd_nxt;
	struct totals *all = totals();

	if (!all)
		return NULL;
	if (!flow) {
		all->connections_refused++;
		return NULL;
	}
	all->connections++;
	flow->opening = opening;
	flow->options = *options;
	flow->loss_rule = options->loss_rule;
	flow->level = 1;
	flow->sack = BPF_CORE_READ_BITFIELD(tp, rx_opt.sack_ok);
	flow->reacted_at = snd_nxt;
	flow->again_start = snd_nxt;
	flow->again_end = snd_nxt;
	flow->sent_end = snd_nxt;
	flow->segments = 0;
	return flow;
}

/*
 * It goes on with other options, and what was learnt of it holds. A packet that
 * is leaving at this moment may meet some of each; any mixture is a valid one.
 */
static __always_inline void change_options(struct flow *flow,
					   const struct options *options)
{
	if (flow->options.loss_rule != options->loss_rule) {
		flow->loss_rule = options->loss_rule;
		flow->unreported = 0;
	}
	flow->options = *options;
}

#endif /* PILLION_POLICY_H */
