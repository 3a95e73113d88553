/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Grows each TCP segment with payload by BYTES at tc egress: bytes that the
 * receiver has already, as a retransmission that overlaps. The stream is all
 * zeroes, so that nothing has to be moved.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_P_IP     0x0800
#define TOTAL_LENGTH (14 + 2)
#define PROTOCOL     (14 + 9)
#define IP_CHECKSUM  (14 + 10)
#define TCP	     (14 + 20)
#define SEQUENCE     (TCP + 4)
#define DATA_OFFSET  (TCP + 12)

char LICENSE[] SEC("license") = "GPL";

SEC("tc")
int grow(struct __sk_buff *skb)
{
	__u8 protocol, words;
	__be16 was, is;
	__be32 seq;

	if (skb->protocol != bpf_htons(ETH_P_IP) ||
	    bpf_skb_load_bytes(skb, PROTOCOL, &protocol, 1) || protocol != 6 ||
	    bpf_skb_load_bytes(skb, DATA_OFFSET, &words, 1) ||
	    bpf_skb_load_bytes(skb, SEQUENCE, &seq, sizeof(seq)) ||
	    bpf_skb_load_bytes(skb, TOTAL_LENGTH, &was, sizeof(was)) ||
	    skb->len == TCP + (words >> 4) * 4)
		return TC_ACT_OK;
	is = bpf_htons(bpf_ntohs(was) + BYTES);
	seq = bpf_htonl(bpf_ntohl(seq) - BYTES);
	if (bpf_skb_change_tail(skb, skb->len + BYTES, 0) ||
	    bpf_skb_store_bytes(skb, SEQUENCE, &seq, sizeof(seq), 0) ||
	    bpf_skb_store_bytes(skb, TOTAL_LENGTH, &is, sizeof(is), 0) ||
	    bpf_l3_csum_replace(skb, IP_CHECKSUM, was, is, sizeof(is)))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}
