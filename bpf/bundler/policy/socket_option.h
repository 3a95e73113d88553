/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The application's own switch: setsockopt() and getsockopt() with the options
 * of include/pillion.h, which the kernel itself does not know.
 *
 * Both programs run with the socket locked, so that the application's segments
 * leave before or after, but not meanwhile.
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

#define ANSWERED    -1 /* as optlen: the kernel's own code is not to be run */
#define SHOWN_BYTES 4096 /* of a longer value, programs see no more */
#define ALL_MODES   (PILLION_ADAPTIVE | PILLION_WAIT_FOR_LOSS | PILLION_REACT_CWR)

/* In SYN_RECV, those that began with data (RFC 7413) are accepted. */
#define SENDING                                                                \
	(1 << BPF_TCP_ESTABLISHED | 1 << BPF_TCP_CLOSE_WAIT |                  \
	 1 << BPF_TCP_SYN_RECV)
#define CONNECTED                                                              \
	(SENDING | 1 << BPF_TCP_FIN_WAIT1 | 1 << BPF_TCP_FIN_WAIT2 |           \
	 1 << BPF_TCP_LAST_ACK | 1 << BPF_TCP_CLOSING)

#define SAME(outcome)                                                          \
	_Static_assert((int)PILLION_LAST_##outcome == (int)outcome + 1,        \
		       "as in include/pillion.h")
SAME(BUNDLED);
SAME(NOTHING_OUTSTANDING);
SAME(FULL_SIZE);
SAME(NO_ROOM);
SAME(OLD_DATA);
SAME(NOT_THIN);
SAME(NO_RTT);
SAME(NO_LOSS);
SAME(NO_SACK);
SAME(GSO);
SAME(FLAGS);
SAME(TCP_OPTION);
SAME(NOT_PLAIN_IP);
SAME(NO_HISTORY);
SAME(OVERLAP);
SAME(BUSY);
SAME(UNREADABLE);
SAME(NO_MEMORY);
SAME(DROPPED);
SAME(RETRANSMISSION_BUNDLED);
SAME(ELSEWHERE);
SAME(WAITED);
SAME(UNWATCHED);
SAME(PATH_SIZE);
SAME(HELD_BACK);
SAME(NO_DSACK);
SAME(GOVERNED);
SAME(ACKS_THINNED);
SAME(PACED);
SAME(OVER_SHARE);
SAME(HELPER_PORT);
_Static_assert(OUTCOMES == HELPER_PORT + 1,
	       "each has a name in include/pillion.h");

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
 * Is the option one of ours, of a TCP socket in our scope? The kernel's helpers
 * look at the protocol alone, which raw sockets may have as well.
 */
static __always_inline bool is_our_option(struct bpf_sockopt *ctx, __u32 last)
{
	struct bpf_sock *sk = ctx->sk;

	return has_our_number(ctx, last) && in_scope(ctx) &&
	       sk->type == SOCK_STREAM && bpf_tcp_sock(sk);
}

/*
 * Leaves an option that is not ours as it is. Where it is longer than what
 * programs see of it, the kernel wants to hear that it is to go by what the
 * application has: where that is a page, before 6.4 (commit 29ebbba7d461), and
 * where the application's buffer is shorter than the kernel's answer. A copy of
 * the application's keys has kernels warn of how TLS copies them
 * (tls_setsockopt()).
 */
static __always_inline int leave_option(struct bpf_sockopt *ctx)
{
	__s32 len = ctx->optlen;

	/* Another program has answered it. */
	if (len < 0)
		return 1;
	if (has_our_number(ctx, PILLION_STATS))
		return 1;
	if (ctx->level != SOL_TLS && len <= SHOWN_BYTES &&
	    ctx->optval + len <= ctx->optval_end)
		return 1;
	barrier_var(ctx); /* no pointer into it, which may not be used */
	ctx->optlen = 0;
	return 1;
}

