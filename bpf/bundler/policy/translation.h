/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sockets whose packets this host itself translates: DNAT in OUTPUT (such as a
 * Kubernetes ClusterIP), redirection, masquerading. At a device their packets
 * have other addresses than the socket. A leaving packet shows both, and so
 * maps arriving packets to the socket.
 */
#ifndef PILLION_TRANSLATION_H
#define PILLION_TRANSLATION_H

#include "helper_port.h"
#include "../maps.h"
#include "../segment.h"

/* A new entry evicts the least recently used one. */
#define MAX_TRANSLATED 4096

#define TUPLE_WORDS (sizeof(struct bpf_sock_tuple) / 4)

struct translation {
	struct bpf_sock_tuple
		own; /* of arriving packets, without translation */
	__u64 cookie; /* the socket's */
};

/* By the translated endpoints of arriving packets, the peer's first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_TRANSLATED);
	__type(key, struct bpf_sock_tuple);
	__type(value, struct translation);
} pillion_translated SEC(".maps");

/* Reads a packet's addresses and ports, in its order; the rest is zeroed. */
static __always_inline int read_tuple(struct __sk_buff *skb,
				      const struct segment *seg,
				      struct bpf_sock_tuple *tuple)
{
	void *ports = seg->ipv6 ? (void *)&tuple->ipv6.sport
				: (void *)&tuple->ipv4.sport;

	__builtin_memset(tuple, 0, sizeof(*tuple));
	if (bpf_skb_load_bytes(skb, seg->tcp_off, ports, 4))
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

/* The endpoints of packets that arrive for the socket, untranslated. */
static __always_inline void socket_tuple(struct bpf_sock *sk, bool ipv6,
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

static __always_inline bool are_equal_tuples(const struct bpf_sock_tuple *a,
					     const struct bpf_sock_tuple *b)
{
	const __u32 *words_a = (const __u32 *)a, *words_b = (const __u32 *)b;
	__u32 differ = 0;

	for (int i = 0; i < TUPLE_WORDS; i++)
		differ |= words_a[i] ^ words_b[i];
	return !differ;
}

/*
 * Returns true if this host's NAT gives the packet a port of helper_port.h,
 * because rules see only the socket's own ports.
 */
static __always_inline bool gets_helper_port(struct __sk_buff *skb,
					     const struct bpf_sock *sk,
					     const struct segment *seg)
{
	__be16 ports[2];

	if (bpf_skb_load_bytes(skb, seg->tcp_off, ports, sizeof(ports)))
		return false;
	if (ports[0] == bpf_htons(sk->src_port) && ports[1] == sk->dst_port)
		return false;
	return helper_ports(bpf_ntohs(ports[0]), bpf_ntohs(ports[1])) &
	       ~helper_ports(sk->src_port, bpf_ntohs(sk->dst_port));
}

/* Learns from a leaving packet the addresses that its ACK will have. */
static __noinline void learn_translation(struct __sk_buff *skb,
					 struct bpf_sock *sk, struct flow *flow,
					 const struct segment *seg)
{
	struct translation *stored, current = {};
	struct bpf_sock_tuple wire;

	if (read_tuple(skb, seg, &wire))
		return;
	reverse(&wire, seg->ipv6);
	socket_tuple(sk, seg->ipv6, &current.own);
	if (are_equal_tuples(&wire, &current.own))
		return;
	current.cookie = bpf_get_socket_cookie(skb);
	WRITE_ONCE(flow->egress.translated, current.cookie);
	stored = bpf_map_lookup_elem(&pillion_translated, &wire);
	if (!stored || stored->cookie != current.cookie)
		bpf_map_update_elem(&pillion_translated, &wire, &current,
				    BPF_ANY);
}

static __always_inline struct bpf_sock *
look_up_socket(struct __sk_buff *skb, struct bpf_sock_tuple *tuple, bool ipv6)
{
	__u32 size = ipv6 ? sizeof(tuple->ipv6) : sizeof(tuple->ipv4);

	return bpf_sk_lookup_tcp(skb, tuple, size, BPF_F_CURRENT_NETNS, 0);
}

#endif /* PILLION_TRANSLATION_H */
