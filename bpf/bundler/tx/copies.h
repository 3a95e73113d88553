/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copies: a small new segment leaves twice or three times, with its bundle. A
 * copy costs a packet and leaves immediately, unless delayed. It also helps a
 * message that no other message follows.
 *
 * A copy leaves before the packet itself, so the device's queue may accept it
 * and refuse the packet. TCP then sends the segment again, like without copies.
 * After either is refused, the next 64 segments have no copies.
 */
#ifndef PILLION_COPIES_H
#define PILLION_COPIES_H

#include "../maps.h"
#include "auto.h"
#include "record.h"

/* Absent from BTF: it is an anonymous enum of the kernel (Linux 5.18). */
#define BPF_SKB_TSTAMP_DELIVERY_MONO 1

/* Segments without copies after the device's queue refused a packet. */
#define COPY_PAUSE 64

/* A copy has no socket. Its control block has this mark and EDT. */
#define COPY_MARK 0x70696c63

enum copy_mark {
	COPY_MARK_AT,
	COPY_TIME_LOW,
	COPY_TIME_HIGH,
	COPY_IS_DELAYED,
};

#define MAX_ITT 0xffff /* egress.itt */

/* Updates the smoothed time between new data: a weight of 1/8 for each. */
static __always_inline void note_itt(struct egress *egress, __u32 now)
{
	__u32 gap = (now - egress->new_data_us) >> ITT_UNIT_BITS;

	if (gap > MAX_ITT)
		gap = MAX_ITT;
	if (egress->new_data_us)
		egress->itt = egress->itt ? (egress->itt * 7 + gap) / 8 : gap;
	egress->new_data_us = now | 1;
}

/*
 * Returns true if no other message will soon repair the loss of this one:
 * nothing is outstanding before it, as with a keystroke, or messages are more
 * than an RTT apart.
 */
static __always_inline bool is_isolated(const struct egress *egress,
					struct bpf_tcp_sock *btp,
					const struct segment *seg)
{
	return seg->seq == btp->snd_una ||
	       (__u32)egress->itt << ITT_UNIT_BITS > btp->srtt_us >> 3;
}

/* Length of a segment's IP and TCP headers. */
static __always_inline __u32 headers_len(const struct segment *seg)
{
	return seg->payload_off - seg->ip_off;
}

/*
 * The maximum bytes of a new segment with its redundancy, headers included; 0:
 * no limit.
 */
static __always_inline __u32 max_wire_bytes(const struct options *options,
					    const struct segment *seg)
{
	if (options->level != LEVEL_AUTO)
		return 0;
	return (seg->len + headers_len(seg)) * options->max_overhead / 8;
}

/*
 * The number of copies of a segment at present. With level `auto` there is none
 * while packets wait on the path, and a copy only if a bundle of one such
 * segment stays within the allowed overhead as well, because a second loss
 * would otherwise wait for a retransmission.
 */
static __always_inline __u32 current_copies(const struct flow *flow,
					    struct bpf_tcp_sock *btp,
					    const struct segment *seg)
{
	__u32 limit = max_wire_bytes(&flow->options, seg);
	bool all = flow->options.copies_when == COPY_ALL;
	__u32 copies = flow->options.copies, itt_us;

	if (flow->options.level == LEVEL_AUTO) {
		itt_us = (__u32)flow->egress.itt << ITT_UNIT_BITS;
		all = READ_ONCE(flow->ingress.copies) == AUTO_COPIES_ALL;
		copies = READ_ONCE(flow->ingress.copies) != AUTO_COPIES_NONE;
		if (is_congested(flow) || flow->egress.copies_limited_us ||
		    (limit && 2 * (2 * seg->len + headers_len(seg)) > limit))
			copies = 0;
		/* The next message is in time, as far as the ITT is known. */
		if (!all && itt_us &&
		    itt_us <= deadline_us(&flow->options, itt_us))
			copies = 0;
	}
	return all || is_isolated(&flow->egress, btp, seg) ? copies : 0;
}

