/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scripted registry (registry.py) as a child of a unit test, with a layout
 * of two blobs. Include after <cmocka.h>. It dies with the test.
 */
#ifndef TESTS_LIB_REGSERVER_H
#define TESTS_LIB_REGSERVER_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <json-c/json.h>
#include <openssl/sha.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/fs.h"
#include "base/io.h"

#define REG_BIG (1024 * 1024 + 17)
#define REG_SMALL 1000
#define REG_REPO "lib/app"

/* The bytes of both blobs: the small one is the beginning of the big one. */
struct regdata {
	char dir[64]; /* a folder of the test's own */
	uint8_t *p;
	struct digest big, small;
};

struct regserver {
	pid_t pid;
	int port;
};

static inline int regdata_put(struct regdata *d, size_t len, struct digest *ret)
{
	char path[256];
	int fd, r;

	SHA256(d->p, len, ret->b);
	(void)snprintf(path, sizeof(path), "%s/layout/blobs/sha256/%s", d->dir,
		       digest_str(ret).s + 7);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	r = write_full(fd, d->p, len);
	(void)close(fd);
	return r;
}

static inline int regdata_make(struct regdata *d)
{
	static const char index[] = "{\"schemaVersion\":2,\"manifests\":[]}";
	uint32_t x = 2463534242u;
	char path[128];

	memset(d, 0, sizeof(*d));
	memcpy(d->dir, "/tmp/vs-unit-XXXXXX", 20);
	if (!mkdtemp(d->dir))
		return -errno;
	d->p = malloc(REG_BIG);
	if (!d->p)
		return -ENOMEM;
	for (size_t i = 0; i < REG_BIG; i++) {
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		d->p[i] = (uint8_t)x;
	}
	(void)snprintf(path, sizeof(path), "%s/layout/blobs/sha256", d->dir);
	if (mkdir_parents(path, 0755) < 0 ||
	    regdata_put(d, REG_BIG, &d->big) < 0 ||
	    regdata_put(d, REG_SMALL, &d->small) < 0)
		return -1;
	(void)snprintf(path, sizeof(path), "%s/layout/index.json", d->dir);
	return write_file_atomic(AT_FDCWD, path, index, sizeof(index) - 1,
				 0644);
}

static inline void regdata_drop(struct regdata *d)
{
	owned(fd) int tmp = open_dir(AT_FDCWD, "/tmp");

	if (d->dir[0] && remove_tree(tmp, d->dir + strlen("/tmp/")) < 0)
		print_error("left behind: %s\n", d->dir);
	free(d->p);
	d->p = NULL;
}

static inline void regserver_exec(const struct regdata *d, const char *ports,
				  const char *const *more)
{
	char script[256], root[128];
	const char *argv[32] = { "python3",    script, "--port", "0",
				 "--portfile", ports,  "--root", root };
	size_t n = 8;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)snprintf(script, sizeof(script), "%.*sregistry.py",
		       (int)(strlen(__FILE__) - strlen("regserver.h")),
		       __FILE__);
	(void)snprintf(root, sizeof(root), REG_REPO "=%s/layout", d->dir);
	for (; more && *more && n + 1 < ARRAY_LEN(argv); more++)
		argv[n++] = *more;
	argv[n] = NULL;
	(void)execvp(argv[0], (char *const *)(uintptr_t)argv);
	_exit(127);
}

/* @more: further arguments, NULL-terminated; may be NULL */
static inline int regserver_start(struct regserver *s, const struct regdata *d,
				  const char *const *more)
{
	static int count;
	char ports[128], *text;

	(void)snprintf(ports, sizeof(ports), "%s/port.%d", d->dir, count++);
	s->port = 0;
	s->pid = fork();
	if (s->pid == 0)
		regserver_exec(d, ports, more);
	for (int i = 0; s->pid > 0 && i < 1000; i++) {
		if (read_file_at(AT_FDCWD, ports, 64, &text, NULL) == 0) {
			s->port = (int)strtol(text, NULL, 10);
			free(text);
			return 0;
		}
		if (waitpid(s->pid, NULL, WNOHANG) != 0)
			break;
		(void)usleep(20000);
	}
	s->pid = 0;
	return -1;
}

static inline void regserver_stop(struct regserver *s)
{
	if (s->pid <= 0)
		return;
	(void)kill(s->pid, SIGKILL);
	(void)waitpid(s->pid, NULL, 0);
	s->pid = 0;
}

/* One request without keep-alive; the body of the answer. */
static inline int regserver_talk(struct regserver *s, const char *method,
				 const char *path, const char *body,
				 struct buf *ret)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)s->port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	owned(fd) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	owned(buf) struct buf out = { 0 };
	owned(buf) struct buf in = { 0 };
	char chunk[4096], *p;
	ssize_t n;

	(void)buf_addf(&out,
		       "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		       "Content-Length: %zu\r\n\r\n%s",
		       method, path, strlen(body), body);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
	    write_full(fd, out.p, out.len) < 0)
		return -1;
	while ((n = read(fd, chunk, sizeof(chunk))) > 0)
		(void)buf_add(&in, chunk, (size_t)n);
	p = in.p ? strstr((char *)in.p, "\r\n\r\n") : NULL;
	if (!p || strncmp((char *)in.p, "HTTP/1.1 200", 12) != 0)
		return -1;
	return ret ? buf_adds(ret, p + 4) : 0;
}

static inline void regserver_admin(struct regserver *s, const char *json)
{
	assert_int_equal(regserver_talk(s, "POST", "/_admin", json, NULL), 0);
}

/* json_object_put() it. */
static inline struct json_object *regserver_stats(struct regserver *s)
{
	owned(buf) struct buf b = { 0 };
	struct json_object *o;

	assert_int_equal(regserver_talk(s, "GET", "/_admin/stats", "", &b), 0);
	o = json_tokener_parse((char *)b.p);
	assert_non_null(o);
	return o;
}

static inline int64_t regserver_count(struct regserver *s, const char *what)
{
	struct json_object *o = regserver_stats(s);
	int64_t n = json_object_get_int64(json_object_object_get(o, what));

	(void)json_object_put(o);
	return n;
}

/* How many requests had the property, e.g. "auth" "Bearer" or "range" "..." */
static inline int regserver_matches(struct regserver *s, const char *key,
				    const char *value)
{
	struct json_object *o = regserver_stats(s);
	struct json_object *log = json_object_object_get(o, "log");
	int n = 0;

	for (size_t i = 0; i < json_object_array_length(log); i++) {
		struct json_object *v = json_object_object_get(
			json_object_array_get_idx(log, i), key);

		n += v && strcmp(json_object_get_string(v), value) == 0;
	}
	(void)json_object_put(o);
	return n;
}

#endif
