/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sockets behind this host's own NAT: DNAT in OUTPUT (as a Kubernetes ClusterIP
 * is made), redirection, masquerading. At a device their packets have other
 * ends than the sockets have. Of a packet that leaves both are known, and that
 * tells to which socket one belongs that arrives.
 */
#ifndef PILLION_TRANSLATION_H
#define PILLION_TRANSLATION_H

#include "helper_port.h"
#include "../maps.h"
#include "../segment.h"

/* Beyond that, the one that was not used for longest goes. */
#define MAX_TRANSLATED 4096

#define TUPLE_WORDS (sizeof(struct bpf_sock_tuple) / 4)

struct translated {
	struct bpf_sock_tuple own; /* as if nothing were translated */
	__u64 cookie; /* the socket's */
};

/* By the ends that packets have where they arrive, the peer's first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_TRANSLATED);
	__type(key, struct bpf_sock_tuple);
	__type(value, struct translated);
} pillion_translated SEC(".maps");

/* A packet's ends, in its order; what an IPv4 packet has no use for is zero. */
static __always_inline int read_tuple(struct __sk_buff *skb,
				      const struct segment *seg,
				      struct bpf_sock_tuple *tuple)
{
	void *ports = seg->ipv6 ? (void *)&tuple->ipv6.sport
				: (void *)&tuple->ipv4.sport;

	__builtin_memset(tuple, 0, sizeof(*tuple));
	if (bpf_skb_load_bytes(skb, seg->tcp, ports, 4))
		return -1;
	return seg->ipv6 ? bpf_skb_load_bytes(skb, addresses(seg), &tuple->ipv6,
					      32)
			 : bpf_skb_load_bytes(skb, addresses(seg), &tuple->ipv4,
					      8);
}

#define SWAP(a, b)                                                             \
	do {                                                                   \
		typeof(a) was_ = (a);                                          \
                                                                               \
		(a) = (b);                                                     \
		(b) = was_;                                                    \
	} while (0)

static __always_inline void reverse(struct bpf_sock_tuple *tuple, bool ipv6)
{
	if (!ipv6) {
		SWAP(tuple->ipv4.saddr, tuple->ipv4.daddr);
		SWAP(tuple->ipv4.sport, tuple->ipv4.dport);
		return;
	}
	for (int i = 0; i < 4; i++)
		SWAP(tuple->ipv6.saddr[i], tuple->ipv6.daddr[i]);
	SWAP(tuple->ipv6.sport, tuple->ipv6.dport);
}

/* The ends of a packet that arrives for the socket, if nothing translates. */
static __always_inline void own_tuple(struct bpf_sock *sk, bool ipv6,
				      struct bpf_sock_tuple *tuple)
{
	__builtin_memset(tuple, 0, sizeof(*tuple));
	if (!ipv6) {
		tuple->ipv4.saddr = sk->dst_ip4;
		tuple->ipv4.daddr = sk->src_ip4;
		tuple->ipv4.sport = sk->dst_port;
		tuple->ipv4.dport = bpf_htons(sk->src_port);
		return;
	}
	tuple->ipv6.saddr[0] = sk->dst_ip6[0];
	tuple->ipv6.saddr[1] = sk->dst_ip6[1];
	tuple->ipv6.saddr[2] = sk->dst_ip6[2];
	tuple->ipv6.saddr[3] = sk->dst_ip6[3];
	tuple->ipv6.daddr[0] = sk->src_ip6[0];
	tuple->ipv6.daddr[1] = sk->src_ip6[1];
	tuple->ipv6.daddr[2] = sk->src_ip6[2];
	tuple->ipv6.daddr[3] = sk->src_ip6[3];
	tuple->ipv6.sport = sk->dst_port;
	tuple->ipv6.dport = bpf_htons(sk->src_port);
}

static __always_inline bool are_alike(const struct bpf_sock_tuple *a,
				      const struct bpf_sock_tuple *b)
{
	const __u32 *of_a = (const __u32 *)a, *of_b = (const __u32 *)b;
	__u32 differ = 0;

	for (int i = 0; i < TUPLE_WORDS; i++)
		differ |= of_a[i] ^ of_b[i];
	return !differ;
}

/*
 * Does this host's NAT give the packet a port of helper_port.h? Rules see the
 * socket's own ports only.
 */
static __always_inline bool gets_helper_port(struct __sk_buff *skb,
					     const struct bpf_sock *sk,
					     const struct segment *seg)
{
	__be16 ports[2];

	if (bpf_skb_load_bytes(skb, seg->tcp, ports, sizeof(ports)))
		return false;
	if (ports[0] == bpf_htons(sk->src_port) && ports[1] == sk->dst_port)
		return false;
	return helper_ports(bpf_ntohs(ports[0]), bpf_ntohs(ports[1])) &
	       ~helper_ports(sk->src_port, bpf_ntohs(sk->dst_port));
}

/* Learns from a packet that leaves by which ends its ACK will be known. */
static __noinline void learn_translation(struct __sk_buff *skb,
					 struct bpf_sock *sk, struct flow *flow,
					 const struct segment *seg)
{
	struct translated *known, now = {};
	struct bpf_sock_tuple wire;

	if (read_tuple(skb, seg, &wire))
		return;
	reverse(&wire, seg->ipv6);
	own_tuple(sk, seg->ipv6, &now.own);
	if (are_alike(&wire, &now.own))
		return;
	now.cookie = bpf_get_socket_cookie(skb);
	WRITE_ONCE(flow->egress.translated, now.cookie);
	known = bpf_map_lookup_elem(&pillion_translated, &wire);
	if (!known || known->cookie != now.cookie)
		bpf_map_update_elem(&pillion_translated, &wire, &now, BPF_ANY);
}

static __always_inline struct bpf_sock *
look_up_socket(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, bool ipv6)
{
	__u32 size = ipv6 ? sizeof(tuple->ipv6) : sizeof(tuple->ipv4);

	return bpf_sk_lookup_tcp(skb, tuple, size, BPF_F_CURRENT_NETNS, 0);
}

#endif /* PILLION_TRANSLATION_H */
