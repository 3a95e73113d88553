/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How what stands on the way out and what stands on the way in share a
 * connection's state.
 *
 * Each side writes its own part (struct egress, struct ingress) and reads the
 * other's, a word at a time. Within a side, one processor is at work at a time.
 * The counters, which both add to, are added to in one step.
 */
#ifndef PILLION_LOCK_H
#define PILLION_LOCK_H

#include "flow.h"

#define READ_ONCE(x)	  (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, to) (*(volatile typeof(x) *)&(x) = (to))

/*
 * A word that others may read, once they can see all that was written before:
 * on x86, where no load passes another. Elsewhere pillion was never tried.
 */
#define PUBLISH(x, to) ((void)__sync_lock_test_and_set(&(x), to))

/* Tries for a processor that is at work to be done: some microseconds. */
#define PATIENCE 256

static __always_inline bool try_enter(__u32 *busy)
{
	return !__sync_lock_test_and_set(busy, 1);
}

/*
 * Waits for a processor that is at work on the same side, which is another one:
 * ACKs come with soft interrupts off. What ends the connection may be
 * interrupted by them, and anything may on a kernel with PREEMPT_RT; whoever
 * waits for its own processor does so in vain, and goes without.
 */
static __always_inline bool enter(__u32 *busy)
{
	for (int i = 0; i < PATIENCE; i++)
		if (try_enter(busy))
			return true;
	return false;
}

static __always_inline void leave(__u32 *busy)
{
	PUBLISH(*busy, 0);
}

#endif /* PILLION_LOCK_H */
