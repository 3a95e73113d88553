/* SPDX-License-Identifier: GPL-2.0-only */
/* When each segment was sent first, and how TCP retransmits. */
#ifndef PILLION_SENDING_TIMES_H
#define PILLION_SENDING_TIMES_H

#include "observation.h"
#include "segment.h"

/* States of a connection's recovery, as in the kernel (enum tcp_ca_state). */
#define STATE_RECOVERY 3
#define STATE_LOSS     4

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
static __always_inline void observe_again(struct observation *seen,
					  struct bpf_tcp_sock *tp,
					  struct tcp_sock *full, __u32 packets)
{
	__u32 state = BPF_CORE_READ_BITFIELD(&full->inet_conn, icsk_ca_state);
	__u32 timer = tp->icsk_retransmits;

	if (state != STATE_LOSS) {
		if (state == STATE_RECOVERY)
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
		observe_again(seen, tp, full, packets);
}

#endif /* PILLION_SENDING_TIMES_H */
