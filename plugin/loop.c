/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop; see loop.h. Owns the sd-event object, the disposition of
 * signals, and the queue by which other threads reach the loop thread.
 *
 * sd_event_exit() is not used: it would end the object for good, and things
 * are closed gracefully after loop_run() by turning the loop further.
 */
#include "plugin/loop.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/lock.h"
#include "base/log.h"

struct loop {
	sd_event *event;
	bool quit;
	int signo;
	int wakefd;
	struct lock lock; /* guards posts */
	struct list posts;
};

static int on_wake(sd_event_source *src, int fd, uint32_t revents,
		   void *userdata)
{
	struct loop *l = userdata;
	struct list posts;
	uint64_t n;

	(void)src;
	(void)revents;
	list_init(&posts);
	/* The counter first: a post that comes after it wakes us again. */
	(void)!read(fd, &n, sizeof(n));
	lock_take(&l->lock);
	list_splice(&posts, &l->posts);
	lock_drop(&l->lock);
	while (!list_empty(&posts)) {
		struct loop_post *p =
			list_first(&posts, struct loop_post, node);

		list_remove(&p->node);
		p->fn(p);
	}
	return 0;
}

void loop_post(struct loop *l, struct loop_post *p)
{
	uint64_t one = 1;

	/*
	 * The write is under the lock, so that the loop thread cannot run the
	 * last post, and free the loop, before it is done. It does not block:
	 * EAGAIN would need 2^64 - 1 posts that nobody has taken.
	 */
	lock_take(&l->lock);
	list_push(&l->posts, &p->node);
	(void)!write(l->wakefd, &one, sizeof(one));
	lock_drop(&l->lock);
}

static int on_signal(sd_event_source *src, const struct signalfd_siginfo *si,
		     void *userdata)
{
	struct loop *l = userdata;

	(void)src;
	if (si->ssi_signo == SIGHUP) {
		log_info(
			"signal ignored: name=SIGHUP hint='restart to read the configuration'");
		return 0;
	}
	l->signo = (int)si->ssi_signo;
	l->quit = true;
	return 0;
}

static int take_signals(struct loop *l)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	sigset_t set;
	int r;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		(void)sigaddset(&set, signals[i]);
	r = pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (r)
		return -r;
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return -errno;
	for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
		r = sd_event_add_signal(l->event, NULL, signals[i], on_signal,
					l);
		if (r < 0)
			return r;
	}
	return 0;
}

int loop_new(struct loop **ret, struct err *e)
{
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return err_sys(e, -ENOMEM, "start the event loop");
	lock_init(&l->lock, RANK_LEAF);
	list_init(&l->posts);
	l->wakefd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = l->wakefd < 0 ? -errno : sd_event_new(&l->event);
	if (r >= 0)
		r = sd_event_add_io(l->event, NULL, l->wakefd, EPOLLIN, on_wake,
				    l);
	if (r >= 0)
		r = take_signals(l);
	if (r < 0) {
		loop_free(l);
		return err_sys(e, r, "start the event loop");
	}
	*ret = l;
	return 0;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	sd_event_unref(l->event);
	if (l->wakefd >= 0)
		(void)close(l->wakefd);
	/* Wait for a poster that is still in loop_post(). */
	lock_take(&l->lock);
	lock_drop(&l->lock);
	lock_release(&l->lock);
	free(l);
}

sd_event *loop_event(struct loop *l)
{
	return l->event;
}

int loop_turn(struct loop *l, unsigned timeout_ms)
{
	int r = sd_event_run(l->event, (uint64_t)timeout_ms * 1000);

	return r < 0 ? r : 0;
}

int loop_run(struct loop *l, struct err *e)
{
	while (!l->quit) {
		int r = sd_event_run(l->event, UINT64_MAX);

		if (r < 0)
			return err_sys(e, r, "wait for events");
	}
	return 0;
}

void loop_quit(struct loop *l)
{
	l->quit = true;
}

int loop_signal(const struct loop *l)
{
	return l->signo;
}
