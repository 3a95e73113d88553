/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Assigns the arm of a connection by a keyed hash (SipHash 2-4, Aumasson and
 * Bernstein 2012). Without the key, nobody can choose an arm. The next process
 * with the same key assigns the same connection, or peer, to the same arm.
 */
#ifndef PILLION_ASSIGNMENT_H
#define PILLION_ASSIGNMENT_H

#include "../endpoints.h"
#include "observation.h"

#define ASSIGNMENT_WORDS 5

struct assignment_input {
	__u64 words[ASSIGNMENT_WORDS]; /* peer, local, ports */
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

static __always_inline __u64 sip_hash(const struct assignment_input *input)
{
	struct sip s = {
		.v0 = assignment_key[0] ^ 0x736f6d6570736575,
		.v1 = assignment_key[1] ^ 0x646f72616e646f6d,
		.v2 = assignment_key[0] ^ 0x6c7967656e657261,
		.v3 = assignment_key[1] ^ 0x7465646279746573,
	};

	for (int i = 0; i < ASSIGNMENT_WORDS; i++)
		sip_word(&s, input->words[i]);
	sip_word(&s, (__u64)sizeof(*input) << 56);
	s.v2 ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/*
 * Fills in the input of the assignment. For an IPv6 peer only its network (/64)
 * is used, because the other half changes (RFC 8981).
 */
static __always_inline void
fill_assignment_input(const struct endpoints *endpoints,
		      struct assignment_input *input)
{
	const __u32 *peer = (const __u32 *)endpoints->peer;

	__builtin_memcpy(&input->words[0], endpoints->peer, 16);
	if (assign_by == ASSIGN_BY_CONNECTION) {
		__builtin_memcpy(&input->words[2], endpoints->local, 16);
		input->words[4] = (__u64)endpoints->local_port << 16 |
				  endpoints->peer_port;
	} else if (peer[0] || peer[1]) {
		input->words[1] = 0;
	}
}

/*
 * Returns the arm for a hash. With a holdback, the first bits of the hash are
 * the connection's bucket, and the first buckets are plain.
 */
static __always_inline enum arm arm_of(__u64 unit, const struct flow *flow)
{
	bool is_plain = holding_back ? unit >> (64 - HOLDBACK_BITS) <
					       flow->options.holdback
				     : unit >> 32 >= bundled_threshold;

	return is_plain ? ARM_PLAIN : ARM_BUNDLED;
}

/*
 * Starts the observation of a connection, and assigns its arm. Without memory,
 * the next packet tries again.
 */
static __always_inline struct observation *
start_observation(struct __sk_buff *skb, struct flow *flow, struct tcp_sock *tp)
{
	__u64 cookie = bpf_get_socket_cookie(skb);
	bool is_counted = flow->arm == ARM_UNOBSERVED;
	struct observation *blank, *observation;
	struct totals *all = totals();
	struct assignment_input input = {};
	__u32 zero = 0;

	flow->arm = ARM_UNOBSERVED;
	blank = bpf_map_lookup_elem(&pillion_unobserved, &zero);
	if (!blank || !all)
		return NULL;
	bpf_map_update_elem(&pillion_observed, &cookie, blank, BPF_ANY);
	observation = bpf_map_lookup_elem(&pillion_observed, &cookie);
	if (!observation) {
		if (!is_counted)
			ADD_TO(all->unobserved, 1);
		return NULL;
	}
	if (is_counted)
		ADD_TO(all->unobserved, -1);
	read_endpoints(&((struct sock *)tp)->__sk_common,
		       &observation->endpoints);
	fill_assignment_input(&observation->endpoints, &input);
	observation->unit = sip_hash(&input);
	flow->arm = arm_of(observation->unit, flow);
	observation->open_kind = flow->open_kind;
	observation->arm = flow->arm;
	return observation;
}

/* Returns the observation of a connection whose packet leaves. */
static __always_inline struct observation *
observe(struct __sk_buff *skb, struct flow *flow, struct tcp_sock *tp)
{
	struct observation *observation = NULL;

	if (!observing || (holding_back && !flow->options.holdback))
		return NULL;
	/*
	 * The observation of an earlier connection of this socket is not
	 * reused.
	 */
	if (flow->arm != ARM_NONE)
		observation = find_observation(skb);
	if (!observation)
		observation = start_observation(skb, flow, tp);
	if (observation)
		observation->rule = flow->rule;
	return observation;
}

#endif /* PILLION_ASSIGNMENT_H */
