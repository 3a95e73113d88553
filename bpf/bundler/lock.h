/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Locking between the egress side and the ingress side of a connection.
 *
 * Each side writes its own part (struct egress, struct ingress) and reads the
 * other part one word at a time. Within a side, one processor runs at a time.
 * Both sides update the counters with atomic additions, which order nothing.
 * docs/internals/memory-order.md lists the words that need an order.
 */
#ifndef PILLION_LOCK_H
#define PILLION_LOCK_H

#include "flow.h"

#define READ_ONCE(x)	  (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, to) (*(volatile typeof(x) *)&(x) = (to))

/*
 * Orders earlier loads before later loads, and earlier stores before later
 * stores. x86 always does. On other processors an exchange of any word does.
 */
static __always_inline void order_accesses(void)
{
#ifdef WEAKLY_ORDERED
	volatile __u32 word = 0;

	__sync_lock_test_and_set(&word, 1);
#endif
}

/* Stores a word that is visible only after all earlier stores. */
#define STORE_RELEASE(x, to) ((void)__sync_lock_test_and_set(&(x), to))

/* Loads a word before all later loads. */
#define LOAD_ACQUIRE(x)                                                        \
	({                                                                     \
		typeof(x) loaded_ = READ_ONCE(x);                              \
                                                                               \
		order_accesses();                                              \
		loaded_;                                                       \
	})

/* Tries before lock() fails: some microseconds. */
#define MAX_TRIES 256

static __always_inline bool try_lock(__u32 *busy)
{
	return !__sync_lock_test_and_set(busy, 1);
}

/*
 * Waits for another processor that holds the lock of the same side. ACKs are
 * processed with soft interrupts off. They can interrupt the close of a
 * connection, and on a kernel with PREEMPT_RT anything can. A processor that
 * waits for itself gives up after MAX_TRIES.
 */
static __always_inline bool lock(__u32 *busy)
{
	for (int i = 0; i < MAX_TRIES; i++)
		if (try_lock(busy))
			return true;
	return false;
}

static __always_inline void unlock(__u32 *busy)
{
	STORE_RELEASE(*busy, 0);
}

#endif /* PILLION_LOCK_H */
