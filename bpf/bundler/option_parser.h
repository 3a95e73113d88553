/* SPDX-License-Identifier: GPL-2.0-only */
/* Parses the options of a TCP header, in any order. */
#ifndef PILLION_OPTION_PARSER_H
#define PILLION_OPTION_PARSER_H

#include "segment.h"

#define TCP_OPT_END	   0
#define TCP_OPT_NOP	   1
#define TCP_OPT_SACK	   5
#define TCP_OPT_TIMESTAMPS 8
#define TCP_OPT_MPTCP	   30
#define TCP_OPT_ACCECN0	   172 /* RFC 9768; counters of received segments */
#define TCP_OPT_ACCECN1	   174
/*
 * Not assigned by IANA, and never on a wire. It hides a report of duplicates
 * from TCP between the device and the socket (dsack.h).
 */
#define TCP_OPT_DSACK 112

#define TIMESTAMPS_LENGTH 10
#define SACK_HEADER	  2
#define SACK_BLOCK	  8
#define SACK_BLOCKS	  4 /* maximum in one header */
#define MAX_OPTIONS	  40 /* maximum bytes in one header */
#define OPTIONS_BUFFER	  64 /* a power of two */

/* The first word of Linux's timestamps: two NOPs, kind, length. */
#define ALIGNED_TIMESTAMPS 0x0101080a
#define ALIGNED_LENGTH	   12

struct header_options {
	__u32 len;
	__u8 bytes[OPTIONS_BUFFER];
};

/* Positions of options in header_options.bytes; length 0: absent. */
struct option_positions {
	__u8 sack;
	__u8 sack_len;
	__u8 preceding_nops; /* NOPs right before the SACK option */
	__u8 dsack;
	__u8 dsack_len;
	__u8 has_timestamps;
	__u8 timestamps;
	/* HAS_ bits: options that may cover or describe the payload */
	__u8 has_others;
};

#define HAS_OTHERS 1
#define HAS_MPTCP  2

/* Loads len bytes of options, at least one word. */
static __always_inline int load_options(struct __sk_buff *skb, __u32 at,
					__u64 len,
					struct header_options *options)
{
	options->len = len;
	len--;
	BOUND(len, OPTIONS_BUFFER);
	return bpf_skb_load_bytes(skb, at, options->bytes, len + 1);
}

static __always_inline __u8 option_byte(const struct header_options *options,
					__u32 at)
{
	return options->bytes[at & (OPTIONS_BUFFER - 1)];
}

/*
 * Finds the options of a header. Returns -1 for an invalid length, because the
 * rest cannot be parsed then. A global function, so that the verifier checks
 * the loop once.
 */
__noinline int find_options(const struct header_options *options,
			    struct option_positions *found)
{
	__u8 kind, len, nops = 0;
	__u32 at = 0, i;

	if (!options || !found)
		return -1;
	for (i = 0; i < MAX_OPTIONS && at < options->len; i++) {
		/* A no-op that spares the verifier from tracking the value. */
		BOUND(at, OPTIONS_BUFFER);
		kind = option_byte(options, at);
		if (kind == TCP_OPT_END)
			break;
		if (kind == TCP_OPT_NOP) {
			at++;
			nops++;
			continue;
		}
		if (at + 1 >= options->len)
			return -1;
		len = option_byte(options, at + 1);
		if (len < 2 || at + len > options->len)
			return -1;
		if (kind == TCP_OPT_SACK) {
			found->sack = at;
			found->sack_len = len;
			found->preceding_nops = nops;
		} else if (kind == TCP_OPT_DSACK) {
			found->dsack = at;
			found->dsack_len = len;
		} else if (kind == TCP_OPT_TIMESTAMPS) {
			found->has_timestamps = 1;
			found->timestamps = at;
		} else if (kind != TCP_OPT_ACCECN0 && kind != TCP_OPT_ACCECN1) {
			found->has_others |= kind == TCP_OPT_MPTCP ? HAS_MPTCP
								   : HAS_OTHERS;
		}
		at += len;
		nops = 0;
	}
	return 0;
}

/*
 * Returns the timestamp of a packet from this host's TCP, which puts it first
 * among the options; 0 if there is none. A global function, so that the
 * verifier does not follow every case.
 */
__noinline int read_tsval(struct __sk_buff *skb, __u32 tcp, __u32 payload)
{
	__be32 words[2];

	if (payload - tcp < TCP_HLEN + ALIGNED_LENGTH ||
	    bpf_skb_load_bytes(skb, tcp + TCP_HLEN, words, sizeof(words)) ||
	    words[0] != bpf_htonl(ALIGNED_TIMESTAMPS))
		return 0;
	return bpf_ntohl(words[1]);
}

/*
 * Returns true if no option covers or describes the payload, as MD5, AO and
 * MPTCP do. *varying is set to the bytes of options that are not in every
 * segment, and therefore not in tp->mss_cache.
 */
static __always_inline bool options_are_plain(struct __sk_buff *skb,
					      const struct segment *seg,
					      __u32 *varying)
{
	__be32 *first = (void *)(long)skb->data + seg->tcp_off + TCP_HLEN;
	__u32 len = seg->payload_off - seg->tcp_off - TCP_HLEN;
	struct option_positions found = {};
	struct header_options options = {};

	*varying = 0;
	if (!len)
		return true;
	if ((void *)(first + 1) > (void *)(long)skb->data_end)
		return false;
	if (len == ALIGNED_LENGTH && *first == bpf_htonl(ALIGNED_TIMESTAMPS))
		return true;
	if (load_options(skb, seg->tcp_off + TCP_HLEN, len, &options) ||
	    find_options(&options, &found) || found.has_others)
		return false;
	*varying = found.has_timestamps ? len - ALIGNED_LENGTH : len;
	return true;
}

#endif /* PILLION_OPTION_PARSER_H */
