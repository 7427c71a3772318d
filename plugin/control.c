/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket; see control.h. All on the loop thread, except that a
 * document is made by a worker, because the store has a say in it. A client
 * that is slow, silent or gone costs a connection for ten seconds.
 */
#include "plugin/control.h"

#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/io.h"
#include "base/log.h"
#include "base/metrics.h"

#define CONNS_MAX 32
#define LINE_MAX_BYTES 4096 /* with all headers, of HTTP */
#define PATIENCE_US (10 * 1000000ull)

struct control {
	struct control_opts o;
	sd_event_source *accepting;
	struct list conns;
	unsigned n_conns;
	bool stopped;
};

struct conn {
	struct list node;
	struct control *c;
	int fd;
	sd_event_source *io, *patience;
	char line[LINE_MAX_BYTES];
	size_t n_line;
	struct work work;
	struct registry_question question;
	struct loop_post answered;
	bool in_worker, asking; /* used by another thread: not to be freed */
	struct buf reply;
	size_t n_sent;
};

/* ---- the document ---- */

static void add_member(struct buf *b, const char *name, const char *value)
{
	(void)buf_addf(b, "\"%s\":", name);
	(void)buf_add_json(b, value);
	(void)buf_adds(b, ",");
}

static int write_status(const struct control *c, struct buf *b)
{
	const struct control_info *i = c->o.info;

	(void)buf_adds(b, "{");
	add_member(b, "version", VERSION);
	(void)buf_addf(b, "\"pid\":%d,\"uptime_s\":%" PRIu64 ",", (int)getpid(),
		       (now_ms() - i->started_ms) / 1000);
	add_member(b, "root", i->root);
	add_member(b, "run", i->run);
	add_member(b, "address", i->address);
	(void)buf_addf(b, "\"socket_activated\":%s,",
		       i->socket_activated ? "true" : "false");
	add_member(b, "policy", i->policy);
	(void)buf_adds(b, "\"features\":");
	features_json(&i->features,
		      c->o.view_flags ? c->o.view_flags(c->o.ctx) : 0, b);
	(void)buf_adds(b, ",");
	if (c->o.members(c->o.ctx, b) < 0)
		return -EIO;
	(void)buf_adds(b, "}\n");
	return b->failed ? -ENOMEM : 0;
}

/* ---- connections ---- */

static void conn_free(struct conn *cn)
{
	struct control *c = cn->c;

	list_remove(&cn->node);
	/* A full house stopped accepting. */
	if (c->n_conns-- == CONNS_MAX && c->accepting)
		(void)sd_event_source_set_enabled(c->accepting, SD_EVENT_ON);
	sd_event_source_disable_unref(cn->io);
	sd_event_source_disable_unref(cn->patience);
	(void)close(cn->fd);
	buf_release(&cn->reply);
	free(cn);
}

