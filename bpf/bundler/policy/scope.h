/* SPDX-License-Identifier: GPL-2.0-only */
/* The network namespaces whose connections may be covered. */
#ifndef PILLION_SCOPE_H
#define PILLION_SCOPE_H

#define MAX_NAMESPACES 256

/*
 * Connections of every network namespace; set before the programs are loaded.
 */
const volatile bool any_namespace = false;

/*
 * Otherwise, the cookies of the network namespaces in scope; each cookie is
 * unique.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_NAMESPACES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u8);
} pillion_namespaces SEC(".maps");

/* Returns true if the socket of a program's context is in scope. */
static __always_inline bool context_in_scope(void *ctx)
{
	__u64 cookie;

	if (any_namespace)
		return true;
	cookie = bpf_get_netns_cookie(ctx);
	return bpf_map_lookup_elem(&pillion_namespaces, &cookie);
}

/* Cookie of a socket's namespace; 0 if the kernel has only one. */
static __always_inline __u64 netns_of(const struct sock_common *skc)
{
	if (!bpf_core_field_exists(skc->skc_net.net))
		return 0;
	return skc->skc_net.net->net_cookie;
}

/* Like context_in_scope(), for a socket without context. */
static __always_inline bool socket_in_scope(struct sock_common *skc)
{
	__u64 cookie;

	if (any_namespace || !bpf_core_field_exists(skc->skc_net.net))
		return true;
	cookie = netns_of(skc);
	return bpf_map_lookup_elem(&pillion_namespaces, &cookie);
}

#endif /* PILLION_SCOPE_H */
