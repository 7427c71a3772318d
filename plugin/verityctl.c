/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verityctl: asks the daemon at RUN/control.sock. Exit codes:
 *
 *	0   answered
 *	1   no daemon there, or no usable answer
 *	2   wrong command line
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/io.h"
#include "plugin/ctl_status.h"

#define DEFAULT_RUN "/run/verity-snapshotter"
#define ANSWER_MAX (256u * 1024 * 1024)
#define PATIENCE_S 30

DEFINE_OWNED(json, struct json_object *, json_object_put)

enum exit_code { EXIT_ANSWERED = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct args {
	const char *run;
	bool json;
};

static void print_help(void)
{
	(void)puts(
		"usage: verityctl [--run DIR] COMMAND\n"
		"\n"
		"  status [--json]   the daemon, and every layer: state, why it is not lazy,\n"
		"                    bytes that are here, readers that wait\n"
		"\n"
		"  --run DIR         run-time files of the daemon (" DEFAULT_RUN
		")\n"
		"  --help, --version");
}

static int bad_usage(const char *what, const char *name)
{
	(void)fprintf(stderr, "verityctl: %s%s (see --help)\n", what, name);
	return EXIT_USAGE;
}

static int dial(const char *run, struct err *e)
{
	owned(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval patience = { .tv_sec = PATIENCE_S };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int n = snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/control.sock",
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

static int status(const struct args *a, struct err *e)
{
	owned(json) struct json_object *doc = NULL;
	owned(buf) struct buf answer = { 0 };

	if (ask(a->run, "status\n", &answer, e) < 0 ||
	    parse(&answer, &doc, e) < 0)
		return -1;
	if (a->json)
		(void)fwrite(answer.p, 1, answer.len, stdout);
	else if (ctl_status_print(doc, stdout, e) < 0)
		return -1;
	if (fflush(stdout) != 0 || ferror(stdout))
		return err_sys(e, -errno, "write the answer");
	return 0;
}

static int parse_args(int argc, char **argv, struct args *a)
{
	static const struct option options[] = {
		{ "run", required_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};
	int opt;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (opt) {
		case 'r':
			a->run = optarg;
			break;
		case 'j':
			a->json = true;
			break;
		case 'h':
			print_help();
			return EXIT_ANSWERED;
		case 'v':
			(void)puts("verityctl " VERSION);
			return EXIT_ANSWERED;
		default: /* getopt has said what is wrong */
			return EXIT_USAGE;
		}
	}
	if (optind == argc)
		return bad_usage("a command is missing", "");
	if (strcmp(argv[optind], "status") != 0)
		return bad_usage("unknown command: ", argv[optind]);
	if (optind + 1 < argc)
		return bad_usage("too many arguments: ", argv[optind + 1]);
	return -1;
}

int main(int argc, char **argv)
{
	struct args a = { .run = DEFAULT_RUN };
	struct err e = ERR_INIT;
	int r = parse_args(argc, argv, &a);

	if (r >= 0)
		return r;
	if (status(&a, &e) == 0)
		return EXIT_ANSWERED;
	(void)fprintf(stderr, "verityctl: %s\n", e.msg);
	return EXIT_FAILED;
}
