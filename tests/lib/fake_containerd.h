/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A containerd for tests: namespaces, images, contents and events on a unix
 * socket, served by plugin/h2 in a thread of its own. What it knows is changed
 * by the test's thread. To be included behind cmocka by one source file of a
 * program.
 */
#ifndef TESTS_LIB_FAKE_CONTAINERD_H
#define TESTS_LIB_FAKE_CONTAINERD_H

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/digest.h"
#include "plugin/h2.h"
#include "plugin/loop.h"
#include "proto/containerd.pb-c.h"
#include "rpc/grpc.h"
#include "verity/sha256.h"

#define FAKE_MAX 32

struct fake_image {
	char ns[32], name[128], target[96]; /* ns "": free */
};

struct fake_content {
	struct digest digest;
	char *bytes; /* NULL: free */
	size_t len;
};

struct fake_call {
	struct h2_stream *st;
	struct grpc_reader rd;
	char path[128];
	bool subscribed, sending;
	struct buf later; /* while sending */
};

struct fake_containerd {
	struct sockaddr_un addr;
	pthread_t thread;
	struct loop *loop;
	struct loop_post post; /* runs .job in the thread */
	sd_event_source *accepting;
	struct h2_conn *conns[FAKE_MAX];
	struct fake_call *subscriber; /* the last */
	int listen_fd;
	bool runs, quits;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t done;
	void (*job)(struct fake_containerd *f); /* NULL: done */
	struct buf event; /* to be sent */
	struct fake_image images[FAKE_MAX];
	struct fake_content contents[FAKE_MAX];
	unsigned n_reads, n_lists, n_subscribed; /* calls so far */
	/* Answered to calls of this path instead: bytes as they are, and a
	 * status. "": nothing special. */
	char odd_path[128], odd_status[8];
	struct buf odd;
};

/* ---- what it knows; any thread ---- */

static inline void fake_set_image(struct fake_containerd *f, const char *ns,
				  const char *name, const char *target)
{
	struct fake_image *im = NULL;

	(void)pthread_mutex_lock(&f->lock);
	for (size_t i = 0; i < FAKE_MAX; i++) {
		struct fake_image *x = &f->images[i];

		if (!strcmp(x->ns, ns) && !strcmp(x->name, name)) {
			im = x;
			break;
		}
		if (!im && !x->ns[0])
			im = x;
	}
	assert_non_null(im);
	(void)snprintf(im->ns, sizeof(im->ns), "%s", target ? ns : "");
	(void)snprintf(im->name, sizeof(im->name), "%s", target ? name : "");
	(void)snprintf(im->target, sizeof(im->target), "%s",
		       target ? target : "");
	(void)pthread_mutex_unlock(&f->lock);
}

/* Contents under a digest, true or not. */
static inline void fake_add_content_as(struct fake_containerd *f,
				       const struct digest *d, const char *s)
{
	size_t i = 0;

	(void)pthread_mutex_lock(&f->lock);
	while (i < FAKE_MAX && f->contents[i].bytes)
		i++;
	assert_true(i < FAKE_MAX);
	f->contents[i].digest = *d;
	f->contents[i].bytes = strdup(s);
	f->contents[i].len = strlen(s);
	(void)pthread_mutex_unlock(&f->lock);
}

static inline struct digest fake_digest(const char *s)
{
	struct digest d;

	assert_int_equal(sha256_buf(s, strlen(s), &d), 0);
	return d;
}

static inline struct digest fake_add_content(struct fake_containerd *f,
					     const char *s)
{
	struct digest d = fake_digest(s);

	fake_add_content_as(f, &d, s);
	return d;
}

/* ---- answers; in its thread ---- */

static void fake_pack(struct buf *out, const ProtobufCMessage *m)
{
	size_t at = grpc_frame_begin(out);

	assert_int_equal(
		buf_reserve(out, protobuf_c_message_get_packed_size(m)), 0);
	out->len += protobuf_c_message_pack(m, out->p + out->len);
	assert_int_equal(grpc_frame_end(out, at), 0);
}

