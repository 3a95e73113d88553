/* SPDX-License-Identifier: GPL-2.0-only */
/* Which connections are ours, and how they become so. */
#ifndef PILLION_POLICY_H
#define PILLION_POLICY_H

#include "ends.h"
#include "maps.h"

#define AF_INET	 2
#define AF_INET6 10

/* Set before the programs are loaded. */
const volatile struct options options = {};
const volatile bool match_ports = false; /* else any port */
const volatile bool match_peers = false; /* else any peer */
const volatile __u64 netns_cookie = 0; /* 0: any network namespace */

/* Local or remote ports, in host order; the value says nothing. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u16);
	__type(value, __u8);
} pillion_ports SEC(".maps");

struct peer_prefix {
	__u32 bits;
	__u8 address[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct peer_prefix);
	__type(value, __u8);
} pillion_peers SEC(".maps");

static __always_inline bool is_covered(const struct endpoints *ends)
{
	struct peer_prefix peer = {.bits = 128};
	__u16 local = ends->local_port, remote = ends->peer_port;

	if (match_ports && !bpf_map_lookup_elem(&pillion_ports, &local) &&
	    !bpf_map_lookup_elem(&pillion_ports, &remote))
		return false;
	__builtin_memcpy(peer.address, ends->peer, sizeof(peer.address));
	return !match_peers || bpf_map_lookup_elem(&pillion_peers, &peer);
}

/* flow is the socket's new storage, or NULL where there was no memory. */
static __always_inline void take_in(struct flow *flow, struct tcp_sock *tp)
{
	__u32 snd_nxt = tp->snd_nxt;
	struct totals *all = totals();

	if (!all)
		return;
	if (!flow) {
		all->connections_refused++;
		return;
	}
	all->connections++;
	flow->options = options;
	flow->loss_rule = options.loss_rule;
	flow->level = 1;
	flow->sack = BPF_CORE_READ_BITFIELD(tp, rx_opt.sack_ok);
	flow->reacted_at = snd_nxt;
	flow->again_start = snd_nxt;
	flow->again_end = snd_nxt;
	flow->sent_end = snd_nxt;
	flow->segments = 0;
}

#endif /* PILLION_POLICY_H */
