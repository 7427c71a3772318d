/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics over TCP; see metrics_http.h. */
#include "plugin/metrics_http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netdb.h>
#include <signal.h>
#include <string.h>

#include "base/io.h"
#include "base/metrics.h"

#define CONNECTIONS_MAX 16u
#define SILENCE_S 10u
#define CONNECTION_BYTES ((size_t)16 * 1024)
#define STACK_BYTES ((size_t)256 * 1024)

struct metrics_http {
	struct MHD_Daemon *daemon;
};

int metrics_http_parse(const char *address, struct sockaddr_storage *ret,
		       socklen_t *ret_len, struct err *e)
{
	const struct addrinfo hints = { .ai_flags =
						AI_NUMERICHOST | AI_NUMERICSERV,
					.ai_socktype = SOCK_STREAM };
	const char *colon = strrchr(address, ':');
	struct addrinfo *found = NULL;
	bool v6 = address[0] == '[' && colon && colon[-1] == ']';
	char host[64];
	size_t len = colon ? (size_t)(colon - address) : 0;

	if (len < 1 + 2u * v6 || len >= sizeof(host) || !colon[1] ||
	    strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    strtoul(colon + 1, NULL, 10) > UINT16_MAX)
		goto invalid;
	(void)snprintf(host, sizeof(host), "%.*s", (int)(len - 2u * v6),
		       address + v6);
	if (!!strchr(host, ':') != v6 ||
	    getaddrinfo(host, colon + 1, &hints, &found) != 0)
		goto invalid;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, found->ai_addr, found->ai_addrlen);
	*ret_len = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
invalid:
	return err_set(
		e, ERR_INVALID,
		"'%.80s' is not an IP address and a port, as in 127.0.0.1:9099 or [::1]:9099",
		address);
}

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status,
			      const char *type, void *p, size_t len,
			      enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(len, p, mode);
	enum MHD_Result ok = MHD_NO;

	if (!r) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(p);
		return MHD_NO;
	}
	if (MHD_add_response_header(r, "Content-Type", type) == MHD_YES)
		ok = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return ok;
}

static enum MHD_Result answer_text(struct MHD_Connection *c, unsigned status,
				   const char *text)
{
	return answer(c, status, "text/plain", (void *)text, strlen(text),
		      MHD_RESPMEM_MUST_COPY);
}

/* Called once with the headers, and with the body of a request that has one. */
static enum MHD_Result
on_request(void *ctx unused_arg, struct MHD_Connection *c, const char *url,
	   const char *method, const char *version unused_arg,
	   const char *body unused_arg, size_t *body_len unused_arg,
	   void **state unused_arg)
{
	struct buf b = { 0 };

	if (strcmp(url, METRICS_PATH) != 0)
		return answer_text(c, MHD_HTTP_NOT_FOUND,
				   "only " METRICS_PATH " is here\n");
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return answer_text(c, MHD_HTTP_METHOD_NOT_ALLOWED,
				   "only GET is understood\n");
	if (metrics_write(&b) < 0) {
		buf_release(&b);
		return MHD_NO;
	}
	return answer(c, MHD_HTTP_OK, METRICS_CONTENT_TYPE, b.p, b.len,
		      MHD_RESPMEM_MUST_FREE);
}

static int listen_on(const char *address, struct err *e)
{
	struct sockaddr_storage sa;
	socklen_t len;
	int one = 1;

	if (metrics_http_parse(address, &sa, &len, e) < 0)
		return -1;
	owned(fd) int fd = socket(
		sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (const struct sockaddr *)&sa, len) < 0 ||
	    listen(fd, CONNECTIONS_MAX) < 0)
		return err_sys(e, -errno, "serve metrics on '%s'", address);
	return take_fd(&fd);
}

int metrics_http_open(const char *address, struct metrics_http **ret,
		      struct err *e)
{
	owned(mem) struct metrics_http *m = calloc(1, sizeof(*m));
	owned(fd) int fd = listen_on(address, e);
	sigset_t all, old;

	if (fd < 0)
		return -1;
	if (!m)
		return err_sys(e, -ENOMEM, "serve metrics");
	/* Signals are for the loop thread only. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	m->daemon = MHD_start_daemon(
		MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_request, NULL,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, SILENCE_S,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES,
		MHD_OPTION_THREAD_STACK_SIZE, STACK_BYTES, MHD_OPTION_END);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!m->daemon)
		return err_set(e, ERR_INTERNAL, "start the server of metrics");
	(void)take_fd(&fd); /* the server closes it */
	*ret = take_ptr(&m);
	return 0;
}

void metrics_http_close(struct metrics_http *m)
{
	if (!m)
		return;
	MHD_stop_daemon(m->daemon);
	free(m);
}
