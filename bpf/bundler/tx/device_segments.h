/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts the announced segments of each device, and how many of them the
 * device's program did not see. Another program or filter may run before it and
 * end the chain.
 */
#ifndef PILLION_DEVICE_SEGMENTS_H
#define PILLION_DEVICE_SEGMENTS_H

#include "../maps.h"
#include "../policy/scope.h"

#define MAX_COUNTED_DEVICES 16384

struct device_key {
	__u64 netns; /* cookie of the network namespace */
	__u32 ifindex;
	__u32 padding;
};

struct device_segments {
	__u64 announced;
	__u64 unseen; /* of these, not seen by any device's program */
};

/* User space removes devices without pillion. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_COUNTED_DEVICES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct device_key);
	__type(value, struct device_segments);
} pillion_device_segments SEC(".maps");

static __always_inline void count_for_device(const struct tcp_sock *tp,
					     __u32 ifindex, bool seen)
{
	struct device_segments first = {.announced = 1, .unseen = !seen};
	struct device_segments *segments;
	struct device_key key = {
		.netns = netns_of(&((const struct sock *)tp)->__sk_common),
		.ifindex = ifindex,
	};

	segments = bpf_map_lookup_elem(&pillion_device_segments, &key);
	if (!segments) {
		bpf_map_update_elem(&pillion_device_segments, &key, &first,
				    BPF_NOEXIST);
		return;
	}
	ADD_TO(segments->announced, 1);
	if (!seen)
		ADD_TO(segments->unseen, 1);
}

#endif /* PILLION_DEVICE_SEGMENTS_H */
