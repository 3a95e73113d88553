/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The bundler: the programs, and where in the kernel each one stands.
 *
 * No kfunc and no callback is used, so that the programs run in the BPF
 * interpreter as well.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bundle.h"
#include "hidden_loss.h"
#include "policy.h"
#include "reaction.h"
#include "report.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline struct flow *our_flow(struct __sk_buff *skb,
					     struct bpf_sock **sk)
{
	*sk = skb->sk;
	return *sk ? bpf_sk_storage_get(&pillion_flows, *sk, NULL, 0) : NULL;
}

/* Every packet that leaves by a device. */
SEC("tcx/egress")
int pillion_egress(struct __sk_buff *skb)
{
	struct bpf_sock *sk;
	struct flow *flow = our_flow(skb, &sk);

	return flow ? bundle(skb, sk, flow) : TCX_NEXT;
}

/* Every packet that arrives by a device. */
SEC("tcx/ingress")
int pillion_report(struct __sk_buff *skb)
{
	return take_out_report(skb) ? TCX_DROP : TCX_NEXT;
}

/* Every packet that arrives for a socket of the cgroup; none is changed. */
SEC("cgroup_skb/ingress")
int pillion_ingress(struct __sk_buff *skb)
{
	struct bpf_tcp_sock *tp;
	struct bpf_sock *sk;
	struct flow *flow = our_flow(skb, &sk);
	struct segment seg = {};
	struct ack ack = {};

	if (!flow)
		return 1;
	tp = bpf_tcp_sock(sk);
	if (!tp || parse_ip(skb, &seg, 0, skb->protocol) ||
	    parse_ack(skb, &seg, &ack))
		return 1;
	restore_report(flow, &ack);
	on_ack(flow, tp, &ack);
	return 1;
}

/* Every packet that leaves a socket of the cgroup; none is changed. */
SEC("cgroup_skb/egress")
int pillion_react(struct __sk_buff *skb)
{
	struct bpf_tcp_sock *tp;
	struct bpf_sock *sk;
	struct flow *flow = our_flow(skb, &sk);

	if (!flow)
		return KEEP;
	tp = bpf_tcp_sock(sk);
	return tp ? react(flow, tp) : KEEP;
}

/* A connection is begun, or established in either direction. */
SEC("sockops")
int pillion_sockops(struct bpf_sock_ops *ops)
{
	struct endpoints ends = {};
	__u32 op = ops->op, ipv4;
	struct tcp_sock *tp;
	struct bpf_sock *sk;

	if (op != BPF_SOCK_OPS_TCP_CONNECT_CB &&
	    op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB &&
	    op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	if (netns_cookie && bpf_get_netns_cookie(ops) != netns_cookie)
		return 1;
	ends.local_port = ops->local_port;
	ends.peer_port = bpf_ntohl(ops->remote_port);
	/* Else the compiler makes one access of two, and the verifier objects.
	 */
	ipv4 = ops->remote_ip4;
	barrier_var(ipv4);
	if (ops->family == AF_INET6) {
		__u32 *words = (__u32 *)ends.peer;

		words[0] = ops->remote_ip6[0];
		words[1] = ops->remote_ip6[1];
		words[2] = ops->remote_ip6[2];
		words[3] = ops->remote_ip6[3];
	} else {
		set_ipv4(ends.peer, ipv4);
	}
	sk = ops->sk;
	tp = sk ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tp)
		return 1;
	/*
	 * A socket may be used for one connection after another, of which the
	 * next one's SYN may carry data.
	 */
	bpf_sk_storage_delete(&pillion_flows, sk);
	if (op != BPF_SOCK_OPS_TCP_CONNECT_CB && is_covered(&ends))
		take_in(bpf_sk_storage_get(&pillion_flows, sk, NULL,
					   BPF_SK_STORAGE_GET_F_CREATE),
			tp);
	return 1;
}

/* Run once after attaching: the connections that are older than pillion. */
SEC("iter/tcp")
int pillion_adopt(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct endpoints ends = {};
	struct tcp_sock *tp;
	unsigned char state;

	if (!skc)
		return 0;
	state = BPF_CORE_READ(skc, skc_state);
	if (state != BPF_TCP_ESTABLISHED && state != BPF_TCP_CLOSE_WAIT)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	read_ends(skc, &ends);
	if (!tp || !is_covered(&ends) ||
	    bpf_sk_storage_get(&pillion_flows, skc, NULL, 0))
		return 0;
	take_in(bpf_sk_storage_get(&pillion_flows, skc, NULL,
				   BPF_SK_STORAGE_GET_F_CREATE),
		tp);
	return 0;
}
