/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The application's socket options: setsockopt() and getsockopt() with the
 * options of include/pillion.h, which the kernel does not implement.
 *
 * Both programs run with the socket locked, so no segment leaves during a
 * change.
 */
#ifndef PILLION_SOCKET_OPTION_H
#define PILLION_SOCKET_OPTION_H

#include "policy.h"
#include "scope.h"
#include "../segment.h"
#include "../tx/thin.h"

#define SOCK_STREAM 1
#define SOL_TLS	    282

#define ENOMEM	    12
#define EPERM	    1
#define EINVAL	    22
#define ENOPROTOOPT 92
#define ENOTCONN    107

#define OPTLEN_HANDLED	  (-1) /* as optlen: skips the kernel's own code */
#define MAX_VISIBLE_BYTES 4096 /* programs see at most this part of a value */
#define ALL_MODES	  (PILLION_ADAPTIVE | PILLION_WAIT_FOR_LOSS | PILLION_REACT_CWR)

/* SYN_RECV includes connections with data in the SYN (RFC 7413). */
#define SENDING_STATES                                                         \
	(1 << BPF_TCP_ESTABLISHED | 1 << BPF_TCP_CLOSE_WAIT |                  \
	 1 << BPF_TCP_SYN_RECV)
#define CONNECTED_STATES                                                       \
	(SENDING_STATES | 1 << BPF_TCP_FIN_WAIT1 | 1 << BPF_TCP_FIN_WAIT2 |    \
	 1 << BPF_TCP_LAST_ACK | 1 << BPF_TCP_CLOSING)

#define CHECK_OUTCOME(outcome)                                                 \
	_Static_assert((int)PILLION_LAST_##outcome == (int)outcome + 1,        \
		       "as in include/pillion.h")
CHECK_OUTCOME(BUNDLED);
CHECK_OUTCOME(NOTHING_OUTSTANDING);
CHECK_OUTCOME(FULL_SIZE);
CHECK_OUTCOME(NO_ROOM);
CHECK_OUTCOME(RETRANSMISSION);
CHECK_OUTCOME(NOT_THIN);
CHECK_OUTCOME(NO_RTT);
CHECK_OUTCOME(NO_LOSS);
CHECK_OUTCOME(NO_SACK);
CHECK_OUTCOME(GSO);
CHECK_OUTCOME(FLAGS);
CHECK_OUTCOME(TCP_OPTION);
CHECK_OUTCOME(UNPARSED_IP);
CHECK_OUTCOME(NO_HISTORY);
CHECK_OUTCOME(OVERLAP);
CHECK_OUTCOME(BUSY);
CHECK_OUTCOME(UNREADABLE);
CHECK_OUTCOME(NO_MEMORY);
CHECK_OUTCOME(DROPPED);
CHECK_OUTCOME(RETRANSMISSION_BUNDLED);
CHECK_OUTCOME(UNATTACHED_DEVICE);
CHECK_OUTCOME(STALE);
CHECK_OUTCOME(LOSS_DETECTION_UNAVAILABLE);
CHECK_OUTCOME(EXCEEDS_PATH_SIZE);
CHECK_OUTCOME(SUPPRESSED);
CHECK_OUTCOME(NO_DSACK);
CHECK_OUTCOME(GOVERNED);
CHECK_OUTCOME(ACKS_THINNED);
CHECK_OUTCOME(PACING_LIMIT);
CHECK_OUTCOME(OVER_FAIR_SHARE);
CHECK_OUTCOME(HELPER_PORT);
CHECK_OUTCOME(NO_BUNDLES);
CHECK_OUTCOME(CAPPED);
_Static_assert(OUTCOMES == CAPPED + 1, "each has a name in include/pillion.h");

static __always_inline bool is_in_state(struct bpf_sock *sk, __u32 states)
{
	return 1 << (sk->state & 15) & states;
}

static __always_inline bool has_our_number(struct bpf_sockopt *ctx, __u32 last)
{
	return ctx->level == IPPROTO_TCP &&
	       (__u32)ctx->optname - PILLION_BUNDLE <= last - PILLION_BUNDLE;
}

/*
 * Returns true for a pillion option of a TCP socket in scope. The kernel's
 * helpers check only the protocol, which raw sockets may also have.
 */
static __always_inline bool is_our_option(struct bpf_sockopt *ctx, __u32 last)
{
	struct bpf_sock *sk = ctx->sk;

	return has_our_number(ctx, last) && context_in_scope(ctx) &&
	       sk->type == SOCK_STREAM && bpf_tcp_sock(sk);
}

/*
 * Leaves other options unchanged. If the value is longer than the part that
 * programs see, optlen = 0 makes the kernel use the application's own buffer.
 * This applies to a page-sized value before 6.4 (commit 29ebbba7d461), and to a
 * buffer shorter than the kernel's answer. TLS keys are excluded as well,
 * because the kernel warns about copies of them (tls_setsockopt()).
 */
