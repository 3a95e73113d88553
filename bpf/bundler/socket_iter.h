/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Goes through the sockets for which a map keeps something. User space begins
 * it, and reads what is told of each.
 */
#ifndef PILLION_SOCKET_ITER_H
#define PILLION_SOCKET_ITER_H

/* Of a file that is a socket: that socket. */
static __always_inline struct sock *read_socket(struct file *file)
{
	struct socket *socket = file ? bpf_sock_from_file(file) : NULL;

	return socket ? socket->sk : NULL;
}

/*
 * Three ways, for one map and one `tell(seq, sk, value)`. The first is over the
 * map itself. It misses nothing of what is told in one read (32 KiB); after
 * that it may, where others have ended meanwhile, and each further read goes
 * through much of the map again. A hardened kernel may refuse it: then over
 * TCP's sockets in the network namespace of who asks, and over those that
 * processes have open. What both of these have is told of twice.
 */
#define WALK(name, map, tell)                                                  \
	WALK_STORAGE(name, tell)                                               \
	WALK_SOCKETS(name, map, tell)

#define WALK_STORAGE(name, tell)                                               \
	SEC("iter/bpf_sk_storage_map")                                         \
	int name(struct bpf_iter__bpf_sk_storage_map *ctx)                     \
	{                                                                      \
		struct sock *sk = ctx->sk;                                     \
		void *value = ctx->value;                                      \
                                                                               \
		if (sk && value)                                               \
			tell(ctx->meta->seq, sk, value);                       \
		return 0;                                                      \
	}

#define WALK_SOCKETS(name, map, tell)                                          \
	SEC("iter/tcp")                                                        \
	int name##_by_tcp(struct bpf_iter__tcp *ctx)                           \
	{                                                                      \
		struct sock_common *skc = ctx->sk_common;                      \
		struct sock *sk;                                               \
		void *value;                                                   \
                                                                               \
		sk = skc ? (struct sock *)bpf_skc_to_tcp_sock(skc) : NULL;     \
		value = sk ? bpf_sk_storage_get(&map, sk, NULL, 0) : NULL;     \
		if (value)                                                     \
			tell(ctx->meta->seq, sk, value);                       \
		return 0;                                                      \
	}                                                                      \
                                                                               \
	SEC("iter/task_file")                                                  \
	int name##_by_file(struct bpf_iter__task_file *ctx)                    \
	{                                                                      \
		struct sock *sk = read_socket(ctx->file);                      \
		void *value;                                                   \
                                                                               \
		value = sk ? bpf_sk_storage_get(&map, sk, NULL, 0) : NULL;     \
		if (value)                                                     \
			tell(ctx->meta->seq, sk, value);                       \
		return 0;                                                      \
	}

#endif /* PILLION_SOCKET_ITER_H */
