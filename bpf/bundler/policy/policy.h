/* SPDX-License-Identifier: GPL-2.0-only */
/* Decides which connections are covered, and adds them. */
#ifndef PILLION_POLICY_H
#define PILLION_POLICY_H

#include "tcp_options.h"
#include "connection.h"
#include "helper_port.h"
#include "../maps.h"
#include "multipath.h"
#include "quota.h"
#include "../loss/reaction.h"
#include "../tx/history.h"
#include "../tx/record.h"
#include "../tx/thin.h"
#include "request.h"

/*
 * Two tables, one of them active. User space writes the other one and then
 * activates it, so that no packet sees half a policy, unless the policy changes
 * twice during one packet.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct rules);
} pillion_rules SEC(".maps");

/* The index of the active table. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} pillion_active_table SEC(".maps");

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

static __always_inline bool contains_port(const struct port_range *range,
					  __u16 port)
{
	return range->first <= port && port <= range->last;
}

/* Returns the bits of the rules that name a cgroup of the connection. */
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
	const struct endpoints *endpoints = &connection->endpoints;
	const __u64 *peer = (const __u64 *)endpoints->peer;

	if (!(rule->open_kinds & connection->open_kind))
		return false;
	if (rule->uid != ANY_UID && rule->uid != connection->uid)
		return false;
	if (!contains_port(&rule->local_ports, endpoints->local_port) ||
	    !contains_port(&rule->remote_ports, endpoints->peer_port))
		return false;
	if (!contains_port(&rule->ports, endpoints->local_port) &&
	    !contains_port(&rule->ports, endpoints->peer_port))
		return false;
	if ((peer[0] & rule->peer_mask[0]) != rule->peer[0] ||
	    (peer[1] & rule->peer_mask[1]) != rule->peer[1])
		return false;
	if (rule->ipv6 && is_ipv4(endpoints->peer))
		return false;
	/* Unknown cgroups may match. */
	return !rule->cgroups || rule->cgroups & by_cgroup ||
	       connection->is_too_deep;
}

static __always_inline __u32 active_table(void)
{
	__u32 key = 0, *active;

	active = bpf_map_lookup_elem(&pillion_active_table, &key);
	return active ? *active : 0;
}

static __always_inline const struct rules *active_rules(void)
{
	__u32 table = active_table();

	return bpf_map_lookup_elem(&pillion_rules, &table);
}

/*
 * Finds the rule for the connection and its TCP options, bundled or not;
 * returns 0. A global function, so that the verifier checks its loops
 * independently of the caller.
 */
__noinline int find_rule_decision(const struct connection *connection,
				  struct rule_decision *rule_decision,
				  struct tcp_options *tcp_options)
{
	const struct rules *all;
	const struct rule *rule;
	bool has_helper_port;
	__u64 by_cgroup = 0;
	__u32 table = active_table();

	all = bpf_map_lookup_elem(&pillion_rules, &table);
	if (!all || !connection || !rule_decision || !tcp_options)
		return -1;
	/*
	 * Scratch space, because this function has no stack left: the bits of
	 * the ports, until a rule matches. Invalid if this returns -1.
	 */
	rule_decision->rule = helper_ports(connection->endpoints.local_port,
					   connection->endpoints.peer_port);
	if (all->uses_cgroups)
		by_cgroup = rules_of_cgroups(connection, table);
	for (int i = 0; i < MAX_RULES && i < all->count; i++) {
		rule = &all->rules[i];
		if (!matches(rule, connection, by_cgroup))
			continue;
		has_helper_port = rule_decision->rule & ~rule->helper_ports;
		rule_decision->mode = has_helper_port ? RULE_NEVER : rule->mode;
		rule_decision->rule = has_helper_port ? 0 : rule->number;
		rule_decision->open_kind = connection->open_kind;
		rule_decision->options = rule->options;
		if (rule->cgroups && connection->is_too_deep) {
			rule_decision->mode = RULE_NEVER;
			return 0;
		}
		*tcp_options = rule->tcp_options;
		return 0;
	}
	return -1;
}

/*
 * Decides for a connection without a stored decision: no rule matches it.
 * Returns 0, or -1 if rules use the open kind, because the decision is then
 * always stored.
 */
__noinline int decide_unmatched(struct rule_decision *rule_decision,
				__u32 local_port, __u32 peer_port)
{
	const struct rules *all = active_rules();
	__u32 last;

	if (!all || !rule_decision || all->uses_open_kind)
		return -1;
	last = all->count - 1;
	if (last >= MAX_RULES)
		return -1;
	rule_decision->mode = helper_ports(local_port, peer_port)
				      ? RULE_NEVER
				      : all->rules[last].mode;
	rule_decision->rule = 0;
	rule_decision->open_kind = PREEXISTING;
	rule_decision->options = all->rules[last].options;
	return 0;
}

