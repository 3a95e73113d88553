/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which arm does a connection belong to? It is drawn by a keyed hash (SipHash
 * 2-4, Aumasson and Bernstein 2012), so that nobody without the key can choose,
 * and that the same connection, or peer, is drawn alike by the next process
 * with the same key.
 */
#ifndef PILLION_ASSIGNMENT_H
#define PILLION_ASSIGNMENT_H

#include "../endpoints.h"
#include "observation.h"

#define DRAWN_WORDS 5

struct drawn {
	__u64 words[DRAWN_WORDS]; /* peer, local, ports */
};

struct sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 rotate(__u64 x, __u32 bits)
{
	return x << bits | x >> (64 - bits);
}

static __always_inline void sip_round(struct sip *s)
{
	s->v0 += s->v1;
	s->v1 = rotate(s->v1, 13) ^ s->v0;
	s->v0 = rotate(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = rotate(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = rotate(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = rotate(s->v1, 17) ^ s->v2;
	s->v2 = rotate(s->v2, 32);
}

static __always_inline void sip_word(struct sip *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	sip_round(s);
	s->v0 ^= word;
}

static __always_inline __u64 sip_hash(const struct drawn *drawn)
{
	struct sip s = {
		.v0 = draw_key[0] ^ 0x736f6d6570736575,
		.v1 = draw_key[1] ^ 0x646f72616e646f6d,
		.v2 = draw_key[0] ^ 0x6c7967656e657261,
		.v3 = draw_key[1] ^ 0x7465646279746573,
	};

	for (int i = 0; i < DRAWN_WORDS; i++)
		sip_word(&s, drawn->words[i]);
	sip_word(&s, (__u64)sizeof(*drawn) << 56);
	s.v2 ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/*
 * What the arm is drawn for. Of a peer with IPv6 the network alone counts
 * (/64): its other half changes by itself (RFC 8981).
 */
static __always_inline void fill_drawn(const struct endpoints *ends,
				       struct drawn *drawn)
{
	const __u32 *peer = (const __u32 *)ends->peer;

	__builtin_memcpy(&drawn->words[0], ends->peer, 16);
	if (draw_by == DRAW_BY_CONNECTION) {
		__builtin_memcpy(&drawn->words[2], ends->local, 16);
		drawn->words[4] = (__u64)ends->local_port << 16 |
				  ends->peer_port;
	} else if (peer[0] || peer[1]) {
		drawn->words[1] = 0;
	}
}

/*
 * Begins to observe a connection, and draws its arm. Where there is no memory
 * at this moment, its next packet tries again.
 */
static __always_inline struct observation *
begin_observation(struct __sk_buff *skb, struct flow *flow,
		  struct tcp_sock *full)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	bool is_counted = flow->arm == ARM_UNOBSERVED;
	struct observation *blank, *seen;
	struct totals *all = totals();
	struct drawn drawn = {};
	__u32 zero = 0;

	/* What finds no place to be observed is not to be bundled unseen. */
	flow->arm = ARM_UNOBSERVED;
	blank = bpf_map_lookup_elem(&pillion_unobserved, &zero);
	if (!blank || !all)
		return NULL;
	bpf_map_update_elem(&pillion_observed, &cookie, blank, BPF_ANY);
	seen = bpf_map_lookup_elem(&pillion_observed, &cookie);
	if (!seen) {
		if (!is_counted)
			ADD_TO(all->unobserved, 1);
		return NULL;
	}
	if (is_counted)
		ADD_TO(all->unobserved, -1);
	read_ends(&((struct sock *)full)->__sk_common, &seen->ends);
	fill_drawn(&seen->ends, &drawn);
	seen->unit = sip_hash(&drawn);
	flow->arm = seen->unit >> 32 < draw_bundled ? ARM_BUNDLED : ARM_PLAIN;
	seen->opening = flow->opening;
	seen->arm = flow->arm;
	return seen;
}

/* What is observed of a connection whose packet leaves, from the first one. */
static __always_inline struct observation *
observe(struct __sk_buff *skb, struct flow *flow, struct tcp_sock *full)
{
	struct observation *seen = NULL;

	if (!observing)
		return NULL;
	/* Of another connection with the same socket nothing is to be added. */
	if (flow->arm != ARM_NONE)
		seen = observed(skb);
	return seen ?: begin_observation(skb, flow, full);
}

#endif /* PILLION_ASSIGNMENT_H */
