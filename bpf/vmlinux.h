/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's types that pillion's programs use, and no others.
 *
 * The first part is the kernel's interface to programs, whole and stable. The
 * second part names only the fields that are read; libbpf finds their places in
 * the running kernel (CO-RE).
 */
#ifndef VMLINUX_H
#define VMLINUX_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef _Bool bool;

enum {
	false = 0,
	true = 1,
};

#define NULL		       ((void *)0)
#define offsetof(type, member) __builtin_offsetof(type, member)

enum bpf_func_id {
	BPF_FUNC_skb_set_tstamp = 192,
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

enum {
	BPF_F_NO_PREALLOC = 1,
	BPF_F_RDONLY_PROG = 128,
	BPF_F_CLONE = 512,
};

enum {
	BPF_F_PSEUDO_HDR = 16,
};

enum {
	BPF_RB_NO_WAKEUP = 1,
};

enum {
	BPF_F_CURRENT_NETNS = -1,
};

enum {
	BPF_SK_STORAGE_GET_F_CREATE = 1,
};

enum {
	BPF_SOCK_OPS_TCP_CONNECT_CB = 3,
	BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB = 4,
	BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
	BPF_SOCK_OPS_STATE_CB = 10,
};

enum {
	BPF_SOCK_OPS_STATE_CB_FLAG = 1 << 2,
};

enum {
	TCP_BPF_DELACK_MAX = 1003,
	TCP_BPF_RTO_MIN = 1004,
	TCP_BPF_SOCK_OPS_CB_FLAGS = 1008,
};

enum tcp_ca_state {
	TCP_CA_Open,
	TCP_CA_Disorder,
	TCP_CA_CWR,
	TCP_CA_Recovery,
	TCP_CA_Loss,
};

enum {
	BPF_TCP_ESTABLISHED = 1,
	BPF_TCP_SYN_SENT = 2,
	BPF_TCP_SYN_RECV = 3,
	BPF_TCP_FIN_WAIT1 = 4,
	BPF_TCP_FIN_WAIT2 = 5,
	BPF_TCP_CLOSE = 7,
	BPF_TCP_CLOSE_WAIT = 8,
	BPF_TCP_LAST_ACK = 9,
	BPF_TCP_LISTEN = 10,
	BPF_TCP_CLOSING = 11,
};

enum tcx_action_base {
	TCX_NEXT = -1,
	TCX_PASS = 0,
	TCX_DROP = 2,
};

struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port;
	__be16 dst_port;
	__u32 dst_ip4;
	__u32 dst_ip6[4];
	__u32 state;
	__s32 rx_queue_mapping;
};

struct bpf_tcp_sock {
	__u32 snd_cwnd;
	__u32 srtt_us;
	__u32 rtt_min;
	__u32 snd_ssthresh;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 mss_cache;
	__u32 ecn_flags;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u32 packets_out;
	__u32 retrans_out;
	__u32 total_retrans;
	__u32 segs_in;
	__u32 data_segs_in;
	__u32 segs_out;
	__u32 data_segs_out;
	__u32 lost_out;
	__u32 sacked_out;
	__u64 bytes_received;
	__u64 bytes_acked;
	__u32 dsack_dups;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 icsk_retransmits;
};

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	union {
		struct bpf_flow_keys *flow_keys;
	};
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	union {
		struct bpf_sock *sk;
	};
	__u32 gso_size;
	__u8 tstamp_type;
	__u64 hwtstamp;
};

struct bpf_sock_ops {
	__u32 op;
	union {
		__u32 args[4];
		__u32 reply;
		__u32 replylong[4];
	};
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 is_fullsock;
	__u32 snd_cwnd;
	__u32 srtt_us;
	__u32 bpf_sock_ops_cb_flags;
	__u32 state;
	__u32 rtt_min;
	__u32 snd_ssthresh;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 mss_cache;
	__u32 ecn_flags;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u32 packets_out;
	__u32 retrans_out;
	__u32 total_retrans;
	__u32 segs_in;
	__u32 data_segs_in;
	__u32 segs_out;
	__u32 data_segs_out;
	__u32 lost_out;
	__u32 sacked_out;
	__u32 sk_txhash;
	__u64 bytes_received;
	__u64 bytes_acked;
	union {
		struct bpf_sock *sk;
	};
	union {
		void *skb_data;
	};
	union {
		void *skb_data_end;
	};
	__u32 skb_len;
	__u32 skb_tcp_flags;
	__u64 skb_hwtstamp;
};

struct bpf_sockopt {
	union {
		struct bpf_sock *sk;
	};
	union {
		void *optval;
	};
	union {
		void *optval_end;
	};
	__s32 level;
	__s32 optname;
	__s32 optlen;
	__s32 retval;
};

struct bpf_sock_tuple {
	union {
		struct {
			__be32 saddr;
			__be32 daddr;
			__be16 sport;
			__be16 dport;
		} ipv4;
		struct {
			__be32 saddr[4];
			__be32 daddr[4];
			__be16 sport;
			__be16 dport;
		} ipv6;
	};
};

struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be16 u6_addr16[8];
		__be32 u6_addr32[4];
	} in6_u;
};

struct ethhdr {
	unsigned char h_dest[6];
	unsigned char h_source[6];
	__be16 h_proto;
};

