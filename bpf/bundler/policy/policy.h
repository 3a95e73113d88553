/* SPDX-License-Identifier: GPL-2.0-only */
/* Which connections are ours, and how they become so. */
#ifndef PILLION_POLICY_H
#define PILLION_POLICY_H

#include "companions.h"
#include "connection.h"
#include "helper_port.h"
#include "../maps.h"
#include "multipath.h"
#include "quota.h"
#include "../loss/reaction.h"
#include "../tx/record.h"
#include "../tx/thin.h"
#include "request.h"

/*
 * Two tables, of which one is in force. User space writes the other one and
 * then says that it is in force, so that nobody sees half a policy, unless the
 * policy changes twice while one packet is looked at.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct rules);
} pillion_rules SEC(".maps");

/* Which table of rules is in force. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} pillion_in_force SEC(".maps");

/*
 * The cgroups that both tables' rules name: however many a rule names, it takes
 * one row.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct rule_cgroup);
	__type(value, __u64);
} pillion_rule_cgroups SEC(".maps");

static __always_inline bool is_in(const struct port_range *range, __u16 port)
{
	return range->first <= port && port <= range->last;
}

/*
 * The bits of the rules that name the connection's cgroup, or one above it.
 */
static __always_inline __u64
rules_of_cgroups(const struct connection *connection, __u32 table)
{
	struct rule_cgroup key = {.table = table};
	__u64 *bits, all = 0;

	for (int i = 0; i < CGROUP_LEVELS && connection->cgroups[i]; i++) {
		key.id = connection->cgroups[i];
		bits = bpf_map_lookup_elem(&pillion_rule_cgroups, &key);
		if (bits)
			all |= *bits;
	}
	return all;
}

/* by_cgroup has the bits of the rules that name a cgroup of the connection. */
static __always_inline bool matches(const struct rule *rule,
				    const struct connection *connection,
				    __u64 by_cgroup)
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
	if (rule->ipv6 && is_ipv4(ends->peer))
		return false;
	/* One whose cgroups are not known may be in those. */
	return !rule->cgroups || rule->cgroups & by_cgroup ||
	       connection->is_deep;
}

static __always_inline __u32 table_in_force(void)
{
	__u32 key = 0, *in_force;

	in_force = bpf_map_lookup_elem(&pillion_in_force, &key);
	return in_force ? *in_force : 0;
}

static __always_inline const struct rules *rules_in_force(void)
{
	__u32 table = table_in_force();

	return bpf_map_lookup_elem(&pillion_rules, &table);
}

/*
 * What the rules say of the connection, and which companions it gets, bundled
 * or not; returns 0. A global function: the verifier looks at its loops apart
 * from all that a caller may know.
 */
__noinline int find_grant(const struct connection *connection,
			  struct grant *grant, struct companions *companions)
{
	const struct rules *all;
	const struct rule *rule;
	bool is_helped;
	__u64 by_cgroup = 0;
	__u32 table = table_in_force();

	all = bpf_map_lookup_elem(&pillion_rules, &table);
	if (!all || !connection || !grant || !companions)
		return -1;
	/* Held there: this function has no stack left. */
	grant->rule = helper_ports(connection->ends.local_port,
				   connection->ends.peer_port);
	if (all->asks_cgroup)
		by_cgroup = rules_of_cgroups(connection, table);
	for (int i = 0; i < MAX_RULES && i < all->count; i++) {
		rule = &all->rules[i];
		if (!matches(rule, connection, by_cgroup))
			continue;
		is_helped = grant->rule & ~rule->helper_ports;
		grant->mode = is_helped ? LEAVE_ALONE : rule->mode;
		grant->rule = is_helped ? 0 : rule->number;
		grant->opening = connection->opening;
		grant->options = rule->options;
		if (rule->cgroups && connection->is_deep) {
			grant->mode = LEAVE_ALONE;
			return 0;
		}
		*companions = rule->companions;
		return 0;
	}
	return -1;
}

/*
 * What the rules say of a connection of which nothing is remembered: as far as
 * is known, no rule matches; returns 0. Where rules ask who opened it, that
 * would be remembered.
 */