/* The number of copies of a segment that may carry redundancy. */
static __always_inline __u32 allowed_copies(struct flow *flow,
					    struct bpf_tcp_sock *btp,
					    const struct segment *seg)
{
	__u32 copies = current_copies(flow, btp, seg);
	struct egress *egress = &flow->egress;

	/* Without SACK, three duplicate ACKs are a loss (RFC 5681). */
	if (!copies || flow->sack != SACK_OFFERED)
		return 0;
	if (egress->copies_paused) {
		egress->copies_paused--;
		return 0;
	}
	/* A duplicate ACK ends TCP's check for a spurious time-out (F-RTO). */
	if (egress->announced.timeout_in_doubt)
		return 0;
	return copies;
}

/* Counts a copy as redundant bytes, and for the sending rate as a packet. */
static __always_inline void count_copy(struct __sk_buff *skb, struct flow *flow,
				       const struct segment *seg)
{
	struct sent *sent = &flow->egress.sending.current;
	__u32 payload = skb->len - seg->payload_off;

	ADD(flow, copies, 1);
	ADD(flow, redundant_bytes, payload);
	flow->egress.sending.packets++;
	sent->packets++;
	sent->payload += payload;
	sent->wire += skb->len - seg->ip_off;
}

/*
 * Sends copies of the newest segment's packet. The kernel clears a redirected
 * packet's departure time (EDT), so restore_departure() sets it again, later by
 * --copy-delay, at most by half the ITT: TCP would retransmit a segment whose
 * copy comes after the next segments, and the copy makes that look spurious.
 */
static __always_inline void send_copies(struct __sk_buff *skb,
					struct flow *flow,
					const struct segment *seg, __u32 copies)
{
	__u32 itt_us = (__u32)flow->egress.itt << ITT_UNIT_BITS;
	__u32 delay_us = flow->options.copy_delay_ms * 1000U;
	struct record *record = &flow->egress.record;
	__u64 tstamp = skb->tstamp;
	__u32 i;

	if (delay_us > itt_us / 2)
		delay_us = itt_us / 2;
	if (delay_us)
		tstamp = (tstamp ?: bpf_ktime_get_ns()) + delay_us * 1000ULL;
	set_flags(slot(record, record->next - 1),
		  COPIED | SENT_IN_OTHER_PACKET);
	skb->cb[COPY_MARK_AT] = COPY_MARK;
	skb->cb[COPY_TIME_LOW] = tstamp;
	skb->cb[COPY_TIME_HIGH] = tstamp >> 32;
	skb->cb[COPY_IS_DELAYED] = !!delay_us;
	for (i = 0; i < MAX_COPIES && i < copies; i++) {
		if (bpf_clone_redirect(skb, skb->ifindex, 0)) {
			COUNT_IN_TOTALS(copies_refused);
			flow->egress.copies_paused = COPY_PAUSE;
			break;
		}
		count_copy(skb, flow, seg);
	}
	skb->cb[COPY_MARK_AT] = 0;
}

/* Restores a copy's departure time; ignores other packets. */
static __always_inline void restore_departure(struct __sk_buff *skb)
{
	__u64 tstamp;

	if (skb->cb[COPY_MARK_AT] != COPY_MARK)
		return;
	tstamp = (__u64)skb->cb[COPY_TIME_HIGH] << 32 | skb->cb[COPY_TIME_LOW];
	/* Fails with a VLAN tag in the packet: the copy then leaves at once. */
	if (bpf_core_enum_value_exists(enum bpf_func_id,
				       BPF_FUNC_skb_set_tstamp))
		bpf_skb_set_tstamp(skb, tstamp, BPF_SKB_TSTAMP_DELIVERY_MONO);
	else /* before Linux 5.18, where a time has no type */
		skb->tstamp = tstamp;
	/*
	 * Behind a router, fq has a queue for each hash of packets without
	 * socket. A delayed copy would delay the next segments there.
	 */
	if (skb->cb[COPY_IS_DELAYED])
		bpf_set_hash(skb, ~skb->hash);
	skb->cb[COPY_MARK_AT] = 0;
}

#endif /* PILLION_COPIES_H */
