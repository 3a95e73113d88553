/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A path, or a device, may drop what is large: then no bundle comes through,
 * and TCP retransmits all that left in one.
 *
 * That is told from other losses by rounds. One in which TCP retransmits what
 * left in a bundle's packet, and no such packet arrives that is as large,
 * raises a suspicion; several in a row, each with packets that left after the
 * last one, set a limit below the smallest that was lost. After a pause it is
 * tried again, and the pause gets longer each time that this fails (as for
 * probes of a path's MTU: RFC 8899, sections 4.3 and 5.1).
 */
#ifndef PILLION_PATH_H
#define PILLION_PATH_H

#include "record.h"
#include "round_trip.h"

#define ROUNDS	    3
#define PAUSE_S	    10
#define PAUSE_MAX_S 640

/* Packets larger for a bundle that are lost for certain, payload; 0: none. */
struct lost_bundles {
	__u32 smallest;
	__u32 last; /* where the newest of these segments begins */
};

/* From now on counts what arrives anew. */
static __always_inline void begin_epoch(struct path_size *path)
{
	WRITE_ONCE(path->epoch, path->epoch + 1);
}

/* The largest packet with a bundle that has arrived since, payload. */
static __always_inline __u32 came_through(const struct path_size *path,
					  const struct ingress *ingress)
{
	if (READ_ONCE(ingress->epoch) != path->epoch)
		return 0;
	return READ_ONCE(ingress->through);
}

static __always_inline void limit_path_size(struct path_size *path, __u64 now)
{
	path->pause_s = path->pause_s ? 2 * path->pause_s : PAUSE_S;
	if (path->pause_s > PAUSE_MAX_S)
		path->pause_s = PAUSE_MAX_S;
	path->until_us = now + path->pause_s * 1000000ULL;
	path->limit = path->suspect - 1;
}

/* TCP retransmits, for the first time, what left in such packets. */
static __always_inline void note_lost_bundles(struct path_size *path,
					      const struct ingress *ingress,
					      const struct lost_bundles *lost,
					      __u32 snd_nxt)
{
	__u32 through = came_through(path, ingress);

	if (!lost->smallest)
		return;
	if (path->rounds && through >= path->suspect) {
		path->rounds = 0;
		path->suspect = 0;
		path->pause_s = 0;
	} else if (path->rounds && through >= lost->smallest) {
		begin_epoch(path); /* such do get through; did just now */
		return;
	}
	if (!path->suspect || lost->smallest < path->suspect)
		path->suspect = lost->smallest;
	if (path->rounds && before(lost->last, path->round_end))
		return;
	if (!path->rounds)
		begin_epoch(path);
	path->rounds++;
	path->round_end = snd_nxt;
	if (path->rounds >= ROUNDS)
		limit_path_size(path, now_us());
}

/* Payload that a segment with its bundle may have, as far as the path goes. */
static __always_inline __u32 path_limit(struct path_size *path)
{
	if (!path->limit || now_us() < path->until_us)
		return path->limit ?: HISTORY_BYTES;
	/* One more round in which it fails is enough. */
	path->limit = 0;
	path->rounds = ROUNDS - 1;
	begin_epoch(path);
	return HISTORY_BYTES;
}

#endif /* PILLION_PATH_H */
