/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Preloaded into a process (LD_PRELOAD): signals interrupt each of its threads
 * every few milliseconds, so that blocking system calls fail with EINTR.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The name in sigevent(7), which glibc 2.36 does not have. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define INTERVAL_NS 3000000

struct start {
	void *(*routine)(void *);
	void *argument;
};

static void ignore(int signal)
{
	(void)signal;
}

/* Uses SIGXCPU, which `pillion run` does not forward to its command. */
static void interrupt_this_thread(void)
{
	struct sigevent event = {
		.sigev_notify = SIGEV_THREAD_ID,
		.sigev_signo = SIGXCPU,
	};
	struct itimerspec every = {
		.it_interval.tv_nsec = INTERVAL_NS,
		.it_value.tv_nsec = INTERVAL_NS,
	};
	timer_t timer;

	event.sigev_notify_thread_id = gettid();
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) ||
	    timer_settime(timer, 0, &every, NULL))
		abort();
}

__attribute__((constructor)) static void start_storm(void)
{
	struct sigaction action = {.sa_handler = ignore}; /* no SA_RESTART */

	/* Its waitpid() fails with EINTR. */
	if (!strcmp(program_invocation_short_name, "unshare"))
		return;
	if (sigaction(SIGXCPU, &action, NULL))
		abort();
	interrupt_this_thread();
}

static void *run(void *argument)
{
	struct start start = *(struct start *)argument;

	free(argument);
	interrupt_this_thread();
	return start.routine(start.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
		   void *(*routine)(void *), void *argument)
{
	int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
		      void *) = dlsym(RTLD_NEXT, "pthread_create");
	struct start *start = malloc(sizeof(*start));
	int error;

	if (!start)
		abort();
	*start = (struct start){routine, argument};
	error = create(thread, attributes, run, start);
	if (error)
		free(start);
	return error;
}