struct vlan_hdr {
	__be16 h_vlan_TCI;
	__be16 h_vlan_encapsulated_proto;
};

struct iphdr {
	__u8 ihl : 4;
	__u8 version : 4;
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__sum16 check;
	union {
		struct {
			__be32 saddr;
			__be32 daddr;
		};
		struct {
			__be32 saddr;
			__be32 daddr;
		} addrs;
	};
};

struct ipv6hdr {
	__u8 priority : 4;
	__u8 version : 4;
	__u8 flow_lbl[3];
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	union {
		struct {
			struct in6_addr saddr;
			struct in6_addr daddr;
		};
		struct {
			struct in6_addr saddr;
			struct in6_addr daddr;
		} addrs;
	};
};

struct tcphdr {
	__be16 source;
	__be16 dest;
	__be32 seq;
	__be32 ack_seq;
	__u16 ae : 1;
	__u16 res1 : 3;
	__u16 doff : 4;
	__u16 fin : 1;
	__u16 syn : 1;
	__u16 rst : 1;
	__u16 psh : 1;
	__u16 ack : 1;
	__u16 urg : 1;
	__u16 ece : 1;
	__u16 cwr : 1;
	__be16 window;
	__sum16 check;
	__be16 urg_ptr;
};

struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

#pragma clang attribute push(__attribute__((preserve_access_index)),           \
			     apply_to = record)

struct seq_file;
struct bpf_map;

struct bpf_iter_meta {
	union {
		struct seq_file *seq;
	};
	__u64 session_id;
	__u64 seq_num;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	__u64 net_cookie;
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

typedef struct {
	__s64 counter;
} atomic64_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

typedef struct {
	__u32 val;
} kuid_t;

struct kernfs_node {
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct inode {
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

struct sock;

struct socket {
	struct file *file;
	struct sock *sk;
};

struct sk_buff;

struct sk_buff_head {
	struct sk_buff *next;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_write_queue;
	kuid_t sk_uid;
	struct sock_cgroup_data sk_cgrp_data;
	struct socket *sk_socket;
	unsigned long sk_max_pacing_rate;
	int sk_err;
	__u8 sk_shutdown;
};

struct tcp_congestion_ops {
	void *cong_control;
};

struct inet_connection_sock {
	const struct tcp_congestion_ops *icsk_ca_ops;
	__u8 icsk_ca_state : 5;
	__u8 icsk_backoff;
};

struct minmax_sample {
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_options_received {
	__u16 sack_ok : 3;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct tcp_options_received rx_opt;
	__u32 copied_seq;
	__u32 rcv_nxt;
	__u32 rcv_wup;
	__u32 rcv_wnd;
	__u32 snd_una;
	__u32 snd_nxt;
	__u32 snd_wnd;
	__u32 write_seq;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 mss_cache;
	__u32 packets_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 total_retrans;
	__u32 data_segs_out;
	__u32 snd_sml;
	__u32 srtt_us;
	__u32 mdev_us;
	__u32 rttvar_us;
	__u32 high_seq;
	__u32 undo_marker;
	__u32 prior_ssthresh;
	__u32 prior_cwnd;
	struct minmax rtt_min;
	struct tcp_rack {
		__u64 mstamp;
		__u32 rtt_us;
	} rack;
	__u8 nonagle : 4;
	__u8 repair : 1;
	__u8 frto : 1;
	__u8 bpf_sock_ops_cb_flags;
};

struct qdisc_skb_head {
	__u32 qlen;
};

struct gnet_stats_queue {
	__u32 backlog;
};

struct Qdisc {
	unsigned int flags;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

struct net_device;

struct netdev_queue {
	struct net_device *dev;
	struct Qdisc *qdisc;
};

struct net_device {
	struct netdev_queue *_tx;
	int ifindex;
	possible_net_t nd_net;
};

struct qdisc_skb_cb {
	unsigned int pkt_len;
};

struct skb_shared_info {
	unsigned short gso_segs;
};

struct sk_buff {
	struct sk_buff *next;
	struct net_device *dev;
	char cb[48];
	unsigned int len;
	unsigned int truesize;
	__u16 queue_mapping;
	__be16 protocol;
	__u16 network_header;
	unsigned int end; /* 64-bit kernels: an offset */
	unsigned char *head;
	unsigned char *data;
};

/* Their numbers differ between kernels: CO-RE finds the real ones. */
enum skb_drop_reason {
	SKB_DROP_REASON_QDISC_DROP = 1,
	SKB_DROP_REASON_QDISC_OVERLIMIT = 2,
	SKB_DROP_REASON_QDISC_CONGESTED = 3,
};

struct bpf_iter__tcp {
	union {
		struct bpf_iter_meta *meta;
	};
	union {
		struct sock_common *sk_common;
	};
};

struct bpf_iter__task_file {
	union {
		struct bpf_iter_meta *meta;
	};
	union {
		struct file *file;
	};
};

struct bpf_iter__bpf_sk_storage_map {
	union {
		struct bpf_iter_meta *meta;
	};
	union {
		struct bpf_map *map;
	};
	union {
		struct sock *sk;
	};
	union {
		void *value;
	};
};

#pragma clang attribute pop

#endif /* VMLINUX_H */
