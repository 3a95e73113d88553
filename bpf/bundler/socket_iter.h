/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Iterates over the sockets that have an entry in a map. User space starts the
 * iterator and reads the records.
 */
#ifndef PILLION_SOCKET_ITER_H
#define PILLION_SOCKET_ITER_H

/* Returns the socket of a file, or NULL. */
static __always_inline struct sock *read_socket(struct file *file)
{
	struct socket *socket = file ? bpf_sock_from_file(file) : NULL;

	return socket ? socket->sk : NULL;
}

/*
 * Defines three iterators for one map and one `write(seq, sk, value)`. The
 * first one iterates over the map itself. It misses nothing in the first read
 * (32 KiB). Later reads may miss entries if others were deleted meanwhile, and
 * each one scans much of the map again. A hardened kernel may refuse it. Then
 * the two others iterate over TCP's sockets in the reader's network namespace,
 * and over the sockets that processes have open. A socket in both is reported
 * twice.
 */
#define ITERATE(name, map, write)                                              \
	ITERATE_STORAGE(name, write)                                           \
	ITERATE_SOCKETS(name, map, write)

#define ITERATE_STORAGE(name, write)                                           \
	SEC("iter/bpf_sk_storage_map")                                         \
	int name(struct bpf_iter__bpf_sk_storage_map *ctx)                     \
	{                                                                      \
		struct sock *sk = ctx->sk;                                     \
		void *value = ctx->value;                                      \
                                                                               \
		if (sk && value)                                               \
			write(ctx->meta->seq, sk, value);                      \
		return 0;                                                      \
	}

#define ITERATE_SOCKETS(name, map, write)                                      \
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
			write(ctx->meta->seq, sk, value);                      \
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
			write(ctx->meta->seq, sk, value);                      \
		return 0;                                                      \
	}

#endif /* PILLION_SOCKET_ITER_H */
