/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The bundler: the eBPF programs and their hooks. A segment that TCP sends
 * passes cgroup_skb/egress (record and announcement), then tcx/egress (bundle).
 * A segment that arrives passes tcx/ingress (DSACK), then cgroup_skb/ingress
 * (ACK).
 *
 * "A global function" in a comment means a function that the verifier checks
 * once, independently of its callers. It assumes that each pointer argument may
 * be NULL, hence the checks at the start.
 *
 * No kfunc and no callback is used, so that the programs also run in the BPF
 * interpreter.
 */
#include "../vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "rx/process_ack.h"
#include "tx/tc_egress.h"
#include "closed.h"
#include "policy/tcp_options.h"
#include "sampling/assignment.h"
#include "policy/governor.h"
#include "policy/policy.h"
#include "loss/reaction.h"
#include "rx/dsack.h"
#include "policy/scope.h"
#include "sampling/sending_times.h"
#include "policy/socket_option.h"
#include "tx/cgroup_egress.h"
#include "socket_iter.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline struct flow *covered_flow(struct __sk_buff *skb,
						 struct bpf_sock **sk)
{
	*sk = skb->sk;
	return *sk ? bpf_sk_storage_get(&pillion_flows, *sk, NULL, 0) : NULL;
}

/* Handles a packet that leaves TCP; returns the verdict for the kernel. */
static __always_inline int
on_cgroup_egress(struct __sk_buff *skb, struct bpf_sock *sk, struct flow *flow)
{
	enum outcome parsed = UNPARSED_IP;
	struct segment seg = {};
	struct observation *observation;
	struct bpf_tcp_sock *btp;
	struct tcp_sock *tp;
	__u32 retransmissions;
	int verdict;

	if (flow->sack == SACK_UNKNOWN)
		flow = recheck_policy(sk, flow);
	btp = bpf_tcp_sock(sk);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!flow || !btp || !tp)
		return EGRESS_KEEP;
	if (!parse_ip(skb, &seg, 0, skb->protocol))
		parsed = parse_tcp(skb, &seg);
	else if (seg.in_tunnel)
		return EGRESS_KEEP; /* the inner packet passed before */
	if (!try_lock(&flow->egress.busy)) {
		WRITE_ONCE(flow->egress.missed_packet, 1);
		count(flow, BUSY);
		return EGRESS_KEEP;
	}
	/* For every packet, because sequence numbers advance. */
	refresh_marks(&flow->egress, btp->snd_una);
	verdict = react(flow, btp, tp);
	observation = observe(skb, flow, tp);
	retransmissions = flow->egress.retransmissions;
	if (parsed == UNPARSED_IP) {
		WRITE_ONCE(flow->egress.missed_packet, 1);
		note_unobserved_retransmission(&flow->egress, btp, 0);
		count(flow, UNPARSED_IP);
	} else if (seg.len) {
		record_segment(skb, flow, btp, tp, &seg, parsed);
	}
	if (observation && parsed != UNPARSED_IP && seg.len)
		observe_segment(observation, flow, btp, tp, &seg,
				retransmissions,
				skb->gso_size ? skb->gso_segs : 1);
	unlock(&flow->egress.busy);
	return verdict;
}

static __always_inline int on_tc_egress(struct __sk_buff *skb,
					enum link_header link)
{
	struct bpf_sock *sk;
	struct flow *flow = covered_flow(skb, &sk);

	if (!sk)
		restore_departure(skb);
	return flow ? handle_tc_egress(skb, sk, flow, link) : TCX_NEXT;
}

static __always_inline int on_tc_ingress(struct __sk_buff *skb,
					 enum link_header link)
{
	return relabel_dsack(skb, link) ? TCX_DROP : TCX_NEXT;
}

