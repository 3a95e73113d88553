/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A client that sends a line each 30 ms, as a game or a terminal would, and
 * switches bundling on for its own connection:
 *
 *	cc -I include crates/bpf/examples/switch/switch.c -o switch
 *	pillion attach &
 *	./switch 192.0.2.1 7777
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <pillion.h>

#define LINES 50

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(int argc, char **argv)
{
	const struct timespec pause = {0, 30 * 1000 * 1000};
	struct pillion_stats stats;
	struct sockaddr_in peer;
	socklen_t length = sizeof(stats);
	char line[32];
	int fd, i, on = 1;

	memset(&peer, 0, sizeof(peer));
	peer.sin_family = AF_INET;
	if (argc != 3 || inet_pton(AF_INET, argv[1], &peer.sin_addr) != 1) {
		fprintf(stderr, "usage: %s IPV4-ADDRESS PORT\n", argv[0]);
		return 2;
	}
	peer.sin_port = htons((unsigned short)atoi(argv[2]));
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		return fail("socket");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	/* Before connect(), so that it holds from the first byte. */
	if (setsockopt(fd, IPPROTO_TCP, PILLION_BUNDLE, &on, sizeof(on))) {
		if (errno == ENOPROTOOPT)
			fprintf(stderr, "no pillion is at work here\n");
		else
			perror("PILLION_BUNDLE");
	}
	if (connect(fd, (struct sockaddr *)&peer, sizeof(peer)))
		return fail("connect");
	for (i = 0; i < LINES; i++) {
		snprintf(line, sizeof(line), "line %d\n", i);
		if (write(fd, line, strlen(line)) < 0)
			return fail("write");
		nanosleep(&pause, NULL);
	}
	if (getsockopt(fd, IPPROTO_TCP, PILLION_STATS, &stats, &length) == 0)
		printf("%llu segments, %llu bundled, %llu redundant bytes, "
		       "%llu losses hidden\n",
		       stats.segments, stats.bundled, stats.redundant_bytes,
		       stats.hidden_losses);
	close(fd);
	return 0;
}
