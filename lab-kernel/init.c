// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The init process of `lab-kernel/test`: sleeps an hour, reads the time and
 * random numbers, prints them and halts. */
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void print_bytes(const char *source, const unsigned char *bytes,
			size_t count)
{
	printf("lab-kernel test: random %s ", source);
	while (count--)
		printf("%02x", *bytes++);
	printf("\n");
}

static long long ns(struct timespec time)
{
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Reads the clock through the vDSO, without a system call. */
static long long vdso_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return ns(now);
}

/* Reads the clock with a system call. */
static long long syscall_ns(void)
{
	struct timespec now;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	return ns(now);
}

/* Maximum time of a system call. */
#define MAX_CALL_NS 1000

static void check_clock(void)
{
	const struct timespec millisecond = {.tv_nsec = 1000000};
	long long first = vdso_ns(), second = vdso_ns(), called = syscall_ns();
	long long after = vdso_ns(), slept;

	printf("lab-kernel test: the clock stands still: %s\n",
	       first == second ? "yes" : "no");
	printf("lab-kernel test: the clocks agree: %s\n",
	       first <= called && called <= first + MAX_CALL_NS &&
			       called <= after && after <= called + MAX_CALL_NS
		       ? "yes"
		       : "no");
	first = vdso_ns();
	nanosleep(&millisecond, NULL);
	slept = vdso_ns() - first - ns(millisecond);
	printf("lab-kernel test: timers have no slack: %s\n",
	       slept >= 0 && slept <= 2 * MAX_CALL_NS ? "yes" : "no");
}

int main(void)
{
	const struct timespec hour = {.tv_sec = 3600};
	struct timespec before, after, date;
	unsigned char random[32];

	clock_gettime(CLOCK_MONOTONIC, &before);
	nanosleep(&hour, NULL);
	clock_gettime(CLOCK_MONOTONIC, &after);
	clock_gettime(CLOCK_REALTIME, &date);
	printf("lab-kernel test: slept %ld s from %ld.%09ld to %ld.%09ld, date "
	       "%ld.%09ld\n",
	       after.tv_sec - before.tv_sec, before.tv_sec, before.tv_nsec,
	       after.tv_sec, after.tv_nsec, date.tv_sec, date.tv_nsec);

	check_clock();
	if (getrandom(random, sizeof(random), 0) == sizeof(random))
		print_bytes("from getrandom", random, sizeof(random));
	print_bytes("at start", (const unsigned char *)getauxval(AT_RANDOM),
		    16);
	printf("lab-kernel test: done\n");
	fflush(stdout);
	reboot(RB_POWER_OFF);
	return 1;
}
