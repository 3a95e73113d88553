/* SPDX-License-Identifier: GPL-2.0-only */
/* When each segment was sent first, and how TCP retransmits. */
#ifndef PILLION_SENDING_TIMES_H
#define PILLION_SENDING_TIMES_H

#include "../tcp_state.h"
#include "observation.h"
#include "../segment.h"

/* It has been recorded just now, unless too much is outstanding. */
static __always_inline void observe_new(struct observation *seen,
					struct record *record,
					const struct segment *seg)
{
	__u32 next = record->next, newest = next - 1;

	if (slot(record, newest)->seq != seg->seq ||
	    record_end(record) != seg->seq + seg->len) {
		seen->unrecorded++;
		return;
	}
	seen->carrier[newest & (RECORD - 1)] = 0;
	/* What TCP may send unseen takes the next slot. */
	seen->sent_us[next & (RECORD - 1)] = 0;
	seen->carrier[next & (RECORD - 1)] = 0;
	WRITE_ONCE(seen->sent_us[newest & (RECORD - 1)], (__u32)now_us() | 1);
}

/* The kernel counts how often in a row its timer has made it retransmit. */
static __always_inline void observe_retransmission(struct observation *seen,
						   struct bpf_tcp_sock *tp,
						   struct tcp_sock *full,
						   __u32 packets)
{
	__u8 state = ca_state(full);
	__u32 timer = tp->icsk_retransmits;

	if (state != TCP_CA_Loss) {
		if (state == TCP_CA_Recovery)
			seen->retransmitted.fast += packets;
		else
			seen->retransmitted.probes += packets;
		return;
	}
	seen->retransmitted.after_timeout += packets;
	if (timer && timer != READ_ONCE(seen->timer))
		seen->timeouts++;
	WRITE_ONCE(seen->timer, timer);
}

/* A segment with data leaves; so many packets were retransmitted before it. */
static __always_inline void
observe_segment(struct observation *seen, struct flow *flow,
		struct bpf_tcp_sock *tp, struct tcp_sock *full,
		const struct segment *seg, __u32 retransmissions, __u32 packets)
{
	if (seg->seq == tp->snd_nxt)
		observe_new(seen, &flow->egress.record, seg);
	else if (tp->total_retrans != retransmissions)
		observe_retransmission(seen, tp, full, packets);
}

#endif /* PILLION_SENDING_TIMES_H */
