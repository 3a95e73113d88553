// SPDX-License-Identifier: GPL-2.0 OR MIT
/* What `lab-kernel/test` boots: it sleeps an hour, asks for the time, draws
 * random numbers and halts. */
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
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

static long long ns(struct timespec time)
{
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* By the vDSO, without a system call. */
static long long told_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return ns(now);
}

static long long asked_ns(void)
{
	struct timespec now;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	return ns(now);
}

/* A system call may take so long. */
#define CALL_NS 1000

static void check_clock(void)
{
	const struct timespec millisecond = {.tv_nsec = 1000000};
	long long told = told_ns(), again = told_ns(), asked = asked_ns();
	long long after = told_ns(), slept;

	printf("lab-kernel test: the clock stands still: %s\n",
	       told == again ? "yes" : "no");
	printf("lab-kernel test: the clocks agree: %s\n",
	       told <= asked && asked <= told + CALL_NS && asked <= after &&
			       after <= asked + CALL_NS
		       ? "yes"
		       : "no");
	told = told_ns();
	nanosleep(&millisecond, NULL);
	slept = told_ns() - told - ns(millisecond);
	printf("lab-kernel test: timers have no slack: %s\n",
	       slept >= 0 && slept <= 2 * CALL_NS ? "yes" : "no");
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

	check_clock();
	if (getrandom(drawn, sizeof(drawn), 0) == sizeof(drawn))
		print_bytes("drawn", drawn, sizeof(drawn));
	print_bytes("at start", (const unsigned char *)getauxval(AT_RANDOM),
		    16);
	printf("lab-kernel test: done\n");
	fflush(stdout);
	reboot(RB_POWER_OFF);
	return 1;
}