static __always_inline int on_state(struct bpf_sock_ops *ops)
{
	struct observation *observation;
	struct bpf_sock *sk = NULL;
	struct tcp_sock *tp;
	struct flow *flow;

	/* A closed socket may listen, or connect again, and close again. */
	if (ops->args[1] == BPF_TCP_CLOSE && ops->args[0] != BPF_TCP_LISTEN &&
	    ops->args[0] != BPF_TCP_SYN_SENT)
		sk = ops->sk;
	flow = sk ? bpf_sk_storage_get(&pillion_flows, sk, NULL, 0) : NULL;
	tp = flow ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return 1;
	store_closed_flow(tp, flow);
	erase_history(flow);
	observation = find_observation(ops);
	if (observation)
		observe_end(observation, flow, tp);
	return 1;
}

/* Every packet that leaves by a device with Ethernet headers. */
SEC("tcx/egress")
int pillion_egress(struct __sk_buff *skb)
{
	return on_tc_egress(skb, LINK_ETHERNET);
}

/* Every packet that arrives by a device with Ethernet headers. */
SEC("tcx/ingress")
int pillion_dsack(struct __sk_buff *skb)
{
	return on_tc_ingress(skb, LINK_ETHERNET);
}

/* Every packet that leaves by a device without link headers: a tunnel. */
SEC("tcx/egress")
int pillion_egress_ip(struct __sk_buff *skb)
{
	return on_tc_egress(skb, LINK_NONE);
}

/* Every packet that arrives by a device without link headers. */
SEC("tcx/ingress")
int pillion_dsack_ip(struct __sk_buff *skb)
{
	return on_tc_ingress(skb, LINK_NONE);
}

/* Every packet that arrives for a socket of the cgroup; none is changed. */
SEC("cgroup_skb/ingress")
int pillion_ingress(struct __sk_buff *skb)
{
	struct header_options options = {};
	struct option_positions found = {};
	struct bpf_tcp_sock *btp;
	struct tcp_sock *tp;
	struct bpf_sock *sk;
	struct flow *flow = covered_flow(skb, &sk);
	struct segment seg = {};
	struct ack ack = {};

	if (sk && sk->state == BPF_TCP_LISTEN) {
		store_syn(skb, sk);
		return 1;
	}
	if (!flow)
		return 1;
	btp = bpf_tcp_sock(sk);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!btp || !tp)
		return 1;
	if (parse_ip(skb, &seg, 0, skb->protocol)) {
		on_unparsed_packet(flow);
		return 1;
	}
	if (!is_acceptable(skb, &seg, tp, &ack) ||
	    parse_ack(skb, &seg, &options, &found, &ack))
		return 1;
	on_ack(flow, sk, btp, tp, &ack, &options, find_observation(skb));
	return 1;
}

/* Every packet that leaves a socket of the cgroup; none is changed. */
SEC("cgroup_skb/egress")
int pillion_transmit(struct __sk_buff *skb)
{
	struct bpf_sock *sk;
	struct flow *flow = covered_flow(skb, &sk);

	return flow ? on_cgroup_egress(skb, sk, flow) : EGRESS_KEEP;
}