static __always_inline bool refuses_all(void)
{
	const struct rules *all = active_rules();

	return !all || all->refuse_all;
}

/*
 * Returns true if the decision cannot be recomputed later. The open kind
 * also has to survive a hand-over to another pillion.
 */
static __always_inline bool
must_store_decision(const struct rule_decision *rule_decision)
{
	const struct rules *all = active_rules();

	return (all && all->uses_open_kind) ||
	       (rule_decision->mode != RULE_BUNDLE && rule_decision->rule);
}

/* The policy's result for a connection. */
struct policy_decision {
	struct rule_decision rule_decision;
	struct tcp_options tcp_options; /* of the rule, bundled or not */
	__u32 is_retry; /* in: the socket was refused a slot before */
};

/* TCP_REPAIR sets the peer's SACK option last. */
static __always_inline enum sack read_sack(struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, repair))
		return SACK_UNKNOWN;
	return BPF_CORE_READ_BITFIELD(tp, rx_opt.sack_ok) ? SACK_OFFERED
							  : SACK_MISSING;
}

/* TCP's progress when a connection is added. */
struct initial_state {
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 total_retrans;
	__u32 data_segs_out;
	enum sack sack;
	__u32 uid; /* the user whose slot it takes */
	__u32 is_retry; /* it was refused a slot before */
};

/*
 * Creates the stored state of a socket, if memory and a slot are available. It
 * copies an earlier decline that had no slot.
 */
static __always_inline struct request *
create_request(void *sk, __u32 uid, const struct flow *flow, bool is_retry)
{
	struct request *request;

	if (!take_slot(uid, REQUEST_SLOT_SHARE, is_retry))
		return NULL;
	request = bpf_sk_storage_get(&pillion_requests, sk, NULL,
				     BPF_SK_STORAGE_GET_F_CREATE);
	if (!request)
		return NULL;
	request->uid = uid;
	if (flow && flow->disabled_by_application)
		request->bundling = APP_OFF;
	return request;
}

/* Adds the connection, if memory and a slot are available. */
static __always_inline struct flow *
add_flow(void *sk, const struct initial_state *initial_state,
	 const struct rule_decision *rule_decision)
{
	struct totals *all = totals();
	struct ingress *ingress;
	struct egress *egress;
	struct flow *flow;

	if (!all || !take_slot(initial_state->uid, CONNECTION_SLOT_SHARE,
			       initial_state->is_retry))
		return NULL;
	flow = bpf_sk_storage_get(&pillion_flows, sk, NULL,
				  BPF_SK_STORAGE_GET_F_CREATE);
	if (!flow) {
		ADD_TO(all->connections_failed, 1);
		return NULL;
	}
	ADD_TO(all->connections, 1);
	flow->open_kind = rule_decision->open_kind;
	flow->sack = initial_state->sack;
	flow->uid = initial_state->uid;
	/* Before the first data only the handshake can be retransmitted. */
	if (!initial_state->data_segs_out)
		flow->handshake_retransmissions = initial_state->total_retrans;
	egress = &flow->egress;
	reset_record(&egress->record, initial_state->snd_una);
	/* Outstanding data is recorded as one segment. */
	add_segment(&egress->record, initial_state->snd_nxt, 0, now_us());
	egress->counted_end = initial_state->snd_nxt;
	egress->retransmissions = initial_state->total_retrans;
	egress->rtt_min_us = NO_RTT_SAMPLE;
	egress->prior_cwnd = PRIOR_CWND_UNKNOWN;
	egress->reduction_end = initial_state->snd_una;
	egress->final_reduction_end = initial_state->snd_una;
	egress->undone_reduction_end = initial_state->snd_una;
	egress->left_to_tcp_end = initial_state->snd_una;
	egress->retrans.snd_una_at_start = initial_state->snd_una;
	egress->retrans.end = initial_state->snd_una;
	egress->path.probe_end = initial_state->snd_una;
	egress->path.round_end = initial_state->snd_una;
	egress->piggyback_seq = initial_state->snd_una;
	egress->piggyback_start = initial_state->snd_una;
	egress->piggyback_end = initial_state->snd_una;
	ingress = &flow->ingress;
	ingress->acked = initial_state->snd_una;
	ingress->bundle_end = initial_state->snd_una;
	ingress->configured_loss_rule = rule_decision->options.loss_rule;
	ingress->loss_rule = rule_decision->options.loss_rule;
	ingress->level = 1;
	ingress->copies = AUTO_COPIES_ISOLATED;
	return flow;
}

