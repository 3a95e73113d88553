/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The bundler: the programs, and where in the kernel each one stands.
 *
 * No kfunc and no callback is used, so that the programs run in the BPF
 * interpreter as well.
 */
#include "../vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "rx/arrival.h"
#include "tx/bundle.h"
#include "closed.h"
#include "policy/companions.h"
#include "sampling/assignment.h"
#include "policy/governor.h"
#include "policy/policy.h"
#include "loss/reaction.h"
#include "rx/dsack.h"
#include "policy/scope.h"
#include "sampling/sending_times.h"
#include "policy/socket_option.h"
#include "tx/transmission.h"
#include "socket_iter.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline struct flow *our_flow(struct __sk_buff *skb,
					     struct bpf_sock **sk)
{
	*sk = skb->sk;
	return *sk ? bpf_sk_storage_get(&pillion_flows, *sk, NULL, 0) : NULL;
}

/* A packet leaves TCP; returns what the kernel is to be told with it. */
static __always_inline int on_transmit(struct __sk_buff *skb,
				       struct bpf_sock *sk, struct flow *flow)
{
	enum outcome parsed = NOT_PLAIN_IP;
	struct segment seg = {};
	struct observation *seen;
	struct bpf_tcp_sock *tp;
	struct tcp_sock *full;
	__u32 retransmissions;
	int told;

	if (flow->sack == SACK_UNKNOWN)
		flow = look_again(sk, flow);
	tp = bpf_tcp_sock(sk);
	full = bpf_skc_to_tcp_sock(sk);
	if (!flow || !tp || !full)
		return KEEP;
	if (!parse_ip(skb, &seg, 0, skb->protocol))
		parsed = parse_tcp(skb, &seg);
	else if (seg.in_tunnel)
		return KEEP; /* seen before, without what carries it */
	if (!try_enter(&flow->egress.busy)) {
		WRITE_ONCE(flow->egress.unread, 1);
		count(flow, BUSY);
		return KEEP;
	}
	/* Whatever the packet is: sequence numbers go on. */
	refresh(&flow->egress, tp->snd_una);
	told = react(flow, tp, full);
	seen = observe(skb, flow, full);
	retransmissions = flow->egress.retransmissions;
	if (parsed == NOT_PLAIN_IP) {
		WRITE_ONCE(flow->egress.unread, 1);
		note_unseen(&flow->egress, tp, 0);
		count(flow, NOT_PLAIN_IP);
	} else if (seg.len) {
		transmit(skb, flow, tp, full, &seg, parsed);
	}
	if (seen && parsed != NOT_PLAIN_IP && seg.len)
		observe_segment(seen, flow, tp, full, &seg, retransmissions,
				skb->gso_size ? skb->gso_segs : 1);
	leave(&flow->egress.busy);
	return told;
}

static __always_inline int on_egress(struct __sk_buff *skb,
				     enum link_header link)
{
	struct bpf_sock *sk;
	struct flow *flow = our_flow(skb, &sk);

	return flow ? bundle(skb, sk, flow, link) : TCX_NEXT;
}

static __always_inline int on_ingress(struct __sk_buff *skb,
				      enum link_header link)
{
	return take_out_dsack(skb, link) ? TCX_DROP : TCX_NEXT;
}

static __always_inline int on_state(struct bpf_sock_ops *ops)
{
	struct observation *seen;
	struct bpf_sock *sk = NULL;
	struct tcp_sock *tp;
	struct flow *flow;

	/* A socket that ended may listen, or try to connect, and end anew. */
	if (ops->args[1] == BPF_TCP_CLOSE && ops->args[0] != BPF_TCP_LISTEN &&
	    ops->args[0] != BPF_TCP_SYN_SENT)
		sk = ops->sk;
	flow = sk ? bpf_sk_storage_get(&pillion_flows, sk, NULL, 0) : NULL;
	tp = flow ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return 1;
	note_end(tp, flow);
	seen = observed(ops);
	if (seen)
		observe_end(seen, flow, tp);
	return 1;
}

/* Every packet that leaves by a device with Ethernet headers. */
SEC("tcx/egress")
int pillion_egress(struct __sk_buff *skb)
{
	return on_egress(skb, LINK_ETHERNET);
}

/* Every packet that arrives by a device with Ethernet headers. */
SEC("tcx/ingress")
int pillion_dsack(struct __sk_buff *skb)
{
	return on_ingress(skb, LINK_ETHERNET);
}

/* Every packet that leaves by a device without link headers: a tunnel. */
SEC("tcx/egress")
int pillion_egress_ip(struct __sk_buff *skb)
{
	return on_egress(skb, LINK_NONE);
}

/* Every packet that arrives by a device without link headers. */
SEC("tcx/ingress")
int pillion_dsack_ip(struct __sk_buff *skb)
{
	return on_ingress(skb, LINK_NONE);
}

