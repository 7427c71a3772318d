/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket and its connections; see server.h. What is said on a
 * connection is the business of h2, what a call means that of call.
 */
#include "plugin/server.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/io.h"
#include "base/log.h"
#include "plugin/call.h"
#include "plugin/h2.h"

#define CONNS_MAX 32u /* containerd needs one; each may cost some 100 KiB */
#define ACCEPT_BATCH 16u
#define ACCEPT_PAUSE_US 100000

struct server {
	struct loop *loop;
	int listen_fd;
	sd_event_source *listen, *pause;
	struct h2_conn *conns[CONNS_MAX];
	unsigned n_conns;
	struct calls calls;
};

static void on_conn_closed(void *ctx, struct h2_conn *c)
{
	struct server *s = container_of(ctx, struct server, calls);

	for (unsigned i = 0; i < s->n_conns; i++) {
		if (s->conns[i] != c)
			continue;
		s->conns[i] = s->conns[--s->n_conns];
		return;
	}
}

static const struct h2_ops ops = {
	.request = call_request,
	.data = call_data,
	.end = call_end,
	.drained = call_drained,
	.stream_closed = call_stream_closed,
	.conn_closed = on_conn_closed,
};

/* Consumes @fd. */
static void add_conn(struct server *s, int fd)
{
	int r;

	if (s->n_conns >= CONNS_MAX) {
		(void)close(fd);
		log_limited(LOG_LEVEL_WARN, NULL,
			    "connection refused: reason='%u are open'",
			    CONNS_MAX);
		return;
	}
	r = h2_open(loop_event(s->loop), fd, &ops, &s->calls,
		    &s->conns[s->n_conns]);
	if (r < 0) {
		log_limited(LOG_LEVEL_WARN, NULL,
			    "connection refused: err='%s'", strerror(-r));
		return;
	}
	s->n_conns++;
}

static int on_pause_over(sd_event_source *src, uint64_t usec, void *userdata)
{
	struct server *s = userdata;

	(void)src;
	(void)usec;
	(void)sd_event_source_set_enabled(s->listen, SD_EVENT_ON);
	return 0;
}

/* Out of descriptors or memory: the socket stays readable, so without a pause
 * the loop would spin. */
static void pause_accepting(struct server *s, int error)
{
	log_limited(LOG_LEVEL_WARN, NULL,
		    "cannot accept a connection: err='%s'", strerror(error));
	if (sd_event_source_set_time_relative(s->pause, ACCEPT_PAUSE_US) < 0 ||
	    sd_event_source_set_enabled(s->pause, SD_EVENT_ONESHOT) < 0)
		return;
	(void)sd_event_source_set_enabled(s->listen, SD_EVENT_OFF);
}

static int on_listen(sd_event_source *src, int fd, uint32_t revents,
		     void *userdata)
{
	struct server *s = userdata;

	(void)src;
	(void)revents;
	for (unsigned i = 0; i < ACCEPT_BATCH; i++) {
		int c = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (c >= 0) {
			add_conn(s, c);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno != EAGAIN)
			pause_accepting(s, errno);
		break;
	}
	return 0;
}

static void stop_listening(struct server *s)
{
	s->listen = sd_event_source_disable_unref(s->listen);
	s->pause = sd_event_source_disable_unref(s->pause);
	if (s->listen_fd >= 0)
		(void)close(take_fd(&s->listen_fd));
}

static int start_listening(struct server *s)
{
	sd_event *event = loop_event(s->loop);
	int flags = fcntl(s->listen_fd, F_GETFL), r;

	if (flags < 0 || fcntl(s->listen_fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	r = sd_event_add_io(event, &s->listen, s->listen_fd, EPOLLIN, on_listen,
			    s);
	if (r < 0)
		return r;
	r = sd_event_add_time_relative(event, &s->pause, CLOCK_MONOTONIC, 0, 0,
				       on_pause_over, s);
	if (r < 0)
		return r;
	return sd_event_source_set_enabled(s->pause, SD_EVENT_OFF);
}

int server_open(const struct server_opts *o, struct server **ret, struct err *e)
{
	struct server *s = calloc(1, sizeof(*s));
	int r;

	if (!s) {
		(void)close(o->listen_fd);
		return err_sys(e, -ENOMEM, "start the server");
	}
	s->loop = o->loop;
	s->listen_fd = o->listen_fd;
	s->calls.loop = o->loop;
	s->calls.workers = o->workers;
	s->calls.snapshotter = o->snapshotter;
	list_init(&s->calls.list);
	r = start_listening(s);
	if (r < 0) {
		stop_listening(s);
		free(s);
		return err_sys(e, r, "listen on the socket");
	}
	*ret = s;
	return 0;
}

/* Turns the loop until all is quiet or it is @end_ms. 0 or -errno. */
static int drain(struct server *s, uint64_t end_ms)
{
	while (s->n_conns || s->calls.n) {
		uint64_t now = now_ms();
		int r;

		if (now >= end_ms)
			return 0;
		r = loop_turn(s->loop, end_ms - now > 1000
					       ? 1000
					       : (unsigned)(end_ms - now));
		if (r < 0)
			return r;
	}
	return 0;
}

void server_close(struct server *s, unsigned grace_ms)
{
	int r;

	if (!s)
		return;
	stop_listening(s);
	calls_stop(&s->calls);
	for (unsigned i = 0; i < s->n_conns; i++)
		h2_shutdown(s->conns[i]);
	r = drain(s, now_ms() + grace_ms);
	if (s->n_conns || s->calls.n)
		log_warn("calls are cut off: connections=%u calls=%u",
			 s->n_conns, s->calls.n);
	while (s->n_conns)
		h2_close(s->conns[0]);
	if (r == 0)
		r = drain(s, UINT64_MAX);
	if (r < 0) {
		/* A worker may still write to a call: rather leak than that. */
		log_err("cannot wait for calls: err='%s'", strerror(-r));
		return;
	}
	free(s);
}

unsigned server_n_calls(const struct server *s)
{
	return s->calls.n;
}

unsigned server_n_conns(const struct server *s)
{
	return s->n_conns;
}
