/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The last closed connections, for later queries. Other state of a connection
 * is freed with its socket.
 */
#ifndef PILLION_CLOSED_H
#define PILLION_CLOSED_H

#include "policy/tcp_options.h"
#include "flow_record.h"
#include "maps.h"

#define MAX_CLOSED 1024 /* a power of two; a new one overwrites the oldest */

/*
 * A closed connection. A reader has a consistent copy if three reads in a row
 * are equal and busy is 0.
 */
struct closed_flow {
	__u32 busy;
	__u64 number; /* counts closed connections from 1; 0: unused slot */
	__u64 closed_ns; /* since boot, suspend included */
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

/* Requests a callback for the close of the context's connection. */
static __always_inline void watch_close(struct bpf_sock_ops *ops)
{
	bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags |
					       BPF_SOCK_OPS_STATE_CB_FLAG);
}

/* Like watch_close(), for an existing connection (Linux 6.12). */
static __always_inline void watch_close_of_existing(struct sock_common *skc,
						    struct tcp_sock *tp)
{
	int flags = tp->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG;

	bpf_setsockopt(skc, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags,
		       sizeof(flags));
}

/* Stores the flow's snapshot on close, while its ports are still known. */
static __always_inline void store_closed_flow(struct tcp_sock *tp,
					      struct flow *flow)
{
	struct closed_flow *closed;
	__u64 number;
	__u32 slot;

	number = __sync_fetch_and_add(&closed_flows, 1) + 1;
	slot = number & (MAX_CLOSED - 1);
	closed = bpf_map_lookup_elem(&pillion_closed, &slot);
	/* Another close reused this slot at the same time. */
	if (!closed || !try_lock(&closed->busy))
		return;
	closed->number = number;
	closed->closed_ns = bpf_ktime_get_boot_ns();
	fill_record(tp, flow, &closed->record);
	closed->counters = flow->counters;
	unlock(&closed->busy);
}

#endif /* PILLION_CLOSED_H */