static __always_inline int skip_option(struct bpf_sockopt *ctx)
{
	__s32 len = ctx->optlen;

	/* Another program has answered it. */
	if (len < 0)
		return 1;
	if (has_our_number(ctx, PILLION_STATS))
		return 1;
	if (ctx->level != SOL_TLS && len <= MAX_VISIBLE_BYTES &&
	    ctx->optval + len <= ctx->optval_end)
		return 1;
	/* prevents a derived pointer, which is not permitted */
	barrier_var(ctx);
	ctx->optlen = 0;
	return 1;
}

/* Finds the decision for the socket's connection; rule_decision is zeroed. */
static __always_inline void
find_socket_decision(const struct bpf_sock *sk, const struct flow *flow,
		     const struct request *request,
		     struct rule_decision *rule_decision)
{
	if (request && request->rule_decision.open_kind) {
		*rule_decision = request->rule_decision;
	} else if (flow) {
		rule_decision->mode = RULE_BUNDLE;
		rule_decision->rule = flow->rule;
		rule_decision->open_kind = flow->open_kind;
		rule_decision->options = flow->options;
	} else {
		decide_unmatched(rule_decision, sk->src_port,
				 bpf_ntohs(sk->dst_port));
	}
	if (request && request->multipath)
		rule_decision->mode = RULE_NEVER;
}

static __always_inline int check_value(__u32 option, __s32 value)
{
	switch (option) {
	case PILLION_BUNDLE:
		return value == 0 || value == 1 ? 0 : -EINVAL;
	case PILLION_MODE:
		return value & ~ALL_MODES ? -EINVAL : 0;
	default:
		return value < 0 ? -EINVAL : 0;
	}
}

static __always_inline void store_request(struct request *request, __u32 option,
					  __u32 value)
{
	switch (option) {
	case PILLION_BUNDLE:
		request->bundling = value ? APP_ON : APP_OFF;
		break;
	case PILLION_MAX_PACKETS:
		request->max_packets = value;
		break;
	case PILLION_MAX_BYTES:
		request->max_bytes = value;
		break;
	default:
		request->mode = value;
	}
}

/* Sets a pillion option. Returns 0 or a negative errno. */
static __always_inline int set_our_option(struct bpf_sock *sk, __u32 option,
					  __s32 value)
{
	bool on = option == PILLION_BUNDLE && value;
	bool connected = is_in_state(sk, CONNECTED_STATES);
	struct initial_state initial_state = {
		.sack = SACK_UNKNOWN,
		.uid = bpf_get_current_uid_gid(),
	};
	struct bpf_tcp_sock *btp;
	struct rule_decision rule_decision = {};
	struct request *request;
	struct flow *flow, *new_flow;
	int error = check_value(option, value);

	if (error)
		return error;
	if (on && refuses_all())
		return -EPERM;
	flow = bpf_sk_storage_get(&pillion_flows, sk, NULL, 0);
	request = bpf_sk_storage_get(&pillion_requests, sk, NULL, 0);
	if (connected)
		find_socket_decision(sk, flow, request, &rule_decision);
	if (connected && on && rule_decision.mode == RULE_NEVER)
		return -EPERM;
	if (!request)
		request = create_request(sk, initial_state.uid, flow, false);
	if (!request && connected && flow && option == PILLION_BUNDLE &&
	    !value) {
		erase_history(flow);
		flow->disabled_by_application = 1;
		return 0;
	}
	btp = bpf_tcp_sock(sk);
	if (!request || !btp)
		return -ENOMEM;
	store_request(request, option, value);
	if (!connected)
		return 0;
	request->rule_decision = rule_decision;
	if (!flow && !is_in_state(sk, SENDING_STATES))
		return 0;
	initial_state.snd_nxt = btp->snd_nxt;
	initial_state.snd_una = btp->snd_una;
	initial_state.total_retrans = btp->total_retrans;
	initial_state.data_segs_out = btp->data_segs_out;
	new_flow = apply_decision(sk, flow, request, &rule_decision,
				  &initial_state);
	if (!flow && new_flow && new_flow->open_kind == PASSIVE_OPEN)
		new_flow->syn_state = SYN_REQUIRED;
	return new_flow || !on ? 0 : -ENOMEM;
}

static __always_inline int on_setsockopt(struct bpf_sockopt *ctx)
{
	__s32 *value = ctx->optval;
	bool answered = ctx->optlen == OPTLEN_HANDLED;
	int error = -EINVAL;

	if (bpf_get_retval())
		return 1;
	if ((answered || ctx->optlen >= (__s32)sizeof(*value)) &&
	    (void *)(value + 1) <= ctx->optval_end)
		error = set_our_option(ctx->sk, ctx->optname, *value);
	/* With two nested pillions, the inner one answers. */
	if (answered)
		return 1;
	if (error) {
		bpf_set_retval(error);
		return 0;
	}
	ctx->optlen = OPTLEN_HANDLED;
	return 1;
}

