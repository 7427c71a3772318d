/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of the control socket; see ctl_client.h. */
#include "plugin/ctl_client.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/io.h"
#include "plugin/control.h"
#include "plugin/ctl_text.h"

#define ANSWER_MAX (256u * 1024 * 1024)
#define PATIENCE_S 30

static int dial(const char *run, struct err *e)
{
	owned(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval patience = { .tv_sec = PATIENCE_S };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int n = snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/" CONTROL_SOCKET,
			 run);

	if (fd < 0)
		return err_sys(e, -errno, "make a socket");
	if (n < 0 || (size_t)n >= sizeof(sa.sun_path))
		return err_set(e, ERR_INVALID, "'%s' is too long a path", run);
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		if (errno == ENOENT || errno == ECONNREFUSED)
			return err_set(e, ERR_UNAVAILABLE,
				       "no daemon listens on '%s'; is "
				       "verity-snapshotter running, and is "
				       "--run right?",
				       sa.sun_path);
		return err_sys(e, -errno, "connect to '%s'", sa.sun_path);
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience,
			 sizeof(patience));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience,
			 sizeof(patience));
	return take_fd(&fd);
}

static int ask(const char *run, const char *request, struct buf *answer,
	       struct err *e)
{
	owned(fd) int fd = dial(run, e);
	char chunk[16384];
	ssize_t n;
	int r;

	if (fd < 0)
		return -1;
	r = write_full(fd, request, strlen(request));
	if (r < 0)
		return err_sys(e, r, "ask the daemon");
	while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return err_set(e, ERR_UNAVAILABLE,
				       "the daemon does not answer");
		if (n < 0)
			return err_sys(e, -errno, "read the answer");
		if (answer->len + (size_t)n > ANSWER_MAX)
			return err_set(e, ERR_INVALID,
				       "the answer is too long");
		if (buf_add(answer, chunk, (size_t)n) < 0)
			return err_sys(e, -ENOMEM, "read the answer");
	}
	return 0;
}

/* A whole document that is no error. */
static int parse(const struct buf *answer, struct json_object **ret,
		 struct err *e)
{
	owned(json) struct json_object *doc = NULL;
	struct json_object *text = NULL;

	if (answer->len)
		doc = json_tokener_parse((const char *)answer->p);
	if (!json_object_is_type(doc, json_type_object))
		return err_set(e, ERR_INVALID,
			       "the daemon's answer is not understood");
	if (json_object_object_get_ex(doc, "error", &text))
		return err_set(e, ERR_INVALID, "the daemon says: %s",
			       json_object_get_string(text));
	*ret = take_ptr(&doc);
	return 0;
}

int ctl_ask(const char *run, const char *request, struct buf *answer,
	    struct json_object **ret, struct err *e)
{
	if (ask(run, request, answer, e) < 0)
		return -1;
	return parse(answer, ret, e);
}

int ctl_ask_text(const char *run, const char *request, struct buf *answer,
		 struct err *e)
{
	owned(json) struct json_object *doc = NULL;

	if (ask(run, request, answer, e) < 0)
		return -1;
	if (!answer->len)
		return err_set(e, ERR_INVALID, "the daemon's answer is empty");
	/* A document can only be an error. */
	return answer->p[0] == '{' ? parse(answer, &doc, e) : 0;
}
