/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: the gRPC server over a fake snapshotter (see fake_snapshotter.h
 * for what its keys do).
 *
 *	grpcserve SOCKET ROWS
 *
 * Lists ROWS snapshots. Says "ready", ends on SIGTERM; fails if a Prepare was
 * begun and not finished, or a call is left.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/log.h"
#include "plugin/server.h"
#include "tests/lib/fake_snapshotter.h"

#define GRACE_MS 2000

static int listen_on(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof(a.sun_path))
		return -1;
	memcpy(a.sun_path, path, strlen(path) + 1);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(fd, 64) < 0)
		return -1;
	return fd;
}

int main(int argc, char **argv)
{
	static struct snapshotter fake;
	struct server_opts o = { .snapshotter = &fake };
	struct server *server = NULL;
	struct err e = ERR_INIT;

	if (argc != 3) {
		(void)fprintf(stderr, "usage: grpcserve SOCKET ROWS\n");
		return 2;
	}
	fake_init(&fake);
	fake.n_listed = (unsigned)strtoul(argv[2], NULL, 10);
	fake.message = "nothing called '100%'\nhere \xd1\x8f";
	o.listen_fd = listen_on(argv[1]);
	if (o.listen_fd < 0) {
		perror(argv[1]);
		return 1;
	}
	if (loop_new(&o.loop, &e) < 0 ||
	    workers_new(o.loop, 4, &o.workers) < 0 ||
	    server_open(&o, &server, &e) < 0) {
		log_err("cannot start: error='%s'", e.msg);
		return 1;
	}
	(void)puts("ready");
	(void)fflush(stdout);
	if (loop_run(o.loop, &e) < 0)
		log_err("loop failed: error='%s'", e.msg);
	fake_unblock(&fake);
	server_close(server, GRACE_MS);
	workers_free(o.workers);
	loop_free(o.loop);
	(void)printf("begun %u finished %u expired %u\n", fake.n_begun,
		     fake.n_finished, fake.n_expired);
	fake_release(&fake);
	return fake.n_begun == fake.n_finished ? 0 : 1;
}
