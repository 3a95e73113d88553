/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Path sizes (packetization layer path MTU). A path, or a device, may drop
 * large packets. A bundle lost for its size costs a part of the window. TCP
 * then merges waiting data into packets that such a path always drops. A bundle
 * is therefore at most as large as the minimum MTU of every path, or as the
 * largest packet that arrived.
 *
 * A path may shrink later. If TCP retransmits data of a bundle's packet, and no
 * later packet of that size arrived, sizes are probed again, one bundle at a
 * time (RFC 8899). After MAX_PROBES consecutive failures a limit below the
 * smallest lost bundle applies for a pause, which doubles each time (RFC 8899,
 * sections 4.3 and 5.1).
 */
#ifndef PILLION_PLPMTU_H
#define PILLION_PLPMTU_H

#include "record.h"
#include "../tcp_state.h"
#include "../segment.h"

/* Minimum MTU of every path, headers included (RFC 791, RFC 8200). */
#define BASE_PLPMTU_IPV4 576
#define BASE_PLPMTU_IPV6 1280

#define MAX_PROBES  3
#define PAUSE_S	    2
#define MAX_PAUSE_S 640

/* Lost packets with a bundle, among the data of a retransmission. */
struct lost_bundles {
	__u32 smallest; /* payload of the smallest packet; 0: none */
	__u32 last; /* start of the newest of their own segments */
};

/*
 * Payload of the largest delivered packet with a bundle of this epoch; 0 if the
 * ingress side counts deliveries of an earlier one.
 */
static __always_inline __u32 delivered_bundle_size(
	const struct path_size *path, const struct ingress *ingress)
{
	if (READ_ONCE(ingress->epoch) != path->epoch)
		return 0;
	order_accesses();
	return READ_ONCE(ingress->largest_bundle);
}

/* Returns true if a bundle of this size, sent later, has arrived. */
static __always_inline bool
was_larger_bundle_delivered(const struct ingress *ingress,
			    const struct lost_bundles *lost)
{
	return after(LOAD_ACQUIRE(ingress->bundle_end), lost->last) &&
	       READ_ONCE(ingress->bundle_size) >= lost->smallest;
}

/* Clears the limit if a packet of the suspected size was delivered. */
static __always_inline void clear_black_hole(struct path_size *path,
					     const struct ingress *ingress)
{
	if (!path->black_hole_size ||
	    delivered_bundle_size(path, ingress) < path->black_hole_size)
		return;
	path->limit = 0;
	path->probe_count = 0;
	path->black_hole_size = 0;
	path->pause_s = 0;
}

/* Sets the limit below the suspected size, for a pause. */
static __always_inline void limit_path_size(struct path_size *path, __u64 now)
{
	path->pause_s = path->pause_s ? 2 * path->pause_s : PAUSE_S;
	if (path->pause_s > MAX_PAUSE_S)
		path->pause_s = MAX_PAUSE_S;
	path->until_us = now + path->pause_s * 1000000ULL;
	path->limit = path->black_hole_size - 1;
}

/*
 * Handles TCP's first retransmission of data in packets enlarged by a bundle.
 */
static __always_inline void note_lost_bundles(struct path_size *path,
					      const struct ingress *ingress,
					      const struct lost_bundles *lost,
					      __u32 snd_nxt)
{
	if (!lost->smallest || was_larger_bundle_delivered(ingress, lost))
		return;
	clear_black_hole(path, ingress);
	/* One loss does not disprove a size delivered since the last round. */
	if (path->black_hole_size &&
	    lost->smallest <= delivered_bundle_size(path, ingress)) {
		WRITE_ONCE(path->epoch, path->epoch + 1);
		return;
	}
	if (!path->black_hole_size || lost->smallest < path->black_hole_size)
		path->black_hole_size = lost->smallest;
	if (path->probe_count && before(lost->last, path->round_end))
		return;
	path->probe_count++;
	path->round_end = snd_nxt;
	WRITE_ONCE(path->epoch, path->epoch + 1);
	if (path->probe_count >= MAX_PROBES)
		limit_path_size(path, now_us());
}

/* Payload of a packet of the base PLPMTU, which every path must carry. */
static __always_inline __u32 base_payload(const struct segment *seg)
{
	__u32 headers = seg->payload_off - seg->ip_off;

	return (seg->ipv6 ? BASE_PLPMTU_IPV6 : BASE_PLPMTU_IPV4) - headers;
}

/*
 * Payload proven to be deliverable: the base size, or the largest arrived. That
 * packet may have had none of the optional TCP options, of which this one has
 * `varying` bytes.
 */
static __always_inline __u32 max_with_base(__u32 arrived, __u32 varying,
					   __u32 base)
{
	arrived = arrived > varying ? arrived - varying : 0;
	return arrived > base ? arrived : base;
}

/*
 * Returns the current limit of the path, at most the largest size delivered.
 * Clears an expired or disproved limit.
 */
static __always_inline __u32 update_path_limit(struct path_size *path,
					       const struct ingress *ingress,
					       const struct options *options,
					       __u32 base, __u32 varying)
{
	/* The papers have no such limit. */
	if (options->published)
		return HISTORY_BYTES;
	clear_black_hole(path, ingress);
	if (path->limit && now_us() < path->until_us)
		return path->limit;
	/* After the pause, a single failed round renews the limit. */
	if (path->limit)
		path->probe_count = MAX_PROBES - 1;
	path->limit = 0;
	return max_with_base(READ_ONCE(ingress->largest), varying, base);
}

/* Confirmed payload of a packet with a bundle, which needs no probe. */
static __always_inline __u32 confirmed_size(const struct path_size *path,
					    const struct ingress *ingress,
					    const struct options *options,
					    __u32 varying)
{
	__u32 confirmed;

	if (!path->probe_count || options->published)
		return HISTORY_BYTES;
	confirmed = delivered_bundle_size(path, ingress);
	return confirmed > varying ? confirmed - varying : 0;
}

/* Returns true while a probe is unacknowledged. */
static __always_inline bool is_probing(const struct path_size *path,
				       __u32 snd_una)
{
	return after(path->probe_end, snd_una);
}

#endif /* PILLION_PLPMTU_H */
