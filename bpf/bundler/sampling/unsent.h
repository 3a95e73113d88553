/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Data that waits in the socket for its first transmission: for the congestion
 * window, for Nagle's algorithm (RFC 896), or for pacing.
 *
 * No program runs when the application writes. The bytes in the socket are
 * known at each packet and ACK, and count as written evenly between these.
 */
#ifndef PILLION_UNSENT_H
#define PILLION_UNSENT_H

#include "../tcp_state.h"
#include "observation.h"

#define TCP_INIT_CWND 10

enum unsent_cause {
	UNSENT_OTHER,
	UNSENT_NAGLE, /* the ACK of a small segment is missing */
	UNSENT_REDUCED, /* losses have reduced the window */
};

/*
 * Returns true while TCP recovers from losses, or after them has less than the
 * initial window (RFC 6928).
 */
static __always_inline bool is_window_reduced(struct tcp_sock *tp)
{
	return tp->total_retrans &&
	       (ca_state(tp) != TCP_CA_Open || tp->snd_cwnd < TCP_INIT_CWND);
}

/*
 * Returns the mean wait of the bytes in the socket since the last packet or
 * ACK. If there were none, a write came after that, and at regular intervals
 * after the last write that was sent at once.
 */
static __always_inline __u64 mean_wait_us(const struct observation *observation,
					  __u32 elapsed_us, __u32 unsent)
{
	__u64 since_write_us, regular_us;

	since_write_us = (__u32)now_us() - observation->written_at_us;
	regular_us = since_write_us * unsent /
		     (2ULL * unsent + observation->written);
	return regular_us < elapsed_us / 2 ? regular_us : elapsed_us / 2;
}

/* Adds the wait since the last packet or ACK. */
__noinline int add_unsent(struct observation *observation, __u32 unsent,
			  enum unsent_cause cause)
{
	__u32 elapsed_us, since_us, before;
	__u64 byte_us;

	if (!observation || !unsent)
		return 0;
	since_us = READ_ONCE(observation->unsent_at_us);
	before = READ_ONCE(observation->unsent);
	elapsed_us = (__u32)now_us() - since_us;
	/* The other side may have stored a later time. */
	if (!since_us || elapsed_us >> 31)
		return 0;
	if (before)
		byte_us = ((__u64)before + unsent) * elapsed_us / 2;
	else
		byte_us =
			mean_wait_us(observation, elapsed_us, unsent) * unsent;
	observation->unsent_byte_us += byte_us;
	if (cause == UNSENT_NAGLE)
		observation->nagle_byte_us += byte_us;
	else if (cause == UNSENT_REDUCED)
		observation->reduced_byte_us += byte_us;
	return 0;
}

static __always_inline void note_unsent(struct observation *observation,
					__u32 unsent)
{
	WRITE_ONCE(observation->unsent, unsent);
	WRITE_ONCE(observation->unsent_at_us, (__u32)now_us() | 1);
}

/* Handles a new segment, after which `unsent` bytes remain. */
__noinline int unsent_at_segment(struct observation *observation, __u32 len,
				 __u32 unsent, bool is_reduced)
{
	if (!observation)
		return 0;
	/* Otherwise, the write that sent it did not wait. */
	if (READ_ONCE(observation->unsent)) {
		add_unsent(observation, unsent + len,
			   is_reduced ? UNSENT_REDUCED : UNSENT_OTHER);
	} else if (!unsent) {
		observation->written_at_us = now_us();
		observation->written = len;
	}
	note_unsent(observation, unsent);
	return 0;
}

/* Handles an ACK, before TCP does. */
static __always_inline void unsent_at_ack(struct observation *observation,
					  struct tcp_sock *tp)
{
	__u32 unsent = tp->write_seq - tp->snd_nxt;
	enum unsent_cause cause = UNSENT_OTHER;

	if (waits_for_nagle(tp, unsent))
		cause = UNSENT_NAGLE;
	else if (is_window_reduced(tp))
		cause = UNSENT_REDUCED;
	if (unsent)
		add_unsent(observation, unsent, cause);
	note_unsent(observation, unsent);
}

#endif /* PILLION_UNSENT_H */
