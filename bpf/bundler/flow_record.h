/* SPDX-License-Identifier: GPL-2.0-only */
/* What user space is told of a connection. */
#ifndef PILLION_FLOW_RECORD_H
#define PILLION_FLOW_RECORD_H

#include "tcp_state.h"
#include "endpoints.h"

/* The inode by which processes have a socket open; 0 if none has. */
static __always_inline __u64 read_inode(struct sock *sk)
{
	struct socket *socket = sk->sk_socket;
	struct file *file = socket ? socket->file : NULL;
	struct inode *inode = file ? file->f_inode : NULL;

	return inode ? inode->i_ino : 0;
}

/* The id of the cgroup whose socket it is. */
static __always_inline __u64 read_cgroup(struct sock *sk)
{
	struct cgroup *cgroup = sk->sk_cgrp_data.cgroup;

	return cgroup ? cgroup->kn->id : 0;
}

static __always_inline void fill_record(struct tcp_sock *tp, struct flow *flow,
					struct flow_record *record)
{
	struct sock *sk = (struct sock *)tp;
	struct sock_common *skc = &sk->__sk_common;

	read_ends(skc, &record->ends);
	record->cookie = skc->skc_cookie.counter;
	record->inode = read_inode(sk);
	record->cgroup = read_cgroup(sk);
	record->netns = 0;
	if (bpf_core_field_exists(skc->skc_net.net))
		record->netns = skc->skc_net.net->ns.inum;
	record->in_flight = tp->packets_out - (tp->sacked_out + tp->lost_out) +
			    tp->retrans_out;
	record->rtt_min_us = flow->egress.rtt_min_us;
	if (tp->rtt_min.s[0].v < record->rtt_min_us)
		record->rtt_min_us = tp->rtt_min.s[0].v;
	record->srtt_us = tp->srtt_us >> 3;
	record->data_packets = tp->data_segs_out;
	record->retransmitted =
		tp->total_retrans - flow->handshake_retransmissions;
	record->snd_cwnd = tp->snd_cwnd;
	record->mss = tp->mss_cache;
	record->last = flow->egress.last;
	record->rule = flow->rule;
	record->wanted_by = flow->wanted_by;
	record->off = flow->off;
	record->loss_rule = flow->ingress.rule;
	record->level = flow->ingress.level;
	record->path_size = flow->options.published ? 0
						    : flow->egress.path.limit;
	record->allowance = flow->egress.governed.allowance;
	record->ignores_cwr = ignores_cwr(tp);
	record->options = flow->options;
	record->companions = flow->companions;
	record->companions_refused = flow->companions_refused;
	record->decision = flow->egress.decision;
}

#endif /* PILLION_FLOW_RECORD_H */
