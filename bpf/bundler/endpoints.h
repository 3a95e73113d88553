/* SPDX-License-Identifier: GPL-2.0-only */
/* A connection's two ends, in one form for IPv4 and IPv6. */
#ifndef PILLION_ENDPOINTS_H
#define PILLION_ENDPOINTS_H

#include "flow.h"

#define AF_INET	 2
#define AF_INET6 10

/* A connection's ends, IPv4 as ::ffff:a.b.c.d, ports in host order. */
struct endpoints {
	__u8 local[16];
	__u8 peer[16];
	__u16 local_port;
	__u16 peer_port;
};

/* An IPv4 address as ::ffff:a.b.c.d. */
static __always_inline void set_ipv4(__u8 *address, __be32 ipv4)
{
	__u32 *words = (__u32 *)address;

	words[0] = 0;
	words[1] = 0;
	words[2] = bpf_htonl(0xffff);
	words[3] = ipv4;
}

static __always_inline bool is_ipv4(const __u8 *address)
{
	const __u32 *words = (const __u32 *)address;

	return !words[0] && !words[1] && words[2] == bpf_htonl(0xffff);
}

static __always_inline void set_ipv6(__u8 *address, const struct in6_addr *ipv6)
{
	__u32 *words = (__u32 *)address;

	words[0] = ipv6->in6_u.u6_addr32[0];
	words[1] = ipv6->in6_u.u6_addr32[1];
	words[2] = ipv6->in6_u.u6_addr32[2];
	words[3] = ipv6->in6_u.u6_addr32[3];
}

/*
 * Reads a connection's endpoints without bpf_probe_read_kernel(), which kernels
 * without tracing lack, and which lockdown=confidentiality forbids.
 */
static __always_inline void read_endpoints(struct sock_common *skc,
					   struct endpoints *endpoints)
{
	endpoints->local_port = skc->skc_num;
	endpoints->peer_port = bpf_ntohs(skc->skc_dport);
	if (skc->skc_family == AF_INET6) {
		set_ipv6(endpoints->local, &skc->skc_v6_rcv_saddr);
		set_ipv6(endpoints->peer, &skc->skc_v6_daddr);
	} else {
		set_ipv4(endpoints->local, skc->skc_rcv_saddr);
		set_ipv4(endpoints->peer, skc->skc_daddr);
	}
}

/* Returns true for a closed socket, or one that listens (again). */
static __always_inline bool has_no_connection(const struct sock_common *skc)
{
	return skc->skc_state == BPF_TCP_CLOSE ||
	       skc->skc_state == BPF_TCP_LISTEN;
}

#endif /* PILLION_ENDPOINTS_H */