/* A connection starts, is established in either direction, or ends. */
SEC("sockops")
int pillion_sockops(struct bpf_sock_ops *ops)
{
	enum open_kind open_kind = PREEXISTING;
	struct policy_decision decision = {};
	__u32 op = ops->op;
	struct tcp_sock *tp;
	struct bpf_sock *sk;
	struct flow *flow;
	struct request *request;

	if (op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
		open_kind = ACTIVE_OPEN;
	else if (op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		open_kind = PASSIVE_OPEN;
	else if (op == BPF_SOCK_OPS_STATE_CB)
		return on_state(ops);
	else if (op != BPF_SOCK_OPS_TCP_CONNECT_CB)
		return 1;
	sk = ops->sk;
	tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return 1;
	/*
	 * A socket can have several connections in turn. The next one's SYN may
	 * carry data, or the connection may be out of scope.
	 */
	flow = bpf_sk_storage_get(&pillion_flows, sk, NULL, 0);
	if (flow) {
		erase_history(flow);
		bpf_sk_storage_delete(&pillion_flows, sk);
	}
	request = bpf_sk_storage_get(&pillion_requests, sk, NULL, 0);
	if (request)
		request->multipath = 0;
	if (op == BPF_SOCK_OPS_TCP_CONNECT_CB) {
		if (request)
			request->rule_decision.open_kind = 0;
		return 1;
	}
	if (!context_in_scope(ops)) {
		/* Inherited from a listener whose namespace was in scope. */
		if (request && open_kind == PASSIVE_OPEN)
			bpf_sk_storage_delete(&pillion_requests, sk);
		return 1;
	}
	/*
	 * TCP also calls a connection passive if the SYNs crossed. But a socket
	 * from a listener has no file before accept().
	 */
	if (open_kind == PASSIVE_OPEN && ((struct sock *)tp)->sk_socket)
		open_kind = ACTIVE_OPEN;
	/* Inherited from the listener, without a slot of its own. */
	if (request && open_kind == PASSIVE_OPEN) {
		request->uid = uid_of(tp);
		if (!take_slot(request->uid, REQUEST_SLOT_SHARE, false)) {
			bpf_sk_storage_delete(&pillion_requests, sk);
			request = NULL;
		}
	}
	flow = apply_policy(sk, tp, NULL, request, open_kind, &decision);
	/* Now, because later SYNs may evict the entry. */
	if (flow && flow->open_kind == PASSIVE_OPEN)
		flow->syn_state = look_up_syn(sk, true);
	apply_tcp_options(ops, &decision.tcp_options, flow);
	if (flow || decision.rule_decision.mode != RULE_NEVER)
		watch_close(ops);
	return 1;
}

/* Connections on which a review sets TCP options. */
enum set_on {
	SET_ON_NEW, /* newly covered by their rule */
	SET_ON_ALL,
	SET_ON_NONE, /* none: the review retries connections without a slot */
};

/* The review's result for a connection. */
enum review_result {
	REVIEW_REFUSED, /* no slot or no memory for its state */
	REVIEW_COVERED,
};

struct review {
	__u64 cgroup; /* id of the programs' cgroup; 0: the root */
	enum set_on set_on;
	enum review_result result[0]; /* puts the type into BTF, for Rust */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct review);
} pillion_reviewed SEC(".maps");

#define NO_RULE (~0U)

/* The last matching rule; NO_RULE if nothing is stored. */
static __always_inline __u32 rule_of(const struct flow *flow,
				     const struct request *request)
{
	if (request && request->rule_decision.open_kind)
		return request->rule_decision.rule;
	return flow ? flow->rule : NO_RULE;
}

/* Returns true if the review retries connections that had no slot. */
static __always_inline bool is_retry(void)
{
	const struct review *review;
	__u32 zero = 0;

	review = bpf_map_lookup_elem(&pillion_reviewed, &zero);
	return review && review->set_on == SET_ON_NONE;
}

/* Returns true if this run covers the socket: it is in the cgroup. */
static __always_inline bool is_reviewed(struct tcp_sock *tp)
{
	const struct review *review;
	__u32 zero = 0;

	review = bpf_map_lookup_elem(&pillion_reviewed, &zero);
	return review && (!review->cgroup || is_below(tp, review->cgroup));
}

/*
 * Returns true if the review sets TCP options on a connection whose rule was
 * `before` and is `now`. Values that its application set later remain. A
 * connection without a slot got its options when it started, or when its
 * namespace was added.
 */
static __always_inline bool should_set_options(__u32 before, __u32 now)
{
	const struct review *review;
	__u32 zero = 0;

	review = bpf_map_lookup_elem(&pillion_reviewed, &zero);
	if (!review || review->set_on == SET_ON_NONE)
		return false;
	return review->set_on == SET_ON_ALL || before != now;
}

/*
 * Runs after attaching, for connections that existed before pillion, and after
 * each change of the rules or of the scope. Writes an enum review_result for
 * each connection that a rule or its application bundles.
 */
SEC("iter/tcp")
int pillion_review(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	enum open_kind open_kind = PREEXISTING;
	struct policy_decision decision = {};
	struct tcp_sock *tp;
	struct flow *flow;
	struct request *request;
	__u8 result = REVIEW_REFUSED;
	unsigned char state;
	__u32 before;

	tp = skc ? bpf_skc_to_tcp_sock(skc) : NULL;
	if (!tp)
		return 0;
	state = skc->skc_state;
	flow = bpf_sk_storage_get(&pillion_flows, skc, NULL, 0);
	if (!socket_in_scope(skc)) {
		erase_history(flow);
		if (flow)
			bpf_sk_storage_delete(&pillion_flows, skc);
		bpf_sk_storage_delete(&pillion_requests, skc);
		return 0;
	}
	if (!is_reviewed(tp))
		return 0;
	/* A listening socket has no connection, and no rule of one. */
	if (has_no_connection(skc) ||
	    (!flow && !(1 << (state & 15) & SENDING_STATES)))
		return 0;
	request = bpf_sk_storage_get(&pillion_requests, skc, NULL, 0);
	if (request && request->rule_decision.open_kind)
		open_kind = request->rule_decision.open_kind;
	else if (flow)
		open_kind = flow->open_kind;
	before = rule_of(flow, request);
	decision.is_retry = is_retry();
	flow = apply_policy(skc, tp, flow, request, open_kind, &decision);
	request = bpf_sk_storage_get(&pillion_requests, skc, NULL, 0);
	if (should_set_options(before, rule_of(flow, request)))
		apply_tcp_options(skc, &decision.tcp_options, flow);
	if (flow)
		watch_close_of_existing(skc, tp);
	if (flow)
		result = REVIEW_COVERED;
	else if (!should_bundle(&decision.rule_decision, request))
		return 0;
	bpf_seq_write(ctx->meta->seq, &result, 1);
	return 0;
}

/* A separate function puts the type into BTF, for Rust. */
static __noinline long output_entry(struct seq_file *seq,
				    struct socket_entry *entry)
{
	return bpf_seq_write(seq, entry, sizeof(*entry));
}

static __always_inline void write_entry(struct seq_file *seq, struct sock *sk,
					__u32 uid, enum slot_share share)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct socket_entry entry = {
		.cookie = bpf_get_socket_cookie(sk),
		.inode = read_inode(sk),
		.uid = uid,
		.packets_out = tp ? tp->packets_out : 0,
		.rtt_us = tp ? tp->srtt_us >> 3 : 0,
		.rtt_min_us = tp ? tp->rtt_min.s[0].v : 0,
		.share = share,
		.has_ended = has_no_connection(&sk->__sk_common),
	};

	output_entry(seq, &entry);
}

