// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sends 448 bytes of zeroes every 50 ms over the loopback device, reads each
 * of them, and prints the receive space (TCP_INFO, tcpi_rcv_space).
 */
#include <arpa/inet.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	int sender = socket(AF_INET, SOCK_STREAM, 0), receiver;
	static char message[448];

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (void *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (void *)&address, &length) ||
	    connect(sender, (void *)&address, length))
		return 1;
	receiver = accept(listener, NULL, NULL);
	for (int i = 0; i < 20; i++) {
		struct tcp_info info;
		socklen_t size = sizeof(info);

		if (write(sender, message, sizeof(message)) < 0)
			return 1;
		usleep(50000);
		if (recv(receiver, message, sizeof(message), MSG_WAITALL) < 0 ||
		    getsockopt(receiver, IPPROTO_TCP, TCP_INFO, &info, &size))
			return 1;
		printf("segment %d: receive space %u\n", i + 1,
		       info.tcpi_rcv_space);
		fflush(stdout);
	}
	return 0;
}