static void fake_list_namespaces(struct fake_containerd *f, struct buf *out)
{
	Containerd__ListNamespacesResponse rs =
		CONTAINERD__LIST_NAMESPACES_RESPONSE__INIT;
	Containerd__Namespace ns[2] = { CONTAINERD__NAMESPACE__INIT,
					CONTAINERD__NAMESPACE__INIT };
	Containerd__Namespace *list[] = { &ns[0], &ns[1] };
	static char names[2][8] = { "default", "../x" };

	ns[0].name = names[0];
	ns[1].name = names[1]; /* to be left out */
	rs.n_namespaces = 2;
	rs.namespaces = list;
	f->n_lists++;
	fake_pack(out, &rs.base);
}

/* The images of "default": the fake does not read the header. */
static void fake_list_images(struct fake_containerd *f, struct buf *out,
			     const char *only)
{
	Containerd__ListImagesResponse rs =
		CONTAINERD__LIST_IMAGES_RESPONSE__INIT;
	Containerd__GetImageResponse one = CONTAINERD__GET_IMAGE_RESPONSE__INIT;
	Containerd__Image im[FAKE_MAX], *list[FAKE_MAX];
	Containerd__Descriptor d[FAKE_MAX];

	rs.images = list;
	for (size_t i = 0; i < FAKE_MAX; i++) {
		if (!f->images[i].ns[0] ||
		    (only && strcmp(only, f->images[i].name) != 0))
			continue;
		containerd__image__init(&im[i]);
		containerd__descriptor__init(&d[i]);
		im[i].name = f->images[i].name;
		d[i].digest = f->images[i].target;
		im[i].target = &d[i];
		list[rs.n_images++] = &im[i];
	}
	if (!only) {
		fake_pack(out, &rs.base);
	} else if (rs.n_images) {
		one.image = list[0];
		fake_pack(out, &one.base);
	}
}

/* In two messages, as large contents come. */
static void fake_read(struct fake_containerd *f, struct buf *out,
		      const char *digest)
{
	Containerd__ReadContentResponse rs =
		CONTAINERD__READ_CONTENT_RESPONSE__INIT;

	f->n_reads++;
	for (size_t i = 0; i < FAKE_MAX; i++) {
		struct fake_content *c = &f->contents[i];
		size_t half = c->len / 2;

		if (!c->bytes || strcmp(digest_str(&c->digest).s, digest) != 0)
			continue;
		rs.data.data = (uint8_t *)c->bytes;
		rs.data.len = half;
		fake_pack(out, &rs.base);
		rs.data.data += half;
		rs.data.len = c->len - half;
		fake_pack(out, &rs.base);
		return;
	}
}

static bool fake_ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* The answer's bytes; "5" when there are none. */
static const char *fake_answer(struct fake_containerd *f, struct fake_call *c,
			       struct buf *out)
{
	const struct buf *m = &c->rd.msg;

	if (*f->odd_path && fake_ends_with(c->path, f->odd_path)) {
		assert_int_equal(buf_add(out, f->odd.p, f->odd.len), 0);
		return f->odd_status;
	}
	if (fake_ends_with(c->path, "Namespaces/List")) {
		fake_list_namespaces(f, out);
	} else if (fake_ends_with(c->path, "Images/List")) {
		fake_list_images(f, out, NULL);
		return "0";
	} else if (fake_ends_with(c->path, "Images/Get")) {
		Containerd__GetImageRequest *rq =
			containerd__get_image_request__unpack(NULL, m->len,
							      m->p);

		fake_list_images(f, out, rq->name);
		containerd__get_image_request__free_unpacked(rq, NULL);
	} else if (fake_ends_with(c->path, "Content/Read")) {
		Containerd__ReadContentRequest *rq =
			containerd__read_content_request__unpack(NULL, m->len,
								 m->p);

		fake_read(f, out, rq->digest);
		containerd__read_content_request__free_unpacked(rq, NULL);
	}
	return out->len ? "0" : "5";
}

