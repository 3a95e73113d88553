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

#include "endpoints.h"

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

/* The inode by which processes have a socket open; 0 if none has. */
static __always_inline __u64 read_inode(struct sock *sk)
{
	struct socket *socket = sk->sk_socket;
	struct file *file = socket ? socket->file : NULL;
	struct inode *inode = file ? file->f_inode : NULL;

	return inode ? inode->i_ino : 0;
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
	read_ends(skc, &record.ends);
	record.cookie = skc->skc_cookie.counter;
	record.inode = read_inode((struct sock *)skc);
	if (bpf_core_field_exists(skc->skc_net.net))
		record.netns = skc->skc_net.net->ns.inum;
	record.in_flight = tp->packets_out - (tp->sacked_out + tp->lost_out) +
			   tp->retrans_out;
	record.rtt_min_us = flow->egress.rtt_min_us;
	if (tp->rtt_min.s[0].v < record.rtt_min_us)
		record.rtt_min_us = tp->rtt_min.s[0].v;
	record.srtt_us = tp->srtt_us >> 3;
	record.data_packets = tp->data_segs_out;
	record.retransmitted = tp->total_retrans;
	record.snd_cwnd = tp->snd_cwnd;
	record.mss = tp->mss_cache;
	record.last = flow->egress.last;
	record.rule = flow->rule;
	record.wanted_by = flow->wanted_by;
	record.off = flow->off;
	record.loss_rule = flow->ingress.rule;
	record.level = flow->ingress.level;
	record.path_size = flow->egress.path.limit;
	record.options = flow->options;
	record.companions = flow->companions;
	record.companions_refused = flow->companions_refused;
	record.decision = flow->egress.decision;
	write_record(ctx->meta->seq, &record);
	write_counters(ctx->meta->seq, &flow->counters);
	return 0;
}
