/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads what an arriving segment acknowledges, and what it reports as
 * duplicate.
 */
#ifndef PILLION_ACK_H
#define PILLION_ACK_H

#include "segment.h"

#define SACK_WORDS 3 /* of the option with one block */

struct ack {
	__u32 ack;
	bool duplicate; /* reported, RFC 2883 */
	__u32 duplicate_start;
	__u32 duplicate_end;
	__u16 option_at; /* offset of the SACK option, with its NOPs */
	__be32 option[SACK_WORDS]; /* NOPs, kind, length; the first block */
};

/*
 * The first SACK block reports a duplicate if it lies below the
 * acknowledgement, or inside the second block (RFC 2883, section 4); only the
 * former can be of a bundle, whose new data follows what it duplicates.
 *
 * Options are expected where RFC 7323, appendix A, puts them. A receiver that
 * lays them out otherwise looks like one that reports nothing.
 */
static __always_inline void read_duplicate(struct __sk_buff *skb, __u32 at,
					   __u32 words, struct ack *ack)
{
	__be32 *option = ack->option;

	if (words < SACK_WORDS ||
	    bpf_skb_load_bytes(skb, at, option, sizeof(ack->option)))
		return;
	if (option[0] == bpf_htonl(TCP_OPT_TIMESTAMPS)) {
		at += TCP_OPT_TIMESTAMPS_WORDS * 4;
		if (words < TCP_OPT_TIMESTAMPS_WORDS + SACK_WORDS ||
		    bpf_skb_load_bytes(skb, at, option, sizeof(ack->option)))
			return;
	}
	if ((option[0] & bpf_htonl(TCP_OPT_SACK_MASK)) !=
	    bpf_htonl(TCP_OPT_SACK))
		return;
	ack->option_at = at;
	ack->duplicate_start = bpf_ntohl(option[1]);
	ack->duplicate_end = bpf_ntohl(option[2]);
	ack->duplicate = !after(ack->duplicate_end, ack->ack) &&
			 before(ack->duplicate_start, ack->duplicate_end);
}

/* The segment's IP header has been read. */
static __always_inline int parse_ack(struct __sk_buff *skb,
				     const struct segment *seg, struct ack *ack)
{
	struct tcphdr tcp;

	if (bpf_skb_load_bytes(skb, seg->tcp, &tcp, sizeof(tcp)) || !tcp.ack ||
	    tcp.rst || tcp.syn)
		return -1;
	ack->ack = bpf_ntohl(tcp.ack_seq);
	read_duplicate(skb, seg->tcp + TCP_HLEN, tcp.doff - TCP_HLEN / 4, ack);
	return 0;
}

#endif /* PILLION_ACK_H */
