/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads the connections that a running pillion bundles: of each a record, and
 * its counters. Both together would be too much for the stack.
 */
#include "../vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "flow_record.h"

char LICENSE[] SEC("license") = "GPL";

/* Functions of their own, so that the types reach user space. */
static __noinline long write_record(struct seq_file *seq,
				    struct flow_record *record)
{
	return bpf_seq_write(seq, record, sizeof(*record));
}

static __noinline long write_counters(struct seq_file *seq,
				      struct counters *counters)
{
	return bpf_seq_write(seq, counters, sizeof(*counters));
}

SEC("iter/bpf_sk_storage_map")
int pillion_list(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock_common *skc = (struct sock_common *)ctx->sk;
	struct flow *flow = ctx->value;
	struct flow_record record = {};
	struct tcp_sock *tp;

	if (!skc || !flow)
		return 0;
	/* It has ended: its port is given back, and its storage soon. */
	if (skc->skc_state == BPF_TCP_CLOSE)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	fill_record(tp, flow, &record);
	write_record(ctx->meta->seq, &record);
	write_counters(ctx->meta->seq, &flow->counters);
	return 0;
}