/* In place, because a copy would exceed the stack. */
static __always_inline void
set_options(struct flow *flow, const struct rule_decision *rule_decision,
	    const struct request *request)
{
	if (flow->options.holdback != rule_decision->options.holdback)
		flow->arm = ARM_NONE; /* the next packet assigns it */
	flow->options = rule_decision->options;
	if (request)
		restrict_options(&flow->options, request);
}

/*
 * Applies the decision of the rules and the application. Returns NULL if the
 * connection is not bundled.
 *
 * A connection that its application disabled keeps its state: bundles in flight
 * are observed until they are acknowledged, to react to the losses they hide.
 */
static __always_inline struct flow *
apply_decision(void *sk, struct flow *flow, const struct request *request,
	       const struct rule_decision *rule_decision,
	       const struct initial_state *initial_state)
{
	if (!should_bundle(rule_decision, request)) {
		erase_history(flow);
		if (flow && rule_decision->mode != RULE_NEVER && request &&
		    request->bundling == APP_OFF) {
			flow->disabled_by_application = 1;
			set_options(flow, rule_decision, request);
			flow->rule = rule_decision->rule;
		} else if (flow) {
			bpf_sk_storage_delete(&pillion_flows, sk);
		}
		return NULL;
	}
	/*
	 * New options keep the learned state. A packet that leaves at this
	 * moment may see a mixture of both; any mixture is valid.
	 */
	if (!flow)
		flow = add_flow(sk, initial_state, rule_decision);
	if (!flow)
		return NULL;
	set_options(flow, rule_decision, request);
	/* Without a request, the decline was stored only here. */
	if (request)
		flow->disabled_by_application = 0;
	flow->rule = rule_decision->rule;
	flow->requested_by = rule_decision->mode == RULE_BUNDLE
				     ? REQUESTED_BY_RULE
				     : REQUESTED_BY_APPLICATION;
	return flow;
}

/*
 * Evaluates the rules again, and applies them and the application's request to
 * a connection; returns NULL if it is not bundled. A decision that leaves
 * bundling to the application, or forbids it, is stored. A decline without a
 * slot is stored as well.
 */
static __always_inline struct flow *
apply_policy(void *sk, struct tcp_sock *tp, struct flow *flow,
	     struct request *request, enum open_kind open_kind,
	     struct policy_decision *decision)
{
	struct connection connection = {};
	struct initial_state initial_state = {};
	struct rule_decision *rule_decision = &decision->rule_decision;

	fill_connection(tp, open_kind, &connection);
	if (find_rule_decision(&connection, rule_decision,
			       &decision->tcp_options))
		return NULL;
	if (!request && (must_store_decision(rule_decision) ||
			 (flow && flow->disabled_by_application)))
		request = create_request(sk, connection.uid, flow,
					 decision->is_retry);
	if (request)
		request->rule_decision = *rule_decision;
	initial_state.snd_nxt = tp->snd_nxt;
	initial_state.snd_una = tp->snd_una;
	initial_state.total_retrans = tp->total_retrans;
	initial_state.data_segs_out = tp->data_segs_out;
	/* The next packet also shows whether MPTCP was used. */
	initial_state.sack = open_kind == ACTIVE_OPEN ? read_sack(tp)
						      : SACK_UNKNOWN;
	initial_state.uid = connection.uid;
	initial_state.is_retry = decision->is_retry;
	return apply_decision(sk, flow, request, rule_decision, &initial_state);
}

/* Excludes a connection whose peer may have used MPTCP. */
static __always_inline struct request *
mark_multipath(void *sk, const struct flow *flow, struct request *request)
{
	if (!request)
		request = create_request(sk, flow->uid, flow, false);
	if (request)
		request->multipath = 1;
	return request;
}

/*
 * Rechecks the policy with the next packet, for what a socket option cannot
 * see: SACK and MPTCP of the peer, and a rule decision that was not stored for
 * lack of memory.
 */
static __always_inline struct flow *recheck_policy(struct bpf_sock *sk,
						   struct flow *flow)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct policy_decision decision = {};
	struct request *request;

	if (!tp)
		return NULL;
	flow->sack = read_sack(tp);
	request = bpf_sk_storage_get(&pillion_requests, sk, NULL, 0);
	if (may_be_multipath(sk, flow)) {
		request = mark_multipath(sk, flow, request);
		if (!request) {
			erase_history(flow);
			bpf_sk_storage_delete(&pillion_flows, sk);
			return NULL;
		}
	}
	return apply_policy(sk, tp, flow, request, flow->open_kind, &decision);
}

#endif /* PILLION_POLICY_H */