static __always_inline __u32 get_our_option(struct bpf_sock *sk, __u32 option,
					    const struct flow *flow,
					    const struct request *request)
{
	switch (option) {
	case PILLION_BUNDLE:
		if (flow)
			return !flow->disabled_by_application;
		return request && request->bundling == APP_ON &&
		       !is_in_state(sk, CONNECTED_STATES);
	case PILLION_MAX_PACKETS:
		if (flow)
			return flow->options.max_packets;
		return request ? request->max_packets : 0;
	case PILLION_MAX_BYTES:
		if (flow)
			return flow->options.max_bytes;
		return request ? request->max_bytes : 0;
	default:
		if (flow)
			return mode_of(&flow->options);
		return request ? request->mode : 0;
	}
}

static __always_inline void read_counters(const struct flow *flow,
					  struct pillion_stats *stats)
{
	const struct counters *counters = &flow->counters;
	__u64 seen = 0;
	__u32 i;

	for (i = 0; i < OUTCOMES; i++)
		seen += counters->outcomes[i];
	stats->segments = seen - counters->outcomes[RETRANSMISSION] -
			  counters->outcomes[RETRANSMISSION_BUNDLED] -
			  counters->outcomes[UNPARSED_IP];
	stats->bundled = counters->outcomes[BUNDLED];
	stats->new_bytes = counters->new_bytes;
	stats->redundant_bytes = counters->redundant_bytes;
	stats->hidden_losses = counters->hidden_losses;
	stats->repaired_bytes = counters->repaired_bytes;
	stats->reactions = counters->reactions;
	stats->time_saved_us = counters->time_saved_us;
	stats->last = seen ? flow->egress.last + 1 : PILLION_LAST_NONE;
	stats->level = flow->ingress.level;
}

static __always_inline int get_stats(struct bpf_sock *sk,
				     const struct flow *flow,
				     const struct request *request,
				     struct pillion_stats *stats)
{
	struct bpf_tcp_sock *btp = bpf_tcp_sock(sk);
	struct rule_decision rule_decision = {};

	if (!btp || (!flow && !is_in_state(sk, CONNECTED_STATES)))
		return -ENOTCONN;
	if (flow)
		read_counters(flow, stats);
	stats->in_flight = packets_in_flight(btp);
	find_socket_decision(sk, flow, request, &rule_decision);
	if (rule_decision.mode == RULE_NEVER) {
		stats->state = PILLION_REFUSED;
		stats->rule = rule_decision.rule;
		return 0;
	}
	if (flow && !flow->disabled_by_application)
		stats->state = rule_decision.mode == RULE_BUNDLE
				       ? PILLION_BY_RULE
				       : PILLION_BY_APPLICATION;
	if (request)
		restrict_options(&rule_decision.options, request);
	stats->rule = rule_decision.rule;
	stats->max_packets = rule_decision.options.max_packets;
	stats->max_bytes = rule_decision.options.max_bytes;
	stats->mode = mode_of(&rule_decision.options);
	return 0;
}

/* Writes as many words as fit; returns their bytes. */
static __always_inline __s32 write_stats(struct bpf_sockopt *ctx,
					 const struct pillion_stats *stats)
{
	const __u64 *from = (const void *)stats;
	void *end = ctx->optval_end;
	__u64 *to = ctx->optval;
	__u32 i;

#pragma unroll
	for (i = 0; i < sizeof(*stats) / sizeof(*to); i++) {
		if ((void *)(to + i + 1) > end)
			break;
		to[i] = from[i];
	}
	return i * sizeof(*to);
}

static __always_inline int on_getsockopt(struct bpf_sockopt *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct pillion_stats stats = {};
	__s32 *value = ctx->optval, written = 0;
	struct flow *flow;
	struct request *request;
	int error = 0;

	if (ctx->retval != -ENOPROTOOPT)
		return 1;
	flow = bpf_sk_storage_get(&pillion_flows, sk, NULL, 0);
	request = bpf_sk_storage_get(&pillion_requests, sk, NULL, 0);
	if (ctx->optname == PILLION_STATS) {
		error = get_stats(sk, flow, request, &stats);
		if (!error)
			written = write_stats(ctx, &stats);
	} else if ((void *)(value + 1) <= ctx->optval_end) {
		/* The request counts if the connection is not bundled. */
		if (is_in_state(sk, 1 << BPF_TCP_CLOSE | 1 << BPF_TCP_LISTEN) ||
		    (flow && flow->disabled_by_application))
			flow = NULL;
		*value = get_our_option(sk, ctx->optname, flow, request);
		written = sizeof(*value);
	}
	if (!error && !written)
		error = -EINVAL;
	if (!error)
		ctx->optlen = written;
	ctx->retval = error;
	return 1;
}

#endif /* PILLION_SOCKET_OPTION_H */
