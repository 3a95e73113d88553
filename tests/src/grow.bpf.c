/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Has segments carry bytes that the receiver has had already, as a bundler
 * does. The stream is nothing but zeroes, which is what a packet grows by, so
 * that no byte has to be moved.
 */
#include "vmlinux.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETHERTYPE_IPV4 0x0800
#define IPV4	       14
#define TOTAL_LENGTH   (IPV4 + 2)
#define PROTOCOL       (IPV4 + 9)
#define IP_CHECKSUM    (IPV4 + 10)
#define TCP	       (IPV4 + 20)
#define IPPROTO_TCP    6
#define SEQUENCE       (TCP + 4)
#define DATA_OFFSET    (TCP + 12)

char LICENSE[] SEC("license") = "GPL";

/* Set before the program is loaded. */
const volatile __u32 bytes = 0;

SEC("tc")
int grow(struct __sk_buff *skb)
{
	__u8 protocol, words;
	__be16 was, is;
	__be32 seq;

	if (skb->protocol != bpf_htons(ETHERTYPE_IPV4) ||
	    bpf_skb_load_bytes(skb, PROTOCOL, &protocol, 1) ||
	    protocol != IPPROTO_TCP ||
	    bpf_skb_load_bytes(skb, DATA_OFFSET, &words, 1) ||
	    bpf_skb_load_bytes(skb, SEQUENCE, &seq, sizeof(seq)) ||
	    bpf_skb_load_bytes(skb, TOTAL_LENGTH, &was, sizeof(was)) ||
	    skb->len == TCP + (words >> 4) * 4)
		return TCX_NEXT;
	is = bpf_htons(bpf_ntohs(was) + bytes);
	seq = bpf_htonl(bpf_ntohl(seq) - bytes);
	/* The TCP checksum is left to a device, and a loopback has none. */
	if (bpf_skb_change_tail(skb, skb->len + bytes, 0) ||
	    bpf_skb_store_bytes(skb, SEQUENCE, &seq, sizeof(seq), 0) ||
	    bpf_skb_store_bytes(skb, TOTAL_LENGTH, &is, sizeof(is), 0) ||
	    bpf_l3_csum_replace(skb, IP_CHECKSUM, was, is, sizeof(is)))
		return TCX_DROP;
	return TCX_NEXT;
}
