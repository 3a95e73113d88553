/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads the connections that a running pillion bundles. For each: a
 * flow_record, then its counters (together too large for the stack).
 */
#include "../vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "flow_record.h"
#include "flow_storage.h"
#include "socket_iter.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline void write_flow(struct seq_file *seq, struct sock *sk,
				       struct flow *flow)
{
	struct sock_common *skc = (struct sock_common *)sk;
	struct flow_record record = {};
	struct tcp_sock *tp;

	/* Closed: its storage is freed soon. */
	if (has_no_connection(skc))
		return;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return;
	fill_record(tp, flow, &record);
	record.cookie = bpf_get_socket_cookie(sk);
	bpf_seq_write(seq, &record, sizeof(record));
	bpf_seq_write(seq, &flow->counters, sizeof(flow->counters));
}

ITERATE(pillion_list, pillion_flows, write_flow)