static void fake_on_request(void *ctx, struct h2_stream *st)
{
	struct fake_call *c = calloc(1, sizeof(*c));

	(void)ctx;
	assert_non_null(c);
	c->st = st;
	(void)snprintf(c->path, sizeof(c->path), "%s",
		       h2_stream_request(st)->path);
	h2_stream_set_user(st, c);
}

static void fake_on_data(void *ctx, struct h2_stream *st, const uint8_t *p,
			 size_t len)
{
	struct fake_call *c = h2_stream_user(st);
	struct grpc_status gs;

	(void)ctx;
	assert_int_equal(grpc_reader_feed(&c->rd, p, len, &gs), 0);
}

static void fake_on_end(void *ctx, struct h2_stream *st)
{
	static const struct h2_header type = { "content-type",
					       "application/grpc" };
	struct fake_containerd *f = ctx;
	struct fake_call *c = h2_stream_user(st);
	struct h2_header status = { "grpc-status", NULL };
	struct buf out = { 0 };

	h2_respond(st, 200, &type, 1, false);
	(void)pthread_mutex_lock(&f->lock);
	if (fake_ends_with(c->path, "Events/Subscribe")) {
		c->subscribed = true;
		f->subscriber = c;
		f->n_subscribed++;
	} else {
		status.value = fake_answer(f, c, &out);
		h2_send(st, &out);
		h2_finish(st, &status, 1);
	}
	(void)pthread_mutex_unlock(&f->lock);
}

static void fake_on_drained(void *ctx, struct h2_stream *st)
{
	struct fake_call *c = h2_stream_user(st);

	(void)ctx;
	c->sending = false;
}

static void fake_on_stream_closed(void *ctx, struct h2_stream *st)
{
	struct fake_containerd *f = ctx;
	struct fake_call *c = h2_stream_user(st);

	if (f->subscriber == c)
		f->subscriber = NULL;
	grpc_reader_release(&c->rd);
	buf_release(&c->later);
	free(c);
}

static void fake_on_conn_closed(void *ctx, struct h2_conn *conn)
{
	struct fake_containerd *f = ctx;

	for (size_t i = 0; i < FAKE_MAX; i++)
		if (f->conns[i] == conn)
			f->conns[i] = NULL;
}

static const struct h2_ops fake_ops = { .request = fake_on_request,
					.data = fake_on_data,
					.end = fake_on_end,
					.drained = fake_on_drained,
					.stream_closed = fake_on_stream_closed,
					.conn_closed = fake_on_conn_closed };

static int fake_on_accept(sd_event_source *s, int fd, uint32_t ev, void *ctx)
{
	struct fake_containerd *f = ctx;
	int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	size_t i = 0;

	(void)s;
	(void)ev;
	if (conn < 0)
		return 0;
	while (i < FAKE_MAX && f->conns[i])
		i++;
	assert_true(i < FAKE_MAX);
	assert_int_equal(
		h2_open(loop_event(f->loop), conn, &fake_ops, f, &f->conns[i]),
		0);
	return 0;
}

/* ---- its thread ---- */

static void fake_run_job(struct loop_post *p)
{
	struct fake_containerd *f =
		container_of(p, struct fake_containerd, post);

	f->job(f);
	(void)pthread_mutex_lock(&f->lock);
	f->job = NULL;
	(void)pthread_cond_signal(&f->done);
	(void)pthread_mutex_unlock(&f->lock);
}

static void *fake_main(void *arg)
{
	struct fake_containerd *f = arg;

	while (!f->quits)
		assert_int_equal(loop_turn(f->loop, 1000), 0);
	return NULL;
}