static int conn_send(struct conn *cn)
{
	while (cn->n_sent < cn->reply.len) {
		ssize_t n = send(cn->fd, cn->reply.p + cn->n_sent,
				 cn->reply.len - cn->n_sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		cn->n_sent += (size_t)n;
	}
	return 0;
}

/* Sends what it can now, and the rest when there is room. */
static void conn_reply(struct conn *cn)
{
	if (conn_send(cn) == -EAGAIN &&
	    sd_event_source_set_io_events(cn->io, EPOLLOUT) >= 0 &&
	    sd_event_source_set_enabled(cn->io, SD_EVENT_ON) >= 0 &&
	    sd_event_source_set_time_relative(cn->patience, PATIENCE_US) >= 0 &&
	    sd_event_source_set_enabled(cn->patience, SD_EVENT_ONESHOT) >= 0)
		return;
	conn_free(cn);
}

static void conn_reply_error(struct conn *cn, const char *text)
{
	buf_release(&cn->reply);
	(void)buf_adds(&cn->reply, "{\"error\":");
	(void)buf_add_json(&cn->reply, text);
	(void)buf_adds(&cn->reply, "}\n");
	if (cn->reply.failed)
		conn_free(cn);
	else
		conn_reply(cn);
}

static void status_run(struct work *w)
{
	struct conn *cn = container_of(w, struct conn, work);

	if (write_status(cn->c, &cn->reply) < 0)
		cn->reply.failed = true;
}

static void images_run(struct work *w)
{
	struct conn *cn = container_of(w, struct conn, work);

	if (cn->c->o.images(cn->c->o.ctx, &cn->reply) < 0)
		cn->reply.failed = true;
}

static void document_done(struct work *w)
{
	struct conn *cn = container_of(w, struct conn, work);

	cn->in_worker = false;
	if (cn->reply.failed)
		conn_reply_error(cn, "the status could not be read");
	else
		conn_reply(cn);
}

static void write_answer(const struct registry_question *q, struct buf *b)
{
	bool ok = q->e.kind == ERR_NONE;

	(void)buf_addf(b, "{\"ok\":%s,\"ms\":%u,", ok ? "true" : "false",
		       q->ms);
	add_member(b, "host", q->host);
	add_member(b, "by", q->by);
	add_member(b, "error_kind", err_kind_name(q->e.kind));
	(void)buf_adds(b, "\"reason\":");
	(void)buf_add_json(b, ok ? "" : q->e.msg);
	(void)buf_adds(b, "}\n");
}

static void on_answered(struct loop_post *p)
{
	struct conn *cn = container_of(p, struct conn, answered);

	cn->asking = false;
	write_answer(&cn->question, &cn->reply);
	if (cn->reply.failed)
		conn_reply_error(cn, "out of memory");
	else
		conn_reply(cn);
}

/* In a thread of the registry's. */
static void question_done(struct registry_question *q)
{
	struct conn *cn = container_of(q, struct conn, question);

	loop_post(cn->c->o.loop, &cn->answered);
}

static void ask_registry(struct conn *cn, const char *image)
{
	struct control *c = cn->c;
	struct err e = ERR_INIT;

	if (!c->o.ask_registry) {
		conn_reply_error(cn, "there is no registry");
		return;
	}
	cn->question.image = image;
	cn->question.done = question_done;
	cn->answered.fn = on_answered;
	cn->asking = true;
	if (c->o.ask_registry(c->o.ctx, &cn->question, &e) < 0) {
		cn->asking = false;
		conn_reply_error(cn, e.msg);
	}
}

static void ask_scrub(struct conn *cn, const char *what)
{
	struct control *c = cn->c;
	struct err e = ERR_INIT;
	uint64_t ticket;

	if (!c->o.scrub) {
		conn_reply_error(cn, "there is no scrubber");
	} else if (c->o.scrub(c->o.ctx, what, &ticket, &e) < 0) {
		conn_reply_error(cn, e.msg);
	} else {
		(void)buf_addf(&cn->reply,
			       "{\"ticket\":%" PRIu64 ",\"pid\":%d}\n", ticket,
			       (int)getpid());
		if (cn->reply.failed)
			conn_reply_error(cn, "out of memory");
		else
			conn_reply(cn);
	}
}

static void conn_request(struct conn *cn)
{
	int r;

	/* Neither bytes nor a hang-up matter until the reply is there. */
	(void)sd_event_source_set_enabled(cn->io, SD_EVENT_OFF);
	(void)sd_event_source_set_enabled(cn->patience, SD_EVENT_OFF);
	if (!strncmp(cn->line, "registry ", 9)) {
		ask_registry(cn, cn->line + 9);
		return;
	}
	if (!strncmp(cn->line, "scrub ", 6)) {
		ask_scrub(cn, cn->line + 6);
		return;
	}
	if (!strcmp(cn->line, "metrics")) {
		if (metrics_write(&cn->reply) < 0)
			conn_reply_error(cn, "out of memory");
		else
			conn_reply(cn);
		return;
	}
	if (!strcmp(cn->line, "images") && cn->c->o.images) {
		cn->work.run = images_run;
	} else if (!strcmp(cn->line, "status")) {
		cn->work.run = status_run;
	} else {
		conn_reply_error(
			cn,
			"unknown request; known are: status, images, registry IMAGE, scrub all, scrub SEQ..., metrics");
		return;
	}
	cn->work.done = document_done;
	r = work_submit(cn->c->o.workers, &cn->work);
	if (r < 0)
		conn_reply_error(cn, strerror(-r));
	else
		cn->in_worker = true;
}

/* No request of our own is in capitals. */
static bool is_http(const struct conn *cn)
{
	return cn->line[0] >= 'A' && cn->line[0] <= 'Z' &&
	       memmem(cn->line, cn->n_line, " /", 2);
}

/* All headers are here: what is unread when a socket is closed would take the
 * answer's end away from the client. */
static void conn_request_http(struct conn *cn)
{
	static const char get[] = "GET /metrics ";
	bool known = !strncmp(cn->line, get, sizeof(get) - 1);
	owned(buf) struct buf body = { 0 };

	(void)sd_event_source_set_enabled(cn->io, SD_EVENT_OFF);
	(void)sd_event_source_set_enabled(cn->patience, SD_EVENT_OFF);
	if (!known)
		(void)buf_adds(&body, "only GET /metrics is here\n");
	else if (metrics_write(&body) < 0)
		body.failed = true;
	(void)buf_addf(&cn->reply,
		       "HTTP/1.1 %s\r\nContent-Type: %s\r\n"
		       "Content-Length: %zu\r\nConnection: close\r\n\r\n",
		       known ? "200 OK" : "404 Not Found", METRICS_CONTENT_TYPE,
		       body.len);
	(void)buf_add(&cn->reply, body.p, body.len);
	if (body.failed || cn->reply.failed)
		conn_free(cn);
	else
		conn_reply(cn);
}

static void conn_read(struct conn *cn)
{
	ssize_t n = recv(cn->fd, cn->line + cn->n_line,
			 sizeof(cn->line) - cn->n_line, 0);
	char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		conn_free(cn);
		return;
	}
	cn->n_line += (size_t)n;
	if (is_http(cn)) {
		end = memmem(cn->line, cn->n_line, "\r\n\r\n", 4);
		if (end)
			conn_request_http(cn);
	} else {
		end = memchr(cn->line, '\n', cn->n_line);
		if (end) {
			*end = '\0';
			conn_request(cn);
		}
	}
	if (end)
		return;
	if (cn->n_line == sizeof(cn->line)) {
		(void)sd_event_source_set_enabled(cn->io, SD_EVENT_OFF);
		conn_reply_error(cn, "request too long");
	}
}

