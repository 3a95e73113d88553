/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The administrator's caps on the redundancy of all connections together,
 * published ones included. User space writes the rates; the programs take from
 * them before they add redundancy. What they take for a packet that fails
 * afterwards is not given back.
 */
#ifndef PILLION_CAPS_H
#define PILLION_CAPS_H

#include "../maps.h"
#include "token_bucket.h"

/* There are caps, or a reload may add some; set before loading. */
const volatile bool capped = false;

/* 0: no cap. */
struct caps {
	__u64 redundant_bytes_per_s; /* payload, as in struct counters */
	__u64 copies_per_s;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct caps);
} pillion_caps SEC(".maps");

struct cap_buckets {
	__u64 redundant_bytes;
	__u64 copies;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cap_buckets);
} pillion_cap_buckets SEC(".maps");

/*
 * Takes redundant bytes and copies from the caps; returns 0 if they do not
 * allow both. A global function, so that the verifier checks it once.
 */
__noinline int take_from_caps(__u32 bytes, __u32 copies)
{
	__u64 bytes_per_s, copies_per_s, now;
	struct cap_buckets *buckets;
	struct caps *caps;
	__u32 zero = 0;

	caps = bpf_map_lookup_elem(&pillion_caps, &zero);
	buckets = bpf_map_lookup_elem(&pillion_cap_buckets, &zero);
	if (!caps || !buckets)
		return 0;
	bytes_per_s = READ_ONCE(caps->redundant_bytes_per_s);
	copies_per_s = READ_ONCE(caps->copies_per_s);
	now = bpf_ktime_get_ns();
	if (!take_tokens(&buckets->copies, copies, copies_per_s, now))
		return 0;
	if (take_tokens(&buckets->redundant_bytes, bytes, bytes_per_s, now))
		return 1;
	return_tokens(&buckets->copies, copies, copies_per_s);
	return 0;
}

/*
 * Applies the caps to the redundancy of a new segment of `len` bytes: a bundle
 * if the outcome is ELIGIBLE, and copies. Returns CAPPED if the bundle is
 * refused or, without a bundle, its copies; otherwise the outcome.
 */
static __always_inline enum outcome
apply_caps(enum outcome outcome, __u32 bundle_bytes, __u32 len, __u32 *copies)
{
	bool bundle_fits, copies_fit;

	if (!capped)
		return outcome;
	if (outcome != ELIGIBLE)
		bundle_bytes = 0;
	bundle_fits = !bundle_bytes || take_from_caps(bundle_bytes, 0);
	copies_fit = bundle_fits &&
		     (!*copies ||
		      take_from_caps(*copies * (len + bundle_bytes), *copies));
	if (*copies && !copies_fit) {
		COUNT_IN_TOTALS(copies_capped);
		*copies = 0;
	}
	return bundle_fits && (bundle_bytes || copies_fit) ? outcome : CAPPED;
}

#endif /* PILLION_CAPS_H */
