/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads a packet, and the queue that it is offered to, out of the kernel's
 * memory.
 */
#ifndef PILLION_QUEUE_PACKET_H
#define PILLION_QUEUE_PACKET_H

#include "queue.h"

#define ETH_P_IP       0x0800
#define ETH_P_IPV6     0x86dd
#define IPPROTO_TCP    6
#define IPPROTO_UDP    17
#define IP_OFFSET      0x1fff
#define TCQ_F_CPUSTATS 0x20
#define TCP_FLAGS      13 /* offset in the header */

/* The queue of the device that the packet is to leave by. */
static __always_inline struct Qdisc *queue_of(struct sk_buff *skb,
					      struct net_device *dev)
{
	void *queues = BPF_CORE_READ(dev, _tx);
	struct netdev_queue *queue;

	queue = queues + BPF_CORE_READ(skb, queue_mapping) *
				 bpf_core_type_size(struct netdev_queue);
	return BPF_CORE_READ(queue, qdisc);
}

/* Reads a queue's length; unknown for per-processor counts. */
static __always_inline void read_length(struct Qdisc *qdisc,
					struct length *length)
{
	if (BPF_CORE_READ(qdisc, flags) & TCQ_F_CPUSTATS) {
		length->packets = UNKNOWN_LENGTH;
		length->bytes = UNKNOWN_LENGTH;
		return;
	}
	length->packets = BPF_CORE_READ(qdisc, q.qlen);
	length->bytes = BPF_CORE_READ(qdisc, qstats.backlog);
}

static __always_inline __u32 counted_bytes(struct sk_buff *skb)
{
	struct qdisc_skb_cb *cb =
		(void *)skb + bpf_core_field_offset(struct sk_buff, cb);

	return BPF_CORE_READ(cb, pkt_len);
}

static __always_inline void set_ipv4(unsigned char *address, __be32 ipv4)
{
	address[10] = 0xff;
	address[11] = 0xff;
	__builtin_memcpy(address + 12, &ipv4, sizeof(ipv4));
}

/*
 * Parses an IP header. Returns the offset of the next header, or 0 for an
 * unknown protocol.
 */
static __always_inline __u32 read_ip(void *header, __be16 proto,
				     struct queued *packet)
{
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_probe_read_kernel(&ip, sizeof(ip), header))
			return 0;
		packet->ip = 4;
		packet->protocol = ip.protocol;
		set_ipv4(packet->source, ip.saddr);
		set_ipv4(packet->destination, ip.daddr);
		if (ip.frag_off & bpf_htons(IP_OFFSET))
			return 0;
		return ip.ihl * 4;
	}
	if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_probe_read_kernel(&ip, sizeof(ip), header))
			return 0;
		packet->ip = 6;
		packet->protocol = ip.nexthdr;
		__builtin_memcpy(packet->source, &ip.saddr, 16);
		__builtin_memcpy(packet->destination, &ip.daddr, 16);
		return sizeof(ip);
	}
	return 0;
}

/*
 * Reads a packet's headers. They lie in its linear part, as everything before
 * has read them.
 */
static __always_inline void read_packet(struct sk_buff *skb,
					struct queued *packet)
{
	unsigned char *head = BPF_CORE_READ(skb, head);
	unsigned char *header = head + BPF_CORE_READ(skb, network_header);
	unsigned char *end = BPF_CORE_READ(skb, data);
	struct skb_shared_info *shared;
	struct tcphdr tcp;
	__u32 at;

	packet->size = BPF_CORE_READ(skb, len);
	packet->queue = BPF_CORE_READ(skb, queue_mapping);
	shared = (void *)head + BPF_CORE_READ(skb, end);
	packet->segments = BPF_CORE_READ(shared, gso_segs);
	end += packet->size;
	at = read_ip(header, BPF_CORE_READ(skb, protocol), packet);
	header += at;
	if (!at ||
	    (packet->protocol != IPPROTO_TCP &&
	     packet->protocol != IPPROTO_UDP) ||
	    bpf_probe_read_kernel(&tcp, sizeof(tcp), header))
		return;
	packet->source_port = bpf_ntohs(tcp.source);
	packet->destination_port = bpf_ntohs(tcp.dest);
	if (packet->protocol != IPPROTO_TCP)
		return;
	packet->seq = bpf_ntohl(tcp.seq);
	packet->flags = ((unsigned char *)&tcp)[TCP_FLAGS];
	header += tcp.doff * 4;
	if (header < end)
		packet->payload = end - header;
}

#endif /* PILLION_QUEUE_PACKET_H */