/* Has its thread run @job, and waits for it. */
static inline void fake_do(struct fake_containerd *f,
			   void (*job)(struct fake_containerd *f))
{
	(void)pthread_mutex_lock(&f->lock);
	f->job = job;
	loop_post(f->loop, &f->post);
	while (f->job)
		(void)pthread_cond_wait(&f->done, &f->lock);
	(void)pthread_mutex_unlock(&f->lock);
}

static void fake_send_event(struct fake_containerd *f)
{
	struct fake_call *c = f->subscriber;

	/* Nobody listens: as with the real one, it is lost. */
	if (!c) {
		buf_release(&f->event);
		return;
	}
	for (int i = 0; c->sending && i < 1000; i++)
		assert_int_equal(loop_turn(f->loop, 10), 0);
	assert_false(c->sending);
	c->sending = true;
	h2_send(c->st, &f->event);
}

/* An event; @name NULL: what it says makes no sense. */
static inline void fake_emit(struct fake_containerd *f, const char *topic,
			     const char *ns, const char *name)
{
	Containerd__Envelope ev = CONTAINERD__ENVELOPE__INIT;
	Containerd__EventBody body = CONTAINERD__EVENT_BODY__INIT;
	Containerd__ImageEvent ie = CONTAINERD__IMAGE_EVENT__INIT;
	uint8_t packed[256] = { 0xff };

	if (name)
		ie.name = (char *)(uintptr_t)name;
	ev.topic = (char *)(uintptr_t)topic;
	ev.namespace_ = (char *)(uintptr_t)ns;
	ev.event = &body;
	body.value.data = packed;
	body.value.len = name ? containerd__image_event__pack(&ie, packed) : 1;
	fake_pack(&f->event, &ev.base);
	fake_do(f, fake_send_event);
}

static void fake_listen(struct fake_containerd *f)
{
	f->listen_fd =
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(f->listen_fd >= 0);
	(void)unlink(f->addr.sun_path);
	assert_int_equal(bind(f->listen_fd, (struct sockaddr *)&f->addr,
			      sizeof(f->addr)),
			 0);
	assert_int_equal(listen(f->listen_fd, 8), 0);
	assert_true(sd_event_add_io(loop_event(f->loop), &f->accepting,
				    f->listen_fd, EPOLLIN, fake_on_accept,
				    f) >= 0);
}

/* All connections end, and nobody listens. */
static void fake_hang_up(struct fake_containerd *f)
{
	f->accepting = sd_event_source_disable_unref(f->accepting);
	if (f->listen_fd >= 0)
		(void)close(f->listen_fd);
	f->listen_fd = -1;
	(void)unlink(f->addr.sun_path);
	for (size_t i = 0; i < FAKE_MAX; i++)
		h2_close(f->conns[i]);
}

static void fake_quit(struct fake_containerd *f)
{
	fake_hang_up(f);
	f->quits = true;
}

/* @path: of its socket. It listens after fake_do(f, fake_listen). */
static inline void fake_init(struct fake_containerd *f, const char *path)
{
	struct err e = ERR_INIT;

	memset(f, 0, sizeof(*f));
	f->addr.sun_family = AF_UNIX;
	assert_true(strlen(path) < sizeof(f->addr.sun_path));
	memcpy(f->addr.sun_path, path, strlen(path));
	f->listen_fd = -1;
	f->post.fn = fake_run_job;
	(void)pthread_mutex_init(&f->lock, NULL);
	(void)pthread_cond_init(&f->done, NULL);
	assert_int_equal(loop_new(&f->loop, &e), 0);
	assert_int_equal(pthread_create(&f->thread, NULL, fake_main, f), 0);
}

static inline void fake_release(struct fake_containerd *f)
{
	fake_do(f, fake_quit);
	(void)pthread_join(f->thread, NULL);
	loop_free(f->loop);
	for (size_t i = 0; i < FAKE_MAX; i++)
		free(f->contents[i].bytes);
	buf_release(&f->odd);
	buf_release(&f->event);
	(void)pthread_cond_destroy(&f->done);
	(void)pthread_mutex_destroy(&f->lock);
}

#endif