__noinline int grant_unmatched(struct grant *grant, __u32 local_port,
			       __u32 peer_port)
{
	const struct rules *all = rules_in_force();
	__u32 last;

	if (!all || !grant || all->asks_opening)
		return -1;
	last = all->count - 1;
	if (last >= MAX_RULES)
		return -1;
	grant->mode = helper_ports(local_port, peer_port)
			      ? LEAVE_ALONE
			      : all->rules[last].mode;
	grant->rule = 0;
	grant->opening = OPENED_BEFORE;
	grant->options = all->rules[last].options;
	return 0;
}

static __always_inline bool refuses_all(void)
{
	const struct rules *all = rules_in_force();

	return !all || all->refuse_all;
}

/*
 * Could what the rules say not be found out again? Who opened a connection
 * outlives the programs so, which another pillion takes over.
 */
static __always_inline bool is_to_be_remembered(const struct grant *grant)
{
	const struct rules *all = rules_in_force();

	return (all && all->asks_opening) ||
	       (grant->mode != BUNDLE && grant->rule);
}

/* What the rules say of a connection. */
struct ruling {
	struct grant grant;
	struct companions companions; /* that it gets, bundled or not */
};

/* One that is being restored (TCP_REPAIR) is told what its peer offers last. */
static __always_inline enum sack read_sack(struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, repair))
		return SACK_UNKNOWN;
	return BPF_CORE_READ_BITFIELD(tp, rx_opt.sack_ok) ? SACK_OFFERED
							  : SACK_MISSING;
}

/* What TCP has done with a connection that is taken in. */
struct beginning {
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 total_retrans;
	__u32 data_segs_out;
	enum sack sack;
	__u32 uid; /* whose place it takes */
};

/*
 * Remembers something of the socket, if there is memory, and a place; and that
 * its application declined, where there was none for that.
 */
static __always_inline struct request *begin_request(void *sk, __u32 uid,
						     const struct flow *flow)
{
	struct request *request;

	if (!take_place(uid, REQUEST_SHARE))
		return NULL;
	request = bpf_sk_storage_get(&pillion_requests, sk, NULL,
				     BPF_SK_STORAGE_GET_F_CREATE);
	if (!request)
		return NULL;
	request->uid = uid;
	if (flow && flow->off)
		request->asked = ASKED_OFF;
	return request;
}

/* The connection is ours from now on, if there is memory, and a place. */
static __always_inline struct flow *
take_in(void *sk, const struct beginning *beginning, const struct grant *grant)
{
	struct totals *all = totals();
	struct ingress *ingress;
	struct egress *egress;
	struct flow *flow;

	if (!all || !take_place(beginning->uid, CONNECTION_SHARE))
		return NULL;
	flow = bpf_sk_storage_get(&pillion_flows, sk, NULL,
				  BPF_SK_STORAGE_GET_F_CREATE);
	if (!flow) {
		ADD_TO(all->connections_refused, 1);
		return NULL;
	}
	ADD_TO(all->connections, 1);
	flow->opening = grant->opening;
	flow->sack = beginning->sack;
	flow->uid = beginning->uid;
	/* Before the first data there is only the handshake to repeat. */
	if (!beginning->data_segs_out)
		flow->handshake_retransmissions = beginning->total_retrans;
	egress = &flow->egress;
	begin_record(&egress->record, beginning->snd_una);
	/* What is outstanding already stands in it as one segment. */
	add_segment(&egress->record, beginning->snd_nxt, 0, now_us());
	egress->retransmissions = beginning->total_retrans;
	egress->rtt_min_us = NO_RTT_SAMPLE;
	egress->prior_cwnd = PRIOR_CWND_UNKNOWN;
	egress->reduced_at = beginning->snd_una;
	egress->firm_at = beginning->snd_una;
	egress->undone_at = beginning->snd_una;
	egress->trusted_end = beginning->snd_una;
	egress->retrans.start = beginning->snd_una;
	egress->retrans.end = beginning->snd_una;
	egress->path.probe_end = beginning->snd_una;
	egress->path.round_end = beginning->snd_una;
	egress->along_seq = beginning->snd_una;
	egress->along_start = beginning->snd_una;
	egress->along_end = beginning->snd_una;
	ingress = &flow->ingress;
	ingress->acked = beginning->snd_una;
	ingress->bundle_end = beginning->snd_una;
	ingress->asked_rule = grant->options.loss_rule;
	ingress->rule = grant->options.loss_rule;
	ingress->level = 1;
	return flow;
}