/* What the rules grant the socket's connection; all zero before: nothing. */
static __always_inline void find_grant_of(const struct bpf_sock *sk,
					  const struct flow *flow,
					  const struct request *request,
					  struct grant *grant)
{
	if (request && request->grant.opening) {
		*grant = request->grant;
	} else if (flow) {
		grant->mode = BUNDLE;
		grant->rule = flow->rule;
		grant->opening = flow->opening;
		grant->options = flow->options;
	} else {
		grant_unmatched(grant, sk->src_port, bpf_ntohs(sk->dst_port));
	}
	if (request && request->multipath)
		grant->mode = LEAVE_ALONE;
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

static __always_inline void keep_request(struct request *request, __u32 option,
					 __u32 value)
{
	switch (option) {
	case PILLION_BUNDLE:
		request->asked = value ? ASKED_ON : ASKED_OFF;
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

/* Sets an option of ours. Returns 0 or a negative errno. */
static __always_inline int set_our_option(struct bpf_sock *sk, __u32 option,
					  __s32 value)
{
	bool on = option == PILLION_BUNDLE && value;
	bool connected = is_in_state(sk, CONNECTED);
	struct beginning beginning = {
		.sack = SACK_UNKNOWN,
		.uid = bpf_get_current_uid_gid(),
	};
	struct bpf_tcp_sock *tp;
	struct grant grant = {};
	struct request *request;
	struct flow *flow, *taken_in;
	int error = check_value(option, value);

	if (error)
		return error;
	if (on && refuses_all())
		return -EPERM;
	flow = bpf_sk_storage_get(&pillion_flows, sk, NULL, 0);
	request = bpf_sk_storage_get(&pillion_requests, sk, NULL, 0);
	if (connected)
		find_grant_of(sk, flow, request, &grant);
	if (connected && on && grant.mode == LEAVE_ALONE)
		return -EPERM;
	if (!request)
		request = begin_request(sk, beginning.uid, flow);
	if (!request && connected && flow && option == PILLION_BUNDLE &&
	    !value) {
		flow->off = 1;
		return 0;
	}
	tp = bpf_tcp_sock(sk);
	if (!request || !tp)
		return -ENOMEM;
	keep_request(request, option, value);
	if (!connected)
		return 0;
	request->grant = grant;
	if (!flow && !is_in_state(sk, SENDING))
		return 0;
	beginning.snd_nxt = tp->snd_nxt;
	beginning.snd_una = tp->snd_una;
	beginning.total_retrans = tp->total_retrans;
	beginning.data_segs_out = tp->data_segs_out;
	taken_in = put_into_effect(sk, flow, request, &grant, &beginning);
	if (!flow && taken_in && taken_in->opening == OPENED_BY_PEER)
		taken_in->note = NOTE_NEEDED;
	return taken_in || !on ? 0 : -ENOMEM;
}

static __always_inline int on_setsockopt(struct bpf_sockopt *ctx)
{
	__s32 *value = ctx->optval;
	bool answered = ctx->optlen == ANSWERED;
	int error = -EINVAL;

	if (bpf_get_retval())
		return 1;
	if ((answered || ctx->optlen >= (__s32)sizeof(*value)) &&
	    (void *)(value + 1) <= ctx->optval_end)
		error = set_our_option(ctx->sk, ctx->optname, *value);
	/* Of two pillions, one inside the other, the inner one answers. */
	if (answered)
		return 1;
	if (error) {
		bpf_set_retval(error);
		return 0;
	}
	ctx->optlen = ANSWERED;
	return 1;
}

static __always_inline __u32 get_our_option(struct bpf_sock *sk, __u32 option,
					    const struct flow *flow,
					    const struct request *request)
{
	switch (option) {
	case PILLION_BUNDLE:
		if (flow)
			return !flow->off;
		return request && request->asked == ASKED_ON &&
		       !is_in_state(sk, CONNECTED);
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
			return mode_in(&flow->options);
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
	stats->segments = seen - counters->outcomes[OLD_DATA] -
			  counters->outcomes[RETRANSMISSION_BUNDLED] -
			  counters->outcomes[NOT_PLAIN_IP];
	stats->bundled = counters->outcomes[BUNDLED];
	stats->new_bytes = counters->new_bytes;
	stats->redundant_bytes = counters->redundant_bytes;
	stats->hidden_losses = counters->hidden_losses;
	stats->repaired_bytes = counters->repaired_bytes;
	stats->reactions = counters->reactions;
	stats->saved_us = counters->saved_us;
	stats->last = seen ? flow->egress.last + 1 : PILLION_LAST_NONE;
	stats->level = flow->ingress.level;
}

static __always_inline int get_stats(struct bpf_sock *sk,
				     const struct flow *flow,
				     const struct request *request,
				     struct pillion_stats *stats)
{
	struct bpf_tcp_sock *tp = bpf_tcp_sock(sk);
	struct grant grant = {};

	if (!tp || (!flow && !is_in_state(sk, CONNECTED)))
		return -ENOTCONN;
	if (flow)
		read_counters(flow, stats);
	stats->in_flight = packets_in_flight(tp);
	find_grant_of(sk, flow, request, &grant);
	if (grant.mode == LEAVE_ALONE) {
		stats->standing = PILLION_REFUSED;
		stats->rule = grant.rule;
		return 0;
	}
	if (flow && !flow->off)
		stats->standing = grant.mode == BUNDLE ? PILLION_BY_RULE
						       : PILLION_BY_APPLICATION;
	if (request)
		narrow(&grant.options, request);
	stats->rule = grant.rule;
	stats->max_packets = grant.options.max_packets;
	stats->max_bytes = grant.options.max_bytes;
	stats->mode = mode_in(&grant.options);
	return 0;
}

/* Writes as many words as there is room for; returns their bytes. */
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
		/* What is asked counts where nothing is bundled, or no more. */
		if (is_in_state(sk, 1 << BPF_TCP_CLOSE | 1 << BPF_TCP_LISTEN) ||
		    (flow && flow->off))
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
