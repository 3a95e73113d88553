/* SPDX-License-Identifier: GPL-2.0-only */
/* Parses the segment in a packet; rejects anything but a plain one. */
#ifndef PILLION_SEGMENT_H
#define PILLION_SEGMENT_H

#include "flow.h"

#define ETH_HLEN     14
#define ETH_P_IP     0x0800
#define ETH_P_IPV6   0x86dd
#define ETH_P_8021Q  0x8100
#define ETH_P_8021AD 0x88a8
#define VLAN_HLEN    4
/* in the packet's data; one more may be in its metadata */
#define VLAN_TAGS	2
#define IP_MF_OR_OFFSET 0x3fff
#define IPPROTO_IPIP	4
#define IPPROTO_TCP	6
#define IPPROTO_UDP	17
#define IPPROTO_IPV6	41
#define IPPROTO_GRE	47
#define IPPROTO_ESP	50

#define IP_HLEN_MAX 60
#define TCP_HLEN    20
#define TCP_CHECK   offsetof(struct tcphdr, check)

/* Sequence numbers wrap. */
#define before(a, b) ((__s32)((a) - (b)) < 0)
#define after(a, b)  before(b, a)

/* Distance at which sequence numbers are no longer comparable. */
#define MAX_SEQ_DISTANCE (1U << 30)

static __always_inline __u32 later(__u32 a, __u32 b)
{
	return after(a, b) ? a : b;
}

static __always_inline __u32 earlier(__u32 a, __u32 b)
{
	return before(a, b) ? a : b;
}

/* Advances a stored sequence number, because old ones wrap. */
static __always_inline void clamp_seq(__u32 *seq, __u32 minimum)
{
	if (before(*seq, minimum))
		*seq = minimum;
}

struct segment {
	__u32 seq;
	__u32 len; /* of the payload */
	__u16 ip_off; /* from the packet's start */
	__u16 tcp_off; /* from the packet's start */
	__u16 payload_off; /* from the packet's start */
	__u16 ip_field_len; /* of the IP header; IPv6: without the header */
	__u32 end_off; /* of the end by ip_field_len; padding may follow */
	__u16 check; /* the TCP checksum */
	bool ipv6;
	bool in_tunnel; /* inside another packet */
};

/* Offset of the packet's two addresses, which are adjacent. */
static __always_inline __u32 addresses(const struct segment *seg)
{
	return seg->ip_off + (seg->ipv6 ? offsetof(struct ipv6hdr, saddr)
					: offsetof(struct iphdr, saddr));
}

/*
 * Returns true if the protocol may encapsulate a segment; such a packet still
 * belongs to the segment's socket.
 */
static __always_inline bool is_tunnel(__u8 proto)
{
	return proto == IPPROTO_UDP || proto == IPPROTO_GRE ||
	       proto == IPPROTO_IPIP || proto == IPPROTO_IPV6 ||
	       proto == IPPROTO_ESP;
}

/*
 * Bounds n by limit, a power of two, in the register that the verifier checks.
 */
#define BOUND(n, limit) asm volatile("%0 &= %1" : "+r"(n) : "i"((limit)-1))

/* A header is not in the packet's linear part, or missing. */
#define NOT_LINEAR 1

/*
 * Parses the IP header at offset at; proto is the packet's, in network order.
 * Returns 0, NOT_LINEAR, or -1 if it is not a complete TCP packet.
 */
static __always_inline int parse_ip(struct __sk_buff *skb, struct segment *seg,
				    __u32 at, __be16 proto)
{
	void *end = (void *)(long)skb->data_end;
	void *header = (void *)(long)skb->data + at;

	seg->ip_off = at;
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = header;

		if ((void *)(ip + 1) > end)
			return NOT_LINEAR;
		seg->in_tunnel = is_tunnel(ip->protocol);
		if (ip->protocol != IPPROTO_TCP || ip->ihl < 5 ||
		    ip->frag_off & bpf_htons(IP_MF_OR_OFFSET))
			return -1;
		seg->ipv6 = false;
		seg->ip_field_len = bpf_ntohs(ip->tot_len);
		seg->end_off = at + seg->ip_field_len;
		seg->tcp_off = at + ip->ihl * 4;
		return 0;
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = header;

		if ((void *)(ip + 1) > end)
			return NOT_LINEAR;
		seg->in_tunnel = is_tunnel(ip->nexthdr);
		if (ip->nexthdr != IPPROTO_TCP)
			return -1;
		seg->ipv6 = true;
		seg->ip_field_len = bpf_ntohs(ip->payload_len);
		seg->end_off = at + sizeof(*ip) + seg->ip_field_len;
		seg->tcp_off = at + sizeof(*ip);
		return 0;
	}
	return -1;
}

static __always_inline bool is_tag(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) ||
	       proto == bpf_htons(ETH_P_8021AD);
}

/*
 * Parses the IP header after an Ethernet header and optional VLAN tags. An
 * offloaded tag is in the packet's metadata, and not seen here.
 */
static __always_inline int parse_ethernet(struct __sk_buff *skb,
					  struct segment *seg)
{
	void *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = (void *)(long)skb->data;
	struct vlan_hdr *tag = (void *)(eth + 1);
	__u32 at = ETH_HLEN;
	__be16 proto;

	if ((void *)tag > end)
		return NOT_LINEAR;
	if (eth->h_proto != skb->protocol)
		return -1;
	proto = eth->h_proto;
	for (int i = 0; i < VLAN_TAGS && is_tag(proto); i++) {
		if ((void *)(tag + 1) > end)
			return NOT_LINEAR;
		proto = tag->h_vlan_encapsulated_proto;
		tag++;
		at += VLAN_HLEN;
	}
	return parse_ip(skb, seg, at, proto);
}

/* The link header of a device's packets. */
enum link_header {
	LINK_NONE, /* nothing before the IP header */
	LINK_ETHERNET,
};

static __always_inline int
parse_link(struct __sk_buff *skb, struct segment *seg, enum link_header link)
{
	if (link == LINK_NONE)
		return parse_ip(skb, seg, 0, skb->protocol);
	return parse_ethernet(skb, seg);
}

/*
 * Returns ELIGIBLE if the headers allow bundling, otherwise the reason; TCP's
 * options are not checked (option_parser.h). seg->len and seg->seq are valid
 * except for UNPARSED_IP.
 */
static __always_inline enum outcome parse_tcp(struct __sk_buff *skb,
					      struct segment *seg)
{
	void *end = (void *)(long)skb->data_end;
	struct tcphdr *tcp = (void *)(long)skb->data + seg->tcp_off;
	__u32 header;

	if ((void *)(tcp + 1) > end)
		return UNPARSED_IP;
	header = tcp->doff * 4;
	if (skb->gso_size)
		seg->end_off = skb->len; /* may be too long for its field */
	if (header < TCP_HLEN || seg->tcp_off + header > seg->end_off)
		return UNPARSED_IP;
	seg->seq = bpf_ntohl(tcp->seq);
	seg->check = tcp->check;
	seg->payload_off = seg->tcp_off + header;
	seg->len = seg->end_off - seg->payload_off;
	if (skb->gso_size)
		return GSO;
	if (seg->len && seg->end_off != skb->len)
		return UNPARSED_IP; /* padded, or cut */
	if (tcp->syn || tcp->rst || tcp->urg)
		return FLAGS;
	return ELIGIBLE;
}

#endif /* PILLION_SEGMENT_H */