/* In place: a copy would take too much of the stack. */
static __always_inline void set_options(struct flow *flow,
					const struct grant *grant,
					const struct request *request)
{
	flow->options = grant->options;
	if (request)
		narrow(&flow->options, request);
}

/*
 * Puts into effect what the rules and the application say. Returns NULL if the
 * connection is not bundled.
 *
 * One that its application switches off keeps its state: bundles on their way
 * are watched until they are acknowledged, for what they hide is to be reacted
 * to.
 */
static __always_inline struct flow *
put_into_effect(void *sk, struct flow *flow, const struct request *request,
		const struct grant *grant, const struct beginning *beginning)
{
	if (!is_wanted(grant, request)) {
		if (flow && grant->mode != LEAVE_ALONE && request &&
		    request->asked == ASKED_OFF) {
			flow->off = 1;
			set_options(flow, grant, request);
			flow->rule = grant->rule;
		} else if (flow) {
			bpf_sk_storage_delete(&pillion_flows, sk);
		}
		return NULL;
	}
	/*
	 * With other options it goes on, and what was learnt of it holds. A
	 * packet that is leaving at this moment may meet some of each; any
	 * mixture is a valid one.
	 */
	if (!flow)
		flow = take_in(sk, beginning, grant);
	if (!flow)
		return NULL;
	set_options(flow, grant, request);
	/* Without a request, it has declined where that found no place. */
	if (request)
		flow->off = 0;
	flow->rule = grant->rule;
	flow->wanted_by = grant->mode == BUNDLE ? WANTED_BY_RULE
						: WANTED_BY_APPLICATION;
	return flow;
}

/*
 * Puts into effect what the rules, which are asked anew, and the application
 * say of a connection; returns NULL if it is not bundled. Where a rule leaves
 * it to the application, or forbids it, that is remembered; so is what was
 * declined where no place was left.
 */
static __always_inline struct flow *
judge(void *sk, struct tcp_sock *tp, struct flow *flow, struct request *request,
      enum opening opening, struct ruling *ruling)
{
	struct connection connection = {};
	struct beginning beginning = {};
	struct grant *grant = &ruling->grant;

	describe(tp, opening, &connection);
	if (find_grant(&connection, grant, &ruling->companions))
		return NULL;
	if (!request && (is_to_be_remembered(grant) || (flow && flow->off)))
		request = begin_request(sk, connection.uid, flow);
	if (request)
		request->grant = *grant;
	beginning.snd_nxt = tp->snd_nxt;
	beginning.snd_una = tp->snd_una;
	beginning.total_retrans = tp->total_retrans;
	beginning.data_segs_out = tp->data_segs_out;
	/* Whether it came with MPTCP, the next packet tells as well. */
	beginning.sack = opening == OPENED_HERE ? read_sack(tp) : SACK_UNKNOWN;
	beginning.uid = connection.uid;
	return put_into_effect(sk, flow, request, grant, &beginning);
}

/* One whose peer may have begun it with MPTCP is not bundled. */
static __always_inline struct request *
remember_multipath(void *sk, const struct flow *flow, struct request *request)
{
	if (!request)
		request = begin_request(sk, flow->uid, flow);
	if (request)
		request->multipath = 1;
	return request;
}

/*
 * What a socket option cannot see of the connection that it takes in, the next
 * packet can: whether the peer offers SACK, or came with MPTCP; and what the
 * rules say, which may not have been remembered for want of memory.
 */
static __always_inline struct flow *look_again(struct bpf_sock *sk,
					       struct flow *flow)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct ruling ruling = {};
	struct request *request;

	if (!tp)
		return NULL;
	flow->sack = read_sack(tp);
	request = bpf_sk_storage_get(&pillion_requests, sk, NULL, 0);
	if (may_be_multipath(sk, flow)) {
		request = remember_multipath(sk, flow, request);
		if (!request) {
			bpf_sk_storage_delete(&pillion_flows, sk);
			return NULL;
		}
	}
	return judge(sk, tp, flow, request, flow->opening, &ruling);
}

#endif /* PILLION_POLICY_H */
