// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What `lab-kernel/test` boots: it sleeps an hour, draws random numbers and
 * halts. */
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <time.h>
#include <unistd.h>

static void print_bytes(const char *what, const unsigned char *bytes,
			size_t count)
{
	printf("lab-kernel test: random %s ", what);
	while (count--)
		printf("%02x", *bytes++);
	printf("\n");
}

int main(void)
{
	const struct timespec hour = {.tv_sec = 3600};
	struct timespec before, after, date;
	unsigned char drawn[32];

	clock_gettime(CLOCK_MONOTONIC, &before);
	nanosleep(&hour, NULL);
	clock_gettime(CLOCK_MONOTONIC, &after);
	clock_gettime(CLOCK_REALTIME, &date);
	printf("lab-kernel test: slept %ld s from %ld.%09ld to %ld.%09ld, date "
	       "%ld.%09ld\n",
	       after.tv_sec - before.tv_sec, before.tv_sec, before.tv_nsec,
	       after.tv_sec, after.tv_nsec, date.tv_sec, date.tv_nsec);

	if (getrandom(drawn, sizeof(drawn), 0) == sizeof(drawn))
		print_bytes("drawn", drawn, sizeof(drawn));
	print_bytes("at start", (const unsigned char *)getauxval(AT_RANDOM),
		    16);
	printf("lab-kernel test: done\n");
	fflush(stdout);
	reboot(RB_POWER_OFF);
	return 1;
}
