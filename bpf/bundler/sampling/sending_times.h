/* SPDX-License-Identifier: GPL-2.0-only */
/* Records when each segment was sent first, and how TCP retransmits. */
#ifndef PILLION_SENDING_TIMES_H
#define PILLION_SENDING_TIMES_H

#include "../tcp_state.h"
#include "rto_min.h"
#include "unsent.h"
#include "../segment.h"

/* Stores the sending time of a new segment, if the record has it. */
static __always_inline void observe_new(struct observation *observation,
					struct record *record,
					const struct segment *seg)
{
	__u32 next = record->next, newest = next - 1;

	if (slot(record, newest)->seq != seg->seq ||
	    record_end(record) != seg->seq + seg->len) {
		observation->unrecorded++;
		return;
	}
	observation->redundancy[newest & (RECORD_SLOTS - 1)] = 0;
	/* The next slot may become a gap without a sending time. */
	observation->sent_us[next & (RECORD_SLOTS - 1)] = 0;
	observation->redundancy[next & (RECORD_SLOTS - 1)] = 0;
	WRITE_ONCE(observation->sent_us[newest & (RECORD_SLOTS - 1)],
		   (__u32)now_us() | 1);
}

/* Counts a retransmission by its cause; timeouts by icsk_retransmits. */
static __always_inline void
observe_retransmission(struct observation *observation,
		       struct bpf_tcp_sock *btp, struct tcp_sock *tp,
		       __u32 packets)
{
	__u8 state = ca_state(tp);
	__u32 timer = btp->icsk_retransmits;

	if (state == TCP_CA_Recovery) {
		observation->retransmitted.fast += packets;
		return;
	}
	if (state != TCP_CA_Loss) {
		observation->retransmitted.probes += packets;
		/* Of several packets, the last one is probed after 2 RTTs. */
		if (btp->packets_out == 1)
			rto_at_expiration(observation, tp);
		return;
	}
	observation->retransmitted.after_timeout += packets;
	if (timer && timer != READ_ONCE(observation->timer)) {
		observation->timeouts++;
		rto_at_expiration(observation, tp);
	}
	WRITE_ONCE(observation->timer, timer);
}

/*
 * Handles a segment with data that leaves, after `retransmissions` earlier
 * ones.
 */
static __always_inline void
observe_segment(struct observation *observation, struct flow *flow,
		struct bpf_tcp_sock *btp, struct tcp_sock *tp,
		const struct segment *seg, __u32 retransmissions, __u32 packets)
{
	if (seg->seq == btp->snd_nxt) {
		unsent_at_segment(observation, seg->len,
				  tp->write_seq - seg->seq - seg->len,
				  is_window_reduced(tp));
		observe_new(observation, &flow->egress.record, seg);
	} else if (btp->total_retrans != retransmissions) {
		observe_retransmission(observation, btp, tp, packets);
	}
}

#endif /* PILLION_SENDING_TIMES_H */