static __always_inline void write_flow(struct seq_file *seq, struct sock *sk,
				       struct flow *flow)
{
	write_entry(seq, sk, flow->uid, CONNECTION_SLOT_SHARE);
}

static __always_inline void write_request(struct seq_file *seq, struct sock *sk,
					  struct request *request)
{
	write_entry(seq, sk, request->uid, REQUEST_SLOT_SHARE);
}

static __always_inline void add_present(__u32 uid)
{
	__u64 *present = bpf_map_lookup_elem(&pillion_present, &uid);
	__u64 share = REQUEST_SLOT_SHARE;

	if (present)
		*present += share;
	else
		bpf_map_update_elem(&pillion_present, &uid, &share, BPF_ANY);
}

/* Only counts, because there may be many more requests than connections. */
static __always_inline void count_request(struct seq_file *seq, struct sock *sk,
					  struct request *request)
{
	add_present(ALL_USERS);
	add_present(request->uid);
}

ITERATE(pillion_flow_sockets, pillion_flows, write_flow)
ITERATE_STORAGE(pillion_count_requests, count_request)
ITERATE_SOCKETS(pillion_request_sockets, pillion_requests, write_request)

/* Handles setsockopt(2) of an application. */
SEC("cgroup/setsockopt")
int pillion_setsockopt(struct bpf_sockopt *ctx)
{
	return is_our_option(ctx, PILLION_MODE) ? on_setsockopt(ctx)
						: skip_option(ctx);
}

/* Handles getsockopt(2) of an application, after the kernel. */
SEC("cgroup/getsockopt")
int pillion_getsockopt(struct bpf_sockopt *ctx)
{
	return is_our_option(ctx, PILLION_STATS) ? on_getsockopt(ctx)
						 : skip_option(ctx);
}