/* Every packet that arrives for a socket of the cgroup; none is changed. */
SEC("cgroup_skb/ingress")
int pillion_ingress(struct __sk_buff *skb)
{
	struct tcp_options options = {};
	struct options_found found = {};
	struct bpf_tcp_sock *tp;
	struct tcp_sock *full;
	struct bpf_sock *sk;
	struct flow *flow = our_flow(skb, &sk);
	struct segment seg = {};
	struct ack ack = {};

	if (sk && sk->state == BPF_TCP_LISTEN) {
		note_offer(skb, sk);
		return 1;
	}
	if (!flow)
		return 1;
	tp = bpf_tcp_sock(sk);
	full = bpf_skc_to_tcp_sock(sk);
	if (!tp || !full)
		return 1;
	if (parse_ip(skb, &seg, 0, skb->protocol)) {
		on_unread_packet(flow);
		return 1;
	}
	if (!is_acceptable(skb, &seg, full, &ack) ||
	    parse_ack(skb, &seg, &options, &found, &ack))
		return 1;
	on_ack(flow, sk, tp, full, &ack, &options, observed(skb));
	return 1;
}

/* Every packet that leaves a socket of the cgroup; none is changed. */
SEC("cgroup_skb/egress")
int pillion_transmit(struct __sk_buff *skb)
{
	struct bpf_sock *sk;
	struct flow *flow = our_flow(skb, &sk);

	return flow ? on_transmit(skb, sk, flow) : KEEP;
}

/* A connection is begun, established in either direction, or ends. */
SEC("sockops")
int pillion_sockops(struct bpf_sock_ops *ops)
{
	enum opening opening = OPENED_BEFORE;
	struct ruling ruling = {};
	__u32 op = ops->op;
	struct tcp_sock *tp;
	struct bpf_sock *sk;
	struct flow *flow;
	struct request *request;

	if (op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB)
		opening = OPENED_HERE;
	else if (op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		opening = OPENED_BY_PEER;
	else if (op == BPF_SOCK_OPS_STATE_CB)
		return on_state(ops);
	else if (op != BPF_SOCK_OPS_TCP_CONNECT_CB)
		return 1;
	sk = ops->sk;
	tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return 1;
	/*
	 * A socket may be used for one connection after another, of which the
	 * next one's SYN may carry data, and which may be in no scope any more.
	 */
	bpf_sk_storage_delete(&pillion_flows, sk);
	request = bpf_sk_storage_get(&pillion_requests, sk, NULL, 0);
	if (request)
		request->multipath = 0;
	if (op == BPF_SOCK_OPS_TCP_CONNECT_CB) {
		if (request)
			request->grant.opening = 0;
		return 1;
	}
	if (!in_scope(ops)) {
		/* The listener's, whose namespace was in scope. */
		if (request && opening == OPENED_BY_PEER)
			bpf_sk_storage_delete(&pillion_requests, sk);
		return 1;
	}
	/*
	 * To TCP, one whose SYN crossed the peer's is passive as well; but
	 * before accept(), nobody has a socket that a listener made.
	 */
	if (opening == OPENED_BY_PEER && ((struct sock *)tp)->sk_socket)
		opening = OPENED_HERE;
	/* The listener's; it has come without asking for a place. */
	if (request && opening == OPENED_BY_PEER) {
		request->uid = uid_of(tp);
		if (!take_place(request->uid, REQUEST_SHARE)) {
			bpf_sk_storage_delete(&pillion_requests, sk);
			request = NULL;
		}
	}
	flow = judge(sk, tp, NULL, request, opening, &ruling);
	/* While it is there: a flood of SYNs evicts it. */
	if (flow && flow->opening == OPENED_BY_PEER)
		flow->note = read_note(sk, true);
	apply_companions(ops, &ruling.companions, flow);
	if (flow || ruling.grant.mode != LEAVE_ALONE)
		await_end(ops);
	return 1;
}

/* On which connections a review sets companions. */
enum set_on {
	SET_ON_NEW, /* those that its rule did not cover before */
	SET_ON_ALL,
	SET_ON_NONE, /* it looks for those that had found no place */
};

struct review {
	__u64 cgroup; /* that the programs are attached to; 0: the root */
	enum set_on set_on;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct review);
} pillion_reviewed SEC(".maps");

#define NO_RULE (~0U)

/* The rule that decided last; NO_RULE if nothing is kept of the connection. */
static __always_inline __u32 rule_of(const struct flow *flow,
				     const struct request *request)
{
	if (request && request->grant.opening)
		return request->grant.rule;
	return flow ? flow->rule : NO_RULE;
}

