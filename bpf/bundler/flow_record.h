/* SPDX-License-Identifier: GPL-2.0-only */
/* Snapshot of a connection for user space (`pillion flows`). */
#ifndef PILLION_FLOW_RECORD_H
#define PILLION_FLOW_RECORD_H

#include "tcp_state.h"
#include "endpoints.h"

/* The record of a connection for user space; its counters follow. */
struct flow_record {
	__u64 cookie; /* the socket's; 0: not assigned by the kernel yet */
	__u64 inode; /* inode of the open socket file; 0: not open */
	__u64 cgroup; /* id of the socket's cgroup; 0: none */
	struct endpoints endpoints;
	__u32 netns; /* inode number of its network namespace; 0: unknown */
	__u32 in_flight; /* packets */
	__u32 waits_for_nagle; /* 1: unsent data does */
	__u32 rtt_min_us; /* or NO_RTT_SAMPLE */
	enum rtt_sample rtt_sample[0]; /* puts the type into BTF, for Rust */
	__u32 srtt_us; /* smoothed; 0: no sample */
	__u32 snd_cwnd; /* packets */
	__u32 mss;
	__u32 data_packets; /* sent since the connection was opened */
	__u32 retransmitted_packets; /* part of data_packets */
	enum outcome last;
	__u32 rule;
	enum requested_by requested_by;
	__u32 disabled_by_application;
	enum loss_rule loss_rule;
	__u32 level;
	__u32 copies; /* of each segment */
	__u32 copies_limited;
	__u32 has_queue; /* not 0: packets wait on the path */
	/* maximum payload that the path accepts; 0: no limit */
	__u32 path_size;
	struct allowance allowance; /* the governor's */
	__u32 ignores_cwr; /* 1: the congestion control ignores CWR */
	struct options options;
	struct tcp_options tcp_options;
	__u32 tcp_options_refused;
	struct tfrc_decision tfrc_decision;
};

/* The inode by which processes have a socket open; 0 if none has. */
static __always_inline __u64 read_inode(struct sock *sk)
{
	struct socket *socket = sk->sk_socket;
	struct file *file = socket ? socket->file : NULL;
	struct inode *inode = file ? file->f_inode : NULL;

	return inode ? inode->i_ino : 0;
}

/* The id of the socket's cgroup. */
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

	read_endpoints(skc, &record->endpoints);
	record->cookie = skc->skc_cookie.counter;
	record->inode = read_inode(sk);
	record->cgroup = read_cgroup(sk);
	record->netns = 0;
	if (bpf_core_field_exists(skc->skc_net.net))
		record->netns = skc->skc_net.net->ns.inum;
	record->in_flight = tcp_packets_in_flight(tp);
	record->waits_for_nagle =
		waits_for_nagle(tp, tp->write_seq - tp->snd_nxt);
	record->rtt_min_us = flow->egress.rtt_min_us;
	if (tp->rtt_min.s[0].v < record->rtt_min_us)
		record->rtt_min_us = tp->rtt_min.s[0].v;
	record->srtt_us = tp->srtt_us >> 3;
	record->data_packets = tp->data_segs_out;
	record->retransmitted_packets =
		tp->total_retrans - flow->handshake_retransmissions;
	record->snd_cwnd = tp->snd_cwnd;
	record->mss = tp->mss_cache;
	record->last = flow->egress.last;
	record->rule = flow->rule;
	record->requested_by = flow->requested_by;
	record->disabled_by_application = flow->disabled_by_application;
	record->loss_rule = flow->ingress.loss_rule;
	record->level = flow->ingress.level;
	record->copies = flow->options.level == LEVEL_AUTO
				 ? flow->ingress.copies == AUTO_COPIES_ALL
				 : flow->options.copies;
	record->copies_limited = !!flow->egress.copies_limited_us;
	record->has_queue = flow->ingress.has_queue;
	record->path_size = flow->options.published ? 0
						    : flow->egress.path.limit;
	record->allowance = flow->egress.governor_state.allowance;
	record->ignores_cwr = ignores_cwr(tp);
	record->options = flow->options;
	record->tcp_options = flow->tcp_options;
	record->tcp_options_refused = flow->tcp_options_refused;
	record->tfrc_decision = flow->egress.tfrc_decision;
}

#endif /* PILLION_FLOW_RECORD_H */
