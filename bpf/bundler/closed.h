/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The connections that ended last, for who asks afterwards: what is remembered
 * of a connection goes with its socket.
 */
#ifndef PILLION_CLOSED_H
#define PILLION_CLOSED_H

#include "policy/companions.h"
#include "flow_record.h"
#include "maps.h"

#define MAX_CLOSED 1024 /* a power of two; then the oldest one is forgotten */

/*
 * A connection that has ended. Two looks that find the same of it, and nobody
 * at work, have seen all of it.
 */
struct closed_flow {
	__u32 busy;
	__u64 number; /* counts all that ended, the first is 1; 0: none */
	__u64 closed_ns; /* since the host started, sleep included */
	struct flow_record record;
	struct counters counters;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CLOSED);
	__type(key, __u32);
	__type(value, struct closed_flow);
} pillion_closed SEC(".maps");

__u64 closed_flows = 0;

/* Has the kernel tell when the connection ends, that a context is of. */
static __always_inline void await_end(struct bpf_sock_ops *ops)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags |
					       BPF_SOCK_OPS_STATE_CB_FLAG);
}

/* The same of a connection that is older than pillion, since Linux 6.12. */
static __always_inline void await_end_of_older(struct sock_common *skc,
					       struct tcp_sock *tp)
{
	int flags = tp->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG;

	bpf_setsockopt(skc, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags,
		       sizeof(flags));
}

/* The connection ends, and its ports are still its own. */
static __always_inline void note_end(struct tcp_sock *tp, struct flow *flow)
{
	struct closed_flow *closed;
	__u64 number;
	__u32 slot;

	number = __sync_fetch_and_add(&closed_flows, 1) + 1;
	slot = number & (MAX_CLOSED - 1);
	closed = bpf_map_lookup_elem(&pillion_closed, &slot);
	/* So many end at once that this one is no longer among the last. */
	if (!closed || !try_enter(&closed->busy))
		return;
	PUBLISH(closed->number, number);
	closed->closed_ns = bpf_ktime_get_boot_ns();
	fill_record(tp, flow, &closed->record);
	closed->counters = flow->counters;
	leave(&closed->busy);
}

#endif /* PILLION_CLOSED_H */
