/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Mechanisms of TCP's own that help thin streams beside bundling: socket
 * options, set when a rule first covers a connection and at each review. They
 * stay as they were set, for nobody knows what the application wants after.
 */
#ifndef PILLION_COMPANIONS_H
#define PILLION_COMPANIONS_H

#include "../maps.h"

#define SOL_TCP			 6
#define TCP_NODELAY		 1
#define TCP_CONGESTION		 13
#define TCP_THIN_LINEAR_TIMEOUTS 16
#define TCP_USER_TIMEOUT	 18

/* What the kernel took of them, and what not. */
struct answer {
	__u32 set;
	__u32 refused;
};

/*
 * The socket is whatever the helper wants of this kind of program: the context
 * of sockops, a socket elsewhere. A function of its own, so that the enum
 * reaches user space.
 */
static __noinline int set_option(void *socket, enum companion companion,
				 int option, const void *value, int size)
{
	int error =
		bpf_setsockopt(socket, SOL_TCP, option, (void *)value, size);
	struct totals *all = totals();

	if (!all || (__u32)companion >= COMPANIONS)
		return error;
	if (error)
		ADD_TO(all->companions_refused[companion], 1);
	else
		ADD_TO(all->companions_set[companion], 1);
	return error;
}

/* What was set before, and is not among the wanted, stays. */
static __always_inline void note_companions(struct flow *flow,
					    const struct companions *wanted,
					    const struct answer *answer)
{
	struct companions *known = &flow->companions;

	known->set |= answer->set;
	flow->companions_refused = answer->refused;
	if (answer->set & (1 << RTO_MIN))
		known->rto_min_us = wanted->rto_min_us;
	if (answer->set & (1 << DELACK_MAX))
		known->delack_max_us = wanted->delack_max_us;
	if (answer->set & (1 << USER_TIMEOUT))
		known->user_timeout_ms = wanted->user_timeout_ms;
	if (answer->set & (1 << CONGESTION))
		__builtin_memcpy(known->congestion, wanted->congestion,
				 sizeof(known->congestion));
}

/* The flow is NULL where the connection is not bundled. */
static __always_inline void apply_companions(void *socket,
					     const struct companions *wanted,
					     struct flow *flow)
{
	struct answer answer = {};
	const int on = 1;

	if (!wanted->set)
		return;
#define APPLY(companion, option, value)                                        \
	do {                                                                   \
		__u32 bit = 1 << companion;                                    \
                                                                               \
		if (!(wanted->set & bit))                                      \
			break;                                                 \
		if (set_option(socket, companion, option, &(value),            \
			       sizeof(value)))                                 \
			answer.refused |= bit;                                 \
		else                                                           \
			answer.set |= bit;                                     \
	} while (0)
	APPLY(CONGESTION, TCP_CONGESTION, wanted->congestion);
	APPLY(LINEAR_TIMEOUTS, TCP_THIN_LINEAR_TIMEOUTS, on);
	APPLY(RTO_MIN, TCP_BPF_RTO_MIN, wanted->rto_min_us);
	APPLY(DELACK_MAX, TCP_BPF_DELACK_MAX, wanted->delack_max_us);
	APPLY(USER_TIMEOUT, TCP_USER_TIMEOUT, wanted->user_timeout_ms);
	/* May send what waits, for which the others hold by now. */
	APPLY(NODELAY, TCP_NODELAY, on);
#undef APPLY
	if (flow)
		note_companions(flow, wanted, &answer);
}

#endif /* PILLION_COMPANIONS_H */
