/* SPDX-License-Identifier: GPL-2.0-only */
/* A connection's two ends, in one form for IPv4 and IPv6. */
#ifndef PILLION_ENDS_H
#define PILLION_ENDS_H

#include "flow.h"

#define AF_INET	 2
#define AF_INET6 10

/* An IPv4 address as ::ffff:a.b.c.d. */
static __always_inline void set_ipv4(__u8 *address, __be32 ipv4)
{
	__u32 *words = (__u32 *)address;

	words[0] = 0;
	words[1] = 0;
	words[2] = bpf_htonl(0xffff);
	words[3] = ipv4;
}

static __always_inline void read_ends(struct sock_common *skc,
				      struct endpoints *ends)
{
	ends->local_port = BPF_CORE_READ(skc, skc_num);
	ends->peer_port = bpf_ntohs(BPF_CORE_READ(skc, skc_dport));
	if (BPF_CORE_READ(skc, skc_family) == AF_INET6) {
		BPF_CORE_READ_INTO((struct in6_addr *)ends->local, skc,
				   skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO((struct in6_addr *)ends->peer, skc,
				   skc_v6_daddr);
	} else {
		set_ipv4(ends->local, BPF_CORE_READ(skc, skc_rcv_saddr));
		set_ipv4(ends->peer, BPF_CORE_READ(skc, skc_daddr));
	}
}

#endif /* PILLION_ENDS_H */
