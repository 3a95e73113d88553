/* SPDX-License-Identifier: GPL-2.0-only */
/* TFRC-SP arithmetic of the kernel programs, compiled for this machine. */
#include <linux/types.h>
#include <stdbool.h>

#define __noinline static

#include "tx/sending_rate.h"

/* tfrc.rs declares the same structs. */
_Static_assert(sizeof(struct sent) == 12, "struct sent");
_Static_assert(sizeof(struct sending) == 40, "struct sending");
_Static_assert(sizeof(struct loss_events) == 56, "struct loss_events");

__u64 pillion_tfrc_rate(__u64 p, __u64 rtt_us)
{
	return tfrc_rate(p, rtt_us);
}

__u64 pillion_subtract_headers(__u64 rate, const struct sent *sent)
{
	return subtract_headers(rate, sent);
}

void pillion_note_losses(struct loss_events *events, __u32 total_losses,
			 __u32 packets, __u64 now, __u64 rtt_us)
{
	note_losses(events, total_losses, packets, now, rtt_us);
}

__u64 pillion_loss_event_rate(const struct loss_events *events, __u32 packets,
			      __u64 now, __u64 rtt_us)
{
	return loss_event_rate(events, packets, now, rtt_us);
}

void pillion_note_sent(struct sending *sending, __u64 now, __u64 rtt_us,
		       const struct sent *sent)
{
	note_sent(sending, now, rtt_us, sent);
}

struct sent pillion_sending_rate(const struct sending *sending, __u64 now,
				 __u64 rtt_us)
{
	return sending_rate(sending, now, rtt_us);
}

bool pillion_exceeds_rate(const struct sending *sending, __u64 now,
			  __u64 rtt_us, __u64 limit)
{
	return exceeds_rate(sending, now, rtt_us, limit);
}
