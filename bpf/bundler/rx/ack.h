/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parses the acknowledgement and the duplicate report of an arriving segment.
 */
#ifndef PILLION_ACK_H
#define PILLION_ACK_H

#include "../option_parser.h"

struct ack {
	__u32 seq;
	__u32 end; /* end of its data, FIN included */
	__u32 ack;
	bool has_invalid_options; /* then its report is unknown */
	/* 1: the peer's segment before it is missing, and any report in it */
	__u8 after_gap;
	bool duplicate; /* it reports a duplicate (DSACK, RFC 2883) */
	__u32 duplicate_start;
	__u32 duplicate_end;
	__u32 tsecr; /* of the timestamps option (RFC 7323); 0: none */
	__u8 blocks; /* number of SACK blocks without the DSACK */
	__u8 first_block; /* offset of the first SACK block in the options */
};

static __always_inline __u32 option_word(const struct header_options *options,
					 __u32 at)
{
	return (__u32)option_byte(options, at) << 24 |
	       (__u32)option_byte(options, at + 1) << 16 |
	       (__u32)option_byte(options, at + 2) << 8 |
	       option_byte(options, at + 3);
}

static __always_inline bool has_blocks(__u8 len, __u8 blocks)
{
	return len >= SACK_HEADER + blocks * SACK_BLOCK;
}

static __always_inline void read_block(const struct header_options *options,
				       __u32 option, struct ack *ack)
{
	ack->duplicate_start = option_word(options, option + SACK_HEADER);
	ack->duplicate_end = option_word(options, option + SACK_HEADER + 4);
	ack->duplicate = before(ack->duplicate_start, ack->duplicate_end);
}

/*
 * The first SACK block reports a duplicate if it is below the acknowledgement,
 * or, after a gap, inside the second block (RFC 2883, section 4).
 */
static __always_inline void read_duplicate(const struct header_options *options,
					   const struct option_positions *found,
					   struct ack *ack)
{
	__u32 second = found->sack + SACK_HEADER + SACK_BLOCK;

	read_block(options, found->sack, ack);
	if (!after(ack->duplicate_end, ack->ack))
		return;
	if (!has_blocks(found->sack_len, 2) ||
	    before(ack->duplicate_start, option_word(options, second)) ||
	    after(ack->duplicate_end, option_word(options, second + 4)))
		ack->duplicate = false;
}

static __always_inline __u32 read_tsecr(const struct header_options *options,
					const struct option_positions *found)
{
	if (!found->has_timestamps ||
	    option_byte(options, found->timestamps + 1) != TIMESTAMPS_LENGTH)
		return 0;
	return option_word(options, found->timestamps + 6);
}

/* A receiver reports the newest block first (RFC 2018, section 4). */
static __always_inline void find_blocks(const struct option_positions *found,
					struct ack *ack)
{
	__u32 len = found->sack_len, dsack = 0;

	if (ack->duplicate && !found->dsack_len)
		dsack = SACK_BLOCK;
	if (len < SACK_HEADER + dsack + SACK_BLOCK)
		return;
	ack->blocks = (len - SACK_HEADER - dsack) / SACK_BLOCK;
	ack->first_block = found->sack + SACK_HEADER + dsack;
}

/*
 * Parses the acknowledgement after parse_ip(); returns -1 for other segments.
 * The caller's zeroed buffer `options` receives the options, unless timestamps
 * are the only one.
 */
static __always_inline int parse_ack(struct __sk_buff *skb,
				     const struct segment *seg,
				     struct header_options *options,
				     struct option_positions *found,
				     struct ack *ack)
{
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = (void *)(long)skb->data + seg->tcp_off;
	__be32 *first = (void *)(tcp + 1);
	__u32 len;

	if ((void *)(tcp + 1) > end || !tcp->ack || tcp->rst || tcp->syn ||
	    tcp->doff * 4 < TCP_HLEN)
		return -1;
	ack->ack = bpf_ntohl(tcp->ack_seq);
	len = tcp->doff * 4 - TCP_HLEN;
	if (!len)
		return 0;
	if (len == ALIGNED_LENGTH && (void *)(first + 3) <= end &&
	    *first == bpf_htonl(ALIGNED_TIMESTAMPS)) {
		ack->tsecr = bpf_ntohl(first[2]);
		return 0;
	}
	if (load_options(skb, seg->tcp_off + TCP_HLEN, len, options) ||
	    find_options(options, found))
		ack->has_invalid_options = true;
	else if (has_blocks(found->dsack_len, 1))
		read_block(options, found->dsack, ack);
	else if (has_blocks(found->sack_len, 1))
		read_duplicate(options, found, ack);
	find_blocks(found, ack);
	ack->tsecr = read_tsecr(options, found);
	return 0;
}

#endif /* PILLION_ACK_H */
