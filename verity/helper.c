/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's end of helper processes; see helper.h. One thread a helper: it
 * reads the socket, reaps the process, starts the next one.
 */
#include "verity/helper.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "verity/cgroup.h"
#include "verity/helper_priv.h"

#define PAUSE_FIRST_MS 100u
#define HEALTHY_MS 60000u /* who lived so long starts at once again */

extern char **environ;

struct helper {
	struct helper_opts o;
	pthread_t thread;
	pid_t pid; /* the thread's; 0: none */
	uint64_t started_ms;

	struct lock lock; /* leaf; guards what follows */
	struct cond wake;
	int sock; /* -1: no process */
	bool stop;
	struct helper_status status;
};

/* ---- the process ---- */

/* @sock becomes HELPER_FD. Everything of ours is close-on-exec; what libraries
 * have open may not be. */
static int set_actions(posix_spawn_file_actions_t *a, int sock)
{
	int r = posix_spawn_file_actions_addopen(a, 0, "/dev/null", O_RDONLY,
						 0);

	if (r == 0)
		r = posix_spawn_file_actions_adddup2(a, 2, 1);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(a, sock, HELPER_FD);
#if __GLIBC_PREREQ(2, 34)
	if (r == 0)
		r = posix_spawn_file_actions_addclosefrom_np(a, HELPER_FD + 1);
#endif
	return -r;
}

/* It is told to end by its socket only: not by a Ctrl-C, which is for us. */
static int set_attributes(posix_spawnattr_t *at)
{
	sigset_t all;
	int r;

	(void)sigfillset(&all);
	r = posix_spawnattr_setsigmask(at, &all);
	if (r == 0)
		r = posix_spawnattr_setsigdefault(at, &all);
	if (r == 0)
		r = posix_spawnattr_setpgroup(at, 0);
	if (r == 0)
		r = posix_spawnattr_setflags(at, POSIX_SPAWN_SETSIGMASK |
							 POSIX_SPAWN_SETSIGDEF |
							 POSIX_SPAWN_SETPGROUP);
	return -r;
}

static int spawn(const struct helper_opts *o, int sock, pid_t *ret_pid)
{
	char name[] = "verity-snapshotter", spec[64];
	char *argv[] = { name, spec, NULL };
	posix_spawn_file_actions_t a;
	posix_spawnattr_t at;
	int r;

	(void)snprintf(spec, sizeof(spec), "--helper=%s:%" PRIu64, o->role,
		       o->memory);
	r = -posix_spawn_file_actions_init(&a);
	if (r < 0)
		return r;
	r = -posix_spawnattr_init(&at);
	if (r < 0) {
		(void)posix_spawn_file_actions_destroy(&a);
		return r;
	}
	r = set_actions(&a, sock);
	if (r == 0)
		r = set_attributes(&at);
	if (r == 0)
		r = -posix_spawn(ret_pid, "/proc/self/exe", &a, &at, argv,
				 environ);
	(void)posix_spawnattr_destroy(&at);
	(void)posix_spawn_file_actions_destroy(&a);
	return r;
}

/* Above all that set_actions() gives a new meaning, before it comes to this
 * one; and dup2() to the same number would leave close-on-exec as it is. */
static int move_up(int *fd)
{
	int moved;

	if (*fd > HELPER_FD)
		return 0;
	moved = fcntl(*fd, F_DUPFD_CLOEXEC, HELPER_FD + 1);
	if (moved < 0)
		return -errno;
	(void)close(*fd);
	*fd = moved;
	return 0;
}

static int start(struct helper *h)
{
	int pair[2], r;
	pid_t pid = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	r = move_up(&pair[1]);
	if (r == 0)
		r = fault_point("helper_spawn");
	if (r == 0)
		r = spawn(&h->o, pair[1], &pid);
	(void)close(pair[1]);
	if (r < 0) {
		(void)close(pair[0]);
		return r;
	}
	h->pid = pid;
	h->started_ms = now_ms();
	lock_take(&h->lock);
	h->sock = pair[0];
	if (h->stop) /* said while there was none to tell it to */
		(void)shutdown(h->sock, SHUT_RDWR);
	h->status.pid = pid;
	h->status.n_starts++;
	lock_drop(&h->lock);
	return 0;
}

static void reap(struct helper *h)
{
	int status = 0;

	if (!h->pid)
		return;
	while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
		;
	lock_take(&h->lock);
	if (!h->stop)
		log_warn("helper died: role=%s pid=%d %s=%d", h->o.role,
			 (int)h->pid, WIFSIGNALED(status) ? "signal" : "status",
			 WIFSIGNALED(status) ? WTERMSIG(status)
					     : WEXITSTATUS(status));
	lock_drop(&h->lock);
	h->pid = 0;
}

/* ---- the thread ---- */

static void take_hello(struct helper *h, const struct helper_hello *m)
{
	lock_take(&h->lock);
	h->status.has_cgroup = m->cgroup_error == 0;
	(void)snprintf(h->status.cgroup, sizeof(h->status.cgroup), "%.*s",
		       (int)sizeof(m->cgroup), m->cgroup);
	lock_drop(&h->lock);
	if (m->cgroup_error)
		log_info("helper has no cgroup of its own: role=%s err='%.*s'",
			 h->o.role, (int)sizeof(m->cgroup), m->cgroup);
}

