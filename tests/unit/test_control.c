/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/control over real sockets; also plugin/listen and plugin/features. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "fuse/view.h"
#include "plugin/control.h"
#include "plugin/listen.h"
#include "snapshotter/snapshotter.h"

DEFINE_OWNED(json, struct json_object *, json_object_put)

struct fixture {
	char dir[32], path[64];
	struct loop *loop;
	struct workers *workers;
	struct control_info info;
	struct control *control;
	/* what the members callback does */
	size_t n_padding;
	int result;
	unsigned sleep_ms;
	/* a question about a registry, until answer() */
	struct registry_question *question;
};

static int members(void *ctx, struct buf *out)
{
	struct fixture *f = ctx;

	(void)usleep(f->sleep_ms * 1000);
	(void)buf_adds(out, "\"layers\":[],\"padding\":\"");
	for (size_t i = 0; i < f->n_padding; i++)
		(void)buf_adds(out, "0123456789abcdef");
	(void)buf_adds(out, "\"");
	return f->result;
}

static int ask_registry(void *ctx, struct registry_question *q, struct err *e)
{
	struct fixture *f = ctx;

	if (!strcmp(q->image, "A b"))
		return err_set(e, ERR_INVALID, "'A b' is no image");
	(void)snprintf(q->host, sizeof(q->host), "r.example");
	assert_null(f->question);
	f->question = q;
	return 0;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct listener l = LISTENER_INIT;
	struct err e = ERR_INIT;

	assert_non_null(f);
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/vs-control-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->path, sizeof(f->path), "%s/control.sock", f->dir);
	if (listen_unix(f->path, &l, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(loop_new(&f->loop, &e), 0);
	assert_int_equal(workers_new(f->loop, 2, &f->workers), 0);
	f->info = (struct control_info){
		.root = "/r\"oot",
		.run = "/run",
		.address = "/a",
		.policy = "prefer-lazy",
		.features = { .without = SNAPSHOTTER_WITHOUT_FUSE,
			      .errnos = { 0, EOPNOTSUPP } },
		.started_ms = now_ms() - 61000,
	};
	struct control_opts o = {
		.loop = f->loop,
		.workers = f->workers,
		.listen_fd = l.fd,
		.info = &f->info,
		.members = members,
		.ask_registry = ask_registry,
		.ctx = f,
	};
	if (control_open(&o, &f->control, &e) < 0)
		fail_msg("%s", e.msg);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	control_close(f->control);
	workers_free(f->workers);
	loop_free(f->loop);
	(void)unlink(f->path);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

static int dial(const struct fixture *f)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	(void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", f->path);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void turn(struct fixture *f)
{
	assert_int_equal(loop_turn(f->loop, 10), 0);
}

/* Turns the loop until the peer has closed; gives what it said. */
static void read_all(struct fixture *f, int fd, struct buf *out)
{
	uint64_t end = now_ms() + 10000;
	char chunk[4096];
	ssize_t n;

	while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
		assert_true(now_ms() < end);
		if (n < 0) {
			assert_int_equal(errno, EAGAIN);
			turn(f);
		} else {
			assert_int_equal(buf_add(out, chunk, (size_t)n), 0);
		}
	}
}

static void ask(struct fixture *f, const char *request, struct buf *out)
{
	owned(fd) int fd = dial(f);

	assert_int_equal(write(fd, request, strlen(request)), strlen(request));
	read_all(f, fd, out);
}

static const char *member(struct json_object *o, const char *name)
{
	struct json_object *v = NULL;

	if (!json_object_object_get_ex(o, name, &v))
		fail_msg("no member '%s'", name);
	return json_object_get_string(v);
}

static void status_is_one_document(void **state)
{
	struct fixture *f = *state;
	owned(buf) struct buf b = { 0 };
	owned(json) struct json_object *doc = NULL;
	struct json_object *list, *ft;

	ask(f, "status\n", &b);
	doc = json_tokener_parse((char *)b.p);
	assert_non_null(doc);
	assert_string_equal(member(doc, "version"), VERSION);
	assert_string_equal(member(doc, "root"), "/r\"oot");
	assert_string_equal(member(doc, "uptime_s"), "61");
	assert_string_equal(member(doc, "socket_activated"), "false");
	assert_string_equal(member(doc, "layers"), "[ ]");
	assert_true(json_object_object_get_ex(doc, "features", &list));
	ft = json_object_array_get_idx(list, 0);
	assert_string_equal(member(ft, "name"), "fuse");
	assert_string_equal(member(ft, "state"), "off");
	ft = json_object_array_get_idx(list, 1);
	assert_string_equal(member(ft, "state"), "absent");
	assert_memory_equal(member(ft, "why"), "Operation not supported", 23);
	ft = json_object_array_get_idx(list, FEATURES_N_PROBED);
	assert_string_equal(member(ft, "state"), "auto");
	assert_string_equal(member(ft, "why"), "");
}

static void status_survives_small_pieces(void **state)
{
	struct fixture *f = *state;
	owned(buf) struct buf b = { 0 };
	owned(fd) int fd = dial(f);

	for (const char *p = "status\n"; *p; p++) {
		assert_int_equal(write(fd, p, 1), 1);
		turn(f);
	}
	read_all(f, fd, &b);
	assert_memory_equal(b.p, "{\"version\"", 10);
}

/* More than a socket buffer holds, to a client that reads late. */
static void status_of_megabytes_arrives_whole(void **state)
{
	struct fixture *f = *state;
	owned(buf) struct buf b = { 0 };
	owned(fd) int fd = dial(f);

	f->n_padding = 128 * 1024;
	assert_int_equal(write(fd, "status\n", 7), 7);
	for (int i = 0; i < 30; i++)
		turn(f);
	read_all(f, fd, &b);
	assert_true(b.len > f->n_padding * 16);
	assert_memory_equal(b.p + b.len - 4, "f\"}\n", 4);
}

static void status_failure_is_an_error_document(void **state)
{
	struct fixture *f = *state;
	owned(buf) struct buf b = { 0 };

	f->result = -EIO;
	ask(f, "status\n", &b);
	assert_string_equal((char *)b.p,
			    "{\"error\":\"the status could not be read\"}\n");
}

static void unknown_requests_are_named(void **state)
{
	struct fixture *f = *state;
	owned(buf) struct buf a = { 0 }, b = { 0 };
	char line[4097];

	ask(f, "statusx\n", &a);
	assert_string_equal(
		(char *)a.p,
		"{\"error\":\"unknown request; known are: status, images, registry IMAGE, scrub all, scrub SEQ..., metrics\"}\n");
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\0';
	ask(f, line, &b);
	assert_string_equal((char *)b.p, "{\"error\":\"request too long\"}\n");
}

static const char first_line[] =
	"# HELP verity_snapshotter_build_info The version of the daemon; always 1.\n";

static void metrics_are_text(void **state)
{
	struct fixture *f = *state;
	owned(buf) struct buf b = { 0 };

	ask(f, "metrics\n", &b);
	assert_memory_equal(b.p, first_line, sizeof(first_line) - 1);
	assert_int_equal(b.p[b.len - 1], '\n');
}

/* The headers come in pieces, and are read to their end. */
static void metrics_over_http(void **state)
{
	static const char *const pieces[] = { "GE", "T /metrics HT",
					      "TP/1.1\r\nHost: a\r\n", "\r",
					      "\n" };
	struct fixture *f = *state;
	owned(buf) struct buf b = { 0 };
	owned(fd) int fd = dial(f);
	const char *body, *length;

	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		assert_int_equal(write(fd, pieces[i], strlen(pieces[i])),
				 strlen(pieces[i]));
		turn(f);
	}
	read_all(f, fd, &b);
	assert_memory_equal(b.p, "HTTP/1.1 200 OK\r\n", 17);
	body = strstr((char *)b.p, "\r\n\r\n");
	length = strstr((char *)b.p, "\r\nContent-Length: ");
	assert_non_null(body);
	assert_true(length && length < body);
	body += 4;
	assert_memory_equal(body, first_line, sizeof(first_line) - 1);
	assert_int_equal(strtoul(length + 18, NULL, 10),
			 (char *)b.p + b.len - body);
}

static void http_knows_nothing_else(void **state)
{
	static const char *const requests[] = {
		"GET / HTTP/1.1\r\n\r\n",
		"GET /metricsx HTTP/1.1\r\n\r\n",
		"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		owned(buf) struct buf b = { 0 };

		ask(f, requests[i], &b);
		assert_memory_equal(b.p, "HTTP/1.1 404 ", 13);
	}
}

/* In a thread of its own, as the registry's are. */
static void *answer_main(void *arg)
{
	struct registry_question *q = arg;

	q->done(q);
	return NULL;
}

static void answer(struct fixture *f, enum err_kind kind)
{
	struct registry_question *q = f->question;
	pthread_t thread;

	f->question = NULL;
	q->ms = 7;
	if (kind == ERR_NONE) {
		q->e.kind = ERR_NONE;
		(void)snprintf(q->by, sizeof(q->by), "http://mirror");
	} else {
		(void)err_set(&q->e, kind, "no \"way\"");
	}
	assert_int_equal(pthread_create(&thread, NULL, answer_main, q), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void ask_and_answer(struct fixture *f, enum err_kind kind,
			   struct buf *out)
{
	static const char request[] = "registry r.example/a:b\n";
	owned(fd) int fd = dial(f);

	assert_int_equal(write(fd, request, sizeof(request) - 1),
			 sizeof(request) - 1);
	while (!f->question)
		turn(f);
	assert_string_equal(f->question->image, "r.example/a:b");
	answer(f, kind);
	read_all(f, fd, out);
}

static void registry_is_asked_and_the_answer_told(void **state)
{
	struct fixture *f = *state;
	owned(buf) struct buf a = { 0 }, b = { 0 }, c = { 0 };

	ask_and_answer(f, ERR_NONE, &a);
	assert_string_equal(
		(char *)a.p,
		"{\"ok\":true,\"ms\":7,\"host\":\"r.example\",\"by\":\"http://mirror\",\"error_kind\":\"none\",\"reason\":\"\"}\n");
	ask_and_answer(f, ERR_DENIED, &b);
	assert_string_equal(
		(char *)b.p,
		"{\"ok\":false,\"ms\":7,\"host\":\"r.example\",\"by\":\"\",\"error_kind\":\"denied\",\"reason\":\"no \\\"way\\\"\"}\n");
	ask(f, "registry A b\n", &c);
	assert_string_equal((char *)c.p, "{\"error\":\"'A b' is no image\"}\n");
}

static void registry_answers_a_client_that_vanished(void **state)
{
	struct fixture *f = *state;
	owned(buf) struct buf b = { 0 };
	int fd = dial(f);

	assert_int_equal(write(fd, "registry a\n", 11), 11);
	while (!f->question)
		turn(f);
	(void)close(fd);
	turn(f);
	answer(f, ERR_NONE);
	turn(f);
	ask(f, "status\n", &b);
	assert_true(b.len > 0);
}

static void clients_that_vanish_cost_nothing(void **state)
{
	struct fixture *f = *state;
	owned(buf) struct buf b = { 0 };

	for (int i = 0; i < 100; i++) {
		int fd = dial(f);

		if (i % 2)
			assert_int_equal(write(fd, "status\n", 7), 7);
		(void)close(fd);
		turn(f);
	}
	ask(f, "status\n", &b);
	assert_true(b.len > 0);
}

static void a_full_house_waits_its_turn(void **state)
{
	struct fixture *f = *state;
	owned(buf) struct buf b = { 0 };
	int idle[40];

	for (size_t i = 0; i < ARRAY_LEN(idle); i++) {
		idle[i] = dial(f);
		turn(f);
	}
	for (size_t i = 0; i < ARRAY_LEN(idle); i++)
		(void)close(idle[i]);
	ask(f, "status\n", &b);
	assert_true(b.len > 0);
}

static void close_waits_for_a_worker(void **state)
{
	struct fixture *f = *state;
	owned(fd) int fd = dial(f);
	uint64_t start = now_ms();

	f->sleep_ms = 200;
	assert_int_equal(write(fd, "status\n", 7), 7);
	while (now_ms() - start < 100)
		turn(f);
	control_close(f->control);
	f->control = NULL;
	assert_true(now_ms() - start >= 200);
}

/* Its thread ends with the snapshotter, which is closed in between. */
static void stop_waits_for_no_registry(void **state)
{
	struct fixture *f = *state;
	owned(fd) int fd = dial(f);

	assert_int_equal(write(fd, "registry a\n", 11), 11);
	while (!f->question)
		turn(f);
	control_stop(f->control);
	assert_string_equal(f->question->image, "a");
	answer(f, ERR_CANCELLED);
	control_close(f->control);
	f->control = NULL;
}

/* ---- plugin/listen ---- */

static void listen_replaces_a_stale_socket(void **state)
{
	struct fixture *f = *state;
	struct listener dead = LISTENER_INIT, l = LISTENER_INIT;
	struct err e = ERR_INIT;
	char path[64];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/s", f->dir);
	assert_int_equal(listen_unix(path, &dead, &e), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	/* as after a crash: the file stays */
	(void)close(dead.fd);
	assert_int_equal(listen_unix(path, &l, &e), 0);
	listener_release(&l);
	assert_int_equal(access(path, F_OK), -1);
}

static void listen_refuses_a_live_socket(void **state)
{
	struct fixture *f = *state;
	struct listener live = LISTENER_INIT, l = LISTENER_INIT;
	struct err e = ERR_INIT;
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/s", f->dir);
	assert_int_equal(listen_unix(path, &live, &e), 0);
	assert_int_equal(listen_unix(path, &l, &e), -1);
	assert_int_equal(e.kind, ERR_EXISTS);
	assert_int_equal(l.fd, -1);
	assert_int_equal(access(path, F_OK), 0);
	listener_release(&live);
}

static void listen_spares_what_is_no_socket(void **state)
{
	struct fixture *f = *state;
	struct listener l = LISTENER_INIT;
	struct err e = ERR_INIT;
	char path[64], want[128];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/s", f->dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	(void)close(fd);
	assert_int_equal(listen_unix(path, &l, &e), -1);
	(void)snprintf(want, sizeof(want),
		       "'%s' is in the way and is not a socket", path);
	assert_string_equal(e.msg, want);
	assert_int_equal(unlink(path), 0);
}

static void listen_refuses_a_long_path(void **state)
{
	struct listener l = LISTENER_INIT;
	struct err e = ERR_INIT;
	char path[109];

	(void)state;
	memset(path, '/', sizeof(path));
	path[108] = '\0';
	assert_int_equal(listen_unix(path, &l, &e), -1);
	assert_int_equal(e.kind, ERR_INVALID);
	assert_non_null(strstr(e.msg, "is longer than 107 bytes"));
}

static void release_spares_the_socket_of_a_successor(void **state)
{
	struct fixture *f = *state;
	struct listener old = LISTENER_INIT, l = LISTENER_INIT;
	struct err e = ERR_INIT;
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/s", f->dir);
	assert_int_equal(listen_unix(path, &old, &e), 0);
	/* A link holds the inode: a file system may reuse its number. */
	char keep[64];

	(void)snprintf(keep, sizeof(keep), "%s/keep", f->dir);
	assert_int_equal(rename(path, keep), 0);
	assert_int_equal(listen_unix(path, &l, &e), 0);
	listener_release(&old);
	assert_int_equal(access(path, F_OK), 0);
	listener_release(&l);
	assert_int_equal(unlink(keep), 0);
}

/* ---- plugin/features ---- */

static void features_parse_knows_every_name(void **state)
{
	unsigned mask = 0;
	struct err e = ERR_INIT;
	char names[128], *p;

	(void)state;
	(void)features_names(names, sizeof(names));
	/* "a, b" for people, "a,b" for --without */
	while ((p = strchr(names, ' ')))
		memmove(p, p + 1, strlen(p));
	assert_int_equal(features_parse(names, &mask, &e), 0);
	assert_int_equal(mask, 0xf0f);
	mask = 0;
	assert_int_equal(features_parse("big-reads", &mask, &e), 0);
	assert_int_equal(mask, VIEW_WITHOUT_BIG_READS
				       << SNAPSHOTTER_WITHOUT_VIEW_SHIFT);
	assert_int_equal(features_parse("fuse,", &mask, &e), -1);
	assert_int_equal(mask, VIEW_WITHOUT_BIG_READS
				       << SNAPSHOTTER_WITHOUT_VIEW_SHIFT);
	assert_int_equal(features_parse("fus", &mask, &e), -1);
	assert_string_equal(
		e.msg,
		"unknown feature 'fus'; known are: fuse, dontcache, "
		"verity, page-cache-hints, readdirplus, resend, passthrough, big-reads");
}

#define WITH_FIXTURE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FIXTURE(status_is_one_document),
		WITH_FIXTURE(status_survives_small_pieces),
		WITH_FIXTURE(status_of_megabytes_arrives_whole),
		WITH_FIXTURE(status_failure_is_an_error_document),
		WITH_FIXTURE(unknown_requests_are_named),
		WITH_FIXTURE(metrics_are_text),
		WITH_FIXTURE(metrics_over_http),
		WITH_FIXTURE(http_knows_nothing_else),
		WITH_FIXTURE(registry_is_asked_and_the_answer_told),
		WITH_FIXTURE(registry_answers_a_client_that_vanished),
		WITH_FIXTURE(clients_that_vanish_cost_nothing),
		WITH_FIXTURE(a_full_house_waits_its_turn),
		WITH_FIXTURE(close_waits_for_a_worker),
		WITH_FIXTURE(stop_waits_for_no_registry),
		WITH_FIXTURE(listen_replaces_a_stale_socket),
		WITH_FIXTURE(listen_refuses_a_live_socket),
		WITH_FIXTURE(listen_spares_what_is_no_socket),
		cmocka_unit_test(listen_refuses_a_long_path),
		WITH_FIXTURE(release_spares_the_socket_of_a_successor),
		cmocka_unit_test(features_parse_knows_every_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
