/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TCP options of the kernel that help thin streams in addition to bundling.
 * They are set when a rule first covers a connection, and at each review. They
 * are never reset, because the application's intended value is unknown.
 */
#ifndef PILLION_TCP_OPTIONS_H
#define PILLION_TCP_OPTIONS_H

#include "../maps.h"

#define SOL_TCP			 6
#define TCP_NODELAY		 1
#define TCP_CONGESTION		 13
#define TCP_THIN_LINEAR_TIMEOUTS 16
#define TCP_USER_TIMEOUT	 18

/* The options that the kernel accepted and refused. */
struct set_result {
	__u32 set;
	__u32 refused;
};

/*
 * `socket` is the helper's argument for this program type: the context for
 * sockops, otherwise a socket. A separate function puts the enum into BTF,
 * for Rust.
 */
static __noinline int set_option(void *socket, enum tcp_option tcp_option,
				 int option, const void *value, int size)
{
	int error =
		bpf_setsockopt(socket, SOL_TCP, option, (void *)value, size);
	struct totals *all = totals();

	if (!all || (__u32)tcp_option >= TCP_OPTION_COUNT)
		return error;
	if (error)
		ADD_TO(all->tcp_options_refused[tcp_option], 1);
	else
		ADD_TO(all->tcp_options_set[tcp_option], 1);
	return error;
}

/* Stores the accepted values. Options set earlier remain. */
static __always_inline void store_tcp_options(struct flow *flow,
					      const struct tcp_options *values,
					      const struct set_result *result)
{
	struct tcp_options *accepted = &flow->tcp_options;

	accepted->set |= result->set;
	flow->tcp_options_refused = result->refused;
	if (result->set & (1 << RTO_MIN))
		accepted->rto_min_us = values->rto_min_us;
	if (result->set & (1 << DELACK_MAX))
		accepted->delack_max_us = values->delack_max_us;
	if (result->set & (1 << USER_TIMEOUT))
		accepted->user_timeout_ms = values->user_timeout_ms;
	if (result->set & (1 << CONGESTION))
		__builtin_memcpy(accepted->congestion, values->congestion,
				 sizeof(accepted->congestion));
}

/* Sets a rule's TCP options. flow is NULL for a connection not bundled. */
static __always_inline void apply_tcp_options(void *socket,
					      const struct tcp_options *values,
					      struct flow *flow)
{
	struct set_result result = {};
	const int on = 1;

	if (!values->set)
		return;
#define APPLY(tcp_option, option, value)                                       \
	do {                                                                   \
		__u32 bit = 1 << tcp_option;                                   \
                                                                               \
		if (!(values->set & bit))                                      \
			break;                                                 \
		if (set_option(socket, tcp_option, option, &(value),           \
			       sizeof(value)))                                 \
			result.refused |= bit;                                 \
		else                                                           \
			result.set |= bit;                                     \
	} while (0)
	APPLY(CONGESTION, TCP_CONGESTION, values->congestion);
	APPLY(LINEAR_TIMEOUTS, TCP_THIN_LINEAR_TIMEOUTS, on);
	APPLY(RTO_MIN, TCP_BPF_RTO_MIN, values->rto_min_us);
	APPLY(DELACK_MAX, TCP_BPF_DELACK_MAX, values->delack_max_us);
	APPLY(USER_TIMEOUT, TCP_USER_TIMEOUT, values->user_timeout_ms);
	/* Last, because TCP_NODELAY may send queued data at once. */
	APPLY(NODELAY, TCP_NODELAY, on);
#undef APPLY
	if (flow)
		store_tcp_options(flow, values, &result);
}

#endif /* PILLION_TCP_OPTIONS_H */