static __always_inline bool is_reviewed(struct tcp_sock *tp)
{
	const struct review *review;
	__u32 zero = 0;

	review = bpf_map_lookup_elem(&pillion_reviewed, &zero);
	return review && (!review->cgroup || is_below(tp, review->cgroup));
}

/*
 * Is a connection to have companions that met one rule before and another one
 * now? What its application has set since is its own. One that had found no
 * place had them at its beginning, or when its namespace came.
 */
static __always_inline bool wants_companions(__u32 before, __u32 now)
{
	const struct review *review;
	__u32 zero = 0;

	review = bpf_map_lookup_elem(&pillion_reviewed, &zero);
	if (!review || review->set_on == SET_ON_NONE)
		return false;
	return review->set_on == SET_ON_ALL || before != now;
}

/*
 * Run after attaching, for the connections that are older than pillion, and
 * after each change of the rules or of the scope. Writes a byte for each
 * connection covered.
 */
SEC("iter/tcp")
int pillion_review(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	enum opening opening = OPENED_BEFORE;
	struct ruling ruling = {};
	struct tcp_sock *tp;
	struct flow *flow;
	struct request *request;
	unsigned char state;
	__u32 before;

	tp = skc ? bpf_skc_to_tcp_sock(skc) : NULL;
	if (!tp)
		return 0;
	state = skc->skc_state;
	flow = bpf_sk_storage_get(&pillion_flows, skc, NULL, 0);
	if (!is_in_scope(skc)) {
		if (flow)
			bpf_sk_storage_delete(&pillion_flows, skc);
		bpf_sk_storage_delete(&pillion_requests, skc);
		return 0;
	}
	if (!is_reviewed(tp))
		return 0;
	/* One that listens has none any more: its rule is that of no socket. */
	if (has_no_connection(skc) || (!flow && !(1 << (state & 15) & SENDING)))
		return 0;
	request = bpf_sk_storage_get(&pillion_requests, skc, NULL, 0);
	if (request && request->grant.opening)
		opening = request->grant.opening;
	else if (flow)
		opening = flow->opening;
	before = rule_of(flow, request);
	flow = judge(skc, tp, flow, request, opening, &ruling);
	request = bpf_sk_storage_get(&pillion_requests, skc, NULL, 0);
	if (wants_companions(before, rule_of(flow, request)))
		apply_companions(skc, &ruling.companions, flow);
	if (flow)
		await_end_of_older(skc, tp);
	if (flow || ruling.companions.set)
		bpf_seq_write(ctx->meta->seq, "+", 1);
	return 0;
}

/* A function of its own, so that the type reaches user space. */
static __noinline long write_kept(struct seq_file *seq, struct kept *kept)
{
	return bpf_seq_write(seq, kept, sizeof(*kept));
}

static __always_inline void tell_kept(struct seq_file *seq, struct sock *sk,
				      __u32 uid, enum share share)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct kept kept = {
		.cookie = bpf_get_socket_cookie(sk),
		.inode = read_inode(sk),
		.uid = uid,
		.packets_out = tp ? tp->packets_out : 0,
		.share = share,
		.is_over = has_no_connection(&sk->__sk_common),
	};

	write_kept(seq, &kept);
}

static __always_inline void tell_flow(struct seq_file *seq, struct sock *sk,
				      struct flow *flow)
{
	tell_kept(seq, sk, flow->uid, CONNECTION_SHARE);
}

static __always_inline void tell_request(struct seq_file *seq, struct sock *sk,
					 struct request *request)
{
	tell_kept(seq, sk, request->uid, REQUEST_SHARE);
}

static __always_inline void add_there(__u32 uid)
{
	__u64 *there = bpf_map_lookup_elem(&pillion_there, &uid);
	__u64 share = REQUEST_SHARE;

	if (there)
		*there += share;
	else
		bpf_map_update_elem(&pillion_there, &uid, &share, BPF_ANY);
}

/* Of these there may be many more than connections. */
static __always_inline void count_request(struct seq_file *seq, struct sock *sk,
					  struct request *request)
{
	add_there(ALL_USERS);
	add_there(request->uid);
}

WALK(pillion_kept_flows, pillion_flows, tell_flow)
WALK_STORAGE(pillion_count_requests, count_request)
WALK_SOCKETS(pillion_kept_requests, pillion_requests, tell_request)

/* The application sets an option of its socket. */
SEC("cgroup/setsockopt")
int pillion_setsockopt(struct bpf_sockopt *ctx)
{
	return is_our_option(ctx, PILLION_MODE) ? on_setsockopt(ctx)
						: leave_option(ctx);
}

/*
 * The application reads an option of its socket, and the kernel has answered.
 */
SEC("cgroup/getsockopt")
int pillion_getsockopt(struct bpf_sockopt *ctx)
{
	return is_our_option(ctx, PILLION_STATS) ? on_getsockopt(ctx)
						 : leave_option(ctx);
}