static int on_io(sd_event_source *s unused_arg, int fd unused_arg,
		 uint32_t revents, void *ctx)
{
	struct conn *cn = ctx;

	if (cn->reply.len)
		conn_reply(cn);
	else if (revents & (EPOLLIN | EPOLLHUP | EPOLLERR))
		conn_read(cn);
	return 0;
}

static int on_patience(sd_event_source *s unused_arg, uint64_t usec unused_arg,
		       void *ctx)
{
	conn_free(ctx);
	return 0;
}

/* Consumes @fd. */
static int conn_new(struct control *c, int fd)
{
	sd_event *ev = loop_event(c->o.loop);
	struct conn *cn = calloc(1, sizeof(*cn));
	int r = 0;

	if (!cn) {
		(void)close(fd);
		return -ENOMEM;
	}
	cn->c = c;
	cn->fd = fd;
	list_push(&c->conns, &cn->node);
	if (++c->n_conns == CONNS_MAX)
		r = sd_event_source_set_enabled(c->accepting, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_io(ev, &cn->io, fd, EPOLLIN, on_io, cn);
	if (r >= 0)
		r = sd_event_add_time_relative(ev, &cn->patience,
					       CLOCK_MONOTONIC, PATIENCE_US, 0,
					       on_patience, cn);
	if (r < 0)
		conn_free(cn);
	return r < 0 ? r : 0;
}

static int on_accept(sd_event_source *s unused_arg, int fd,
		     uint32_t revents unused_arg, void *ctx)
{
	int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int r = conn < 0 ? -errno : conn_new(ctx, conn);

	if (r < 0 && r != -EAGAIN && r != -EINTR && r != -ECONNABORTED)
		log_limited(LOG_LEVEL_WARN, NULL,
			    "control connection refused: err='%s'",
			    strerror(-r));
	return 0;
}

int control_open(const struct control_opts *o, struct control **ret,
		 struct err *e)
{
	struct control *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		(void)close(o->listen_fd);
		return err_sys(e, -ENOMEM, "open the control socket");
	}
	c->o = *o;
	list_init(&c->conns);
	r = sd_event_add_io(loop_event(o->loop), &c->accepting, o->listen_fd,
			    EPOLLIN, on_accept, c);
	/* Without file descriptors the socket stays readable: do not spin. */
	if (r >= 0)
		r = sd_event_source_set_ratelimit(c->accepting, 1000000, 200);
	if (r < 0) {
		control_close(c);
		return err_sys(e, r, "open the control socket");
	}
	*ret = c;
	return 0;
}

static bool one_in_worker(const struct control *c)
{
	const struct list *p;

	list_each (p, &c->conns)
		if (list_entry(p, const struct conn, node)->in_worker)
			return true;
	return false;
}

void control_stop(struct control *c)
{
	struct list *p, *n;

	if (!c || c->stopped)
		return;
	c->stopped = true;
	c->accepting = sd_event_source_disable_unref(c->accepting);
	(void)close(c->o.listen_fd);
	while (one_in_worker(c))
		if (loop_turn(c->o.loop, 100) < 0)
			break;
	list_each_safe (p, n, &c->conns) {
		struct conn *cn = list_entry(p, struct conn, node);

		if (!cn->asking)
			conn_free(cn);
	}
}

void control_close(struct control *c)
{
	struct list *p, *n;

	if (!c)
		return;
	control_stop(c);
	list_each_safe (p, n, &c->conns)
		conn_free(list_entry(p, struct conn, node));
	free(c);
}
