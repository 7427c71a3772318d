/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of plugin/server and plugin/call: a server with a real loop,
 * real workers and a real socket over a fake snapshotter, and one client. To
 * be included behind cmocka by one source file of a program.
 */
#ifndef TESTS_LIB_SERVER_WORLD_H
#define TESTS_LIB_SERVER_WORLD_H

#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "plugin/server.h"
#include "proto/snapshots.pb-c.h"
#include "rpc/grpc.h"
#include "tests/lib/fake_snapshotter.h"
#include "tests/lib/h2_client.h"

#define PB(x) Containerd__Services__Snapshots__V1__##x
#define pb_type(x) (&containerd__services__snapshots__v1__##x##__descriptor)
#define pb_init(x, p) containerd__services__snapshots__v1__##x##__init(p)

#define N_WORKERS 4
#define GRACE_MS 300

/* What each test has: a server, and one client on a connection to it. */
struct fixture {
	struct loop *loop;
	struct workers *workers;
	struct snapshotter fake;
	struct server *server;
	struct sockaddr_un addr;
	socklen_t addr_len;
	struct client client;
};

static int connect_to(struct fixture *f)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&f->addr, f->addr_len),
			 0);
	return fd;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err e = ERR_INIT;
	struct server_opts o;

	assert_non_null(f);
	fake_init(&f->fake);
	assert_int_equal(loop_new(&f->loop, &e), 0);
	assert_int_equal(workers_new(f->loop, N_WORKERS, &f->workers), 0);
	o = (struct server_opts){ .loop = f->loop,
				  .workers = f->workers,
				  .snapshotter = &f->fake };
	o.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(o.listen_fd >= 0);
	/* An abstract name that the kernel chooses: nothing to clean up. */
	f->addr.sun_family = AF_UNIX;
	assert_int_equal(bind(o.listen_fd, (struct sockaddr *)&f->addr,
			      sizeof(sa_family_t)),
			 0);
	f->addr_len = sizeof(f->addr);
	assert_int_equal(getsockname(o.listen_fd, (struct sockaddr *)&f->addr,
				     &f->addr_len),
			 0);
	assert_int_equal(listen(o.listen_fd, 64), 0);
	assert_int_equal(server_open(&o, &f->server, &e), 0);
	client_open(&f->client, f->loop, connect_to(f), false);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	fake_unblock(&f->fake);
	client_close(&f->client);
	server_close(f->server, GRACE_MS);
	workers_free(f->workers);
	loop_free(f->loop);
	assert_int_equal(f->fake.n_finished, f->fake.n_begun);
	fake_release(&f->fake);
	free(f);
	return 0;
}

static void start_stat(struct client *c, struct reply *r, char *key,
		       const char *timeout)
{
	PB(StatSnapshotRequest) rq;

	pb_init(stat_snapshot_request, &rq);
	rq.key = key;
	client_call(c, r, "Stat", &rq, timeout);
}

static void start_prepare(struct client *c, struct reply *r, char *key,
			  const char *timeout)
{
	PB(PrepareSnapshotRequest) rq;

	pb_init(prepare_snapshot_request, &rq);
	rq.key = key;
	client_call(c, r, "Prepare", &rq, timeout);
}

/* Stat of @key gives @code at once. */
static void stat_gives(struct client *c, const char *key, int code)
{
	struct reply r;
	char k[64];

	(void)snprintf(k, sizeof(k), "%s", key);
	start_stat(c, &r, k, NULL);
	client_until(c, r.closed);
	assert_int_equal(r.http, 200);
	assert_int_equal(r.grpc, code);
	reply_release(&r);
}

#define test_case(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