/* Until the process is gone, or says what cannot be understood. */
static void listen_to(struct helper *h)
{
	_Alignas(8) uint8_t buf[HELPER_MSG_MAX];
	const struct helper_msg *m = (const void *)buf;

	for (;;) {
		int fd = -1;
		int n = helper_receive(h->sock, buf, sizeof(buf), &fd);

		if (fd >= 0)
			(void)close(fd); /* nobody sends one to us */
		if (n <= 0)
			return;
		if (m->type != HELPER_HELLO)
			h->o.message(h->o.ctx, m, (size_t)n);
		else if (n == sizeof(struct helper_hello))
			take_hello(h, (const void *)buf);
		else
			return;
	}
}

static void close_socket(struct helper *h)
{
	int sock;

	lock_take(&h->lock);
	sock = take_fd(&h->sock);
	h->status.pid = 0;
	lock_drop(&h->lock);
	if (sock >= 0)
		(void)close(sock);
}

/* false: stop */
static bool pause_for(struct helper *h, unsigned ms)
{
	uint64_t until = now_ms() + ms;
	bool go_on;
	int r = 0;

	lock_take(&h->lock);
	while (!h->stop && r != -ETIMEDOUT)
		r = cond_wait_until(&h->wake, &h->lock, until);
	go_on = !h->stop;
	lock_drop(&h->lock);
	return go_on;
}

static bool is_stopped(struct helper *h)
{
	bool r;

	lock_take(&h->lock);
	r = h->stop;
	lock_drop(&h->lock);
	return r;
}

static void *thread_main(void *arg)
{
	struct helper *h = arg;
	unsigned pause_ms = PAUSE_FIRST_MS;
	int r;

	(void)pthread_setname_np(pthread_self(), "vs-helper");
	for (;;) {
		if (h->pid) {
			listen_to(h);
			close_socket(h);
			reap(h);
			if (is_stopped(h))
				return NULL;
			h->o.lost(h->o.ctx);
			if (now_ms() - h->started_ms > HEALTHY_MS)
				pause_ms = PAUSE_FIRST_MS;
		}
		if (!pause_for(h, pause_ms))
			return NULL;
		if (pause_ms < HELPER_PAUSE_MAX_MS / 2)
			pause_ms *= 2;
		else
			pause_ms = HELPER_PAUSE_MAX_MS;
		r = start(h);
		if (r < 0)
			log_warn("helper not started: role=%s err='%s'",
				 h->o.role, strerror(-r));
	}
}

/* No signal is ever for this thread. */
static int start_thread(struct helper *h)
{
	sigset_t all, old;
	int r;

	(void)sigfillset(&all);
	r = -pthread_sigmask(SIG_SETMASK, &all, &old);
	if (r < 0)
		return r;
	r = -pthread_create(&h->thread, NULL, thread_main, h);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

/* ---- the interface ---- */

int helper_new(const struct helper_opts *o, struct helper **ret)
{
	struct helper *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return -ENOMEM;
	r = cond_init(&h->wake);
	if (r < 0) {
		free(h);
		return r;
	}
	h->o = *o;
	h->sock = -1;
	lock_init(&h->lock, RANK_LEAF);
	(void)snprintf(h->status.cgroup, sizeof(h->status.cgroup),
		       "not started");
	r = start(h);
	if (r < 0)
		log_warn("helper not started: role=%s err='%s'", o->role,
			 strerror(-r));
	r = start_thread(h);
	if (r < 0) {
		close_socket(h);
		h->stop = true;
		reap(h);
		cond_release(&h->wake);
		lock_release(&h->lock);
		free(h);
		return r;
	}
	*ret = h;
	return 0;
}

void helper_free(struct helper *h)
{
	if (!h)
		return;
	lock_take(&h->lock);
	h->stop = true;
	cond_signal(&h->wake);
	/* Both ends see the end; the thread closes it. */
	if (h->sock >= 0)
		(void)shutdown(h->sock, SHUT_RDWR);
	lock_drop(&h->lock);
	(void)pthread_join(h->thread, NULL);
	if (h->status.has_cgroup)
		cgroup_remove(h->status.cgroup);
	cond_release(&h->wake);
	lock_release(&h->lock);
	free(h);
}

int helper_send(struct helper *h, const struct helper_msg *m, size_t len,
		int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} u = { 0 };
	struct iovec v = { (void *)(uintptr_t)m, len };
	struct msghdr msg = { .msg_iov = &v, .msg_iovlen = 1 };
	int r = 0;

	if (fd >= 0) {
		struct cmsghdr *c = &u.head;

		msg.msg_control = u.room;
		msg.msg_controllen = sizeof(u.room);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	lock_take(&h->lock);
	if (h->sock < 0)
		r = -EPIPE;
	else if (sendmsg(h->sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		r = errno == ECONNRESET ? -EPIPE : -errno;
	lock_drop(&h->lock);
	return r;
}

void helper_get_status(struct helper *h, struct helper_status *ret)
{
	lock_take(&h->lock);
	*ret = h->status;
	lock_drop(&h->lock);
}

void helper_status_json(const struct helper_status *st, struct buf *out)
{
	(void)buf_addf(out, "{\"pid\":%d,\"starts\":%u,", st->pid,
		       st->n_starts);
	(void)buf_adds(out, "\"cgroup\":");
	(void)buf_add_json(out, st->has_cgroup ? st->cgroup : "");
	(void)buf_adds(out, ",\"no_cgroup\":");
	(void)buf_add_json(out, st->has_cgroup ? "" : st->cgroup);
	(void)buf_adds(out, "}");
}
