/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verityctl: commands, their options, and the only exit codes:
 *
 *	0   answered; pull-status: all is here; doctor: no problem; scrub: nothing
 *	    bad
 *	1   no daemon there, or no usable answer; pull-status: bad or unknown;
 *	    doctor: a problem; scrub: something is, or was, bad
 *	2   wrong command line
 *	3   pull-status --no-wait: not all is here yet
 */
#include <getopt.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "plugin/ctl_client.h"
#include "plugin/ctl_doctor.h"
#include "plugin/ctl_ls.h"
#include "plugin/ctl_pull_status.h"
#include "plugin/ctl_scrub.h"
#include "plugin/ctl_status.h"
#include "plugin/ctl_text.h"

#define DEFAULT_RUN "/run/verity-snapshotter"

enum exit_code {
	EXIT_ANSWERED = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NOT_YET = 3,
};

/* Options that only some commands have, one bit each. */
enum {
	OPT_JSON = 1,
	OPT_NO_WAIT = 2,
	OPT_PROVEN = 4,
	OPT_CONFIG = 8,
	OPT_CONTAINERD = 16,
};

struct args {
	const char *run;
	const char *config, *containerd; /* NULL: not given */
	const char *image; /* NULL: not given */
	unsigned opts; /* given */
	const struct command *command;
};

struct command {
	const char *name;
	unsigned opts; /* known */
	bool takes_image, needs_image;
	/* An exit code, or -1 with @e. */
	int (*run)(const struct args *a, struct err *e);
};

static void print_help(void)
{
	(void)puts(
		"usage: verityctl [--run DIR] COMMAND\n"
		"\n"
		"  status [--json]   the daemon, and every layer: state, why it is not lazy,\n"
		"                    bytes that are here, readers that wait\n"
		"  pull-status [--json] [--no-wait] [--proven] IMAGE\n"
		"                    how much of an image is here, until all of it is;\n"
		"                    --no-wait: now; --proven: until it is proven, too\n"
		"  ls [--json] [IMAGE]\n"
		"                    the images that containerd knows: which of them are\n"
		"                    lazy, and why not; with IMAGE only those of this name\n"
		"  doctor [--json] [--config FILE] [--containerd SOCKET] [IMAGE]\n"
		"                    what keeps pulls from being lazy, or from working, and\n"
		"                    what to do; with IMAGE also whether its registry answers\n"
		"  scrub [--json] [--no-wait] [IMAGE]\n"
		"                    read all that is complete again, or an image; what is bad\n"
		"                    is fetched again; --no-wait: go on without looking on\n"
		"  metrics           counters and durations, in Prometheus' text format\n"
		"\n"
		"  --run DIR         run-time files of the daemon (" DEFAULT_RUN
		")\n"
		"  --help, --version\n"
		"\n"
		"Exit status: 0 good, 1 not, 2 wrong command line, 3 not yet (--no-wait).");
}

static int bad_usage(const char *what, const char *name)
{
	(void)fprintf(stderr, "verityctl: %s%s (see --help)\n", what, name);
	return EXIT_USAGE;
}

static int run_status(const struct args *a, struct err *e)
{
	owned(json) struct json_object *doc = NULL;
	owned(buf) struct buf answer = { 0 };

	if (ctl_ask(a->run, "status\n", &answer, &doc, e) < 0)
		return -1;
	if (a->opts & OPT_JSON)
		(void)fwrite(answer.p, 1, answer.len, stdout);
	else if (ctl_status_print(doc, stdout, e) < 0)
		return -1;
	if (fflush(stdout) != 0 || ferror(stdout))
		return err_sys(e, -errno, "write the answer");
	return EXIT_ANSWERED;
}

static int run_pull_status(const struct args *a, struct err *e)
{
	const struct pull_opts o = {
		.run = a->run,
		.image = a->image,
		.json = a->opts & OPT_JSON,
		.no_wait = a->opts & OPT_NO_WAIT,
		.until_proven = a->opts & OPT_PROVEN,
		.out = stdout,
	};
	enum pull_state st;

	if (pull_status(&o, &st, e) < 0)
		return -1;
	switch (st) {
	case PULL_UNKNOWN:
		return err_set(e, ERR_UNAVAILABLE,
			       "no layer of '%s' is here by that name; was it "
			       "pulled with this snapshotter, and by no other "
			       "name before?",
			       a->image);
	case PULL_BAD:
		return EXIT_FAILED;
	case PULL_FETCHING:
		return EXIT_NOT_YET;
	case PULL_COMPLETE:
		return o.until_proven ? EXIT_NOT_YET : EXIT_ANSWERED;
	default:
		return EXIT_ANSWERED;
	}
}

static int run_ls(const struct args *a, struct err *e)
{
	const struct ls_opts o = { .run = a->run,
				   .image = a->image,
				   .json = a->opts & OPT_JSON,
				   .out = stdout };

	return ctl_ls(&o, e) < 0 ? -1 : EXIT_ANSWERED;
}

static int run_doctor(const struct args *a, struct err *e)
{
	const struct doctor_opts o = { .run = a->run,
				       .config = a->config,
				       .containerd = a->containerd,
				       .image = a->image };
	owned(json) struct json_object *doc = NULL;
	struct doctor d;
	bool bad;

	if (doctor_examine(&o, &d, e) < 0)
		return -1;
	bad = d.n[FINDING_PROBLEM] > 0;
	if (a->opts & OPT_JSON) {
		doc = doctor_json(&d);
		(void)fprintf(stdout, "%s\n",
			      doc ? json_object_to_json_string(doc) : "");
	} else {
		doctor_print(&d, stdout);
	}
	doctor_release(&d);
	if (a->opts & OPT_JSON && !doc)
		return err_sys(e, -ENOMEM, "findings");
	if (fflush(stdout) != 0 || ferror(stdout))
		return err_sys(e, -errno, "write the findings");
	return bad ? EXIT_FAILED : EXIT_ANSWERED;
}

static int run_scrub(const struct args *a, struct err *e)
{
	const struct scrub_opts o = {
		.run = a->run,
		.image = a->image,
		.json = a->opts & OPT_JSON,
		.no_wait = a->opts & OPT_NO_WAIT,
		.out = stdout,
	};
	bool bad = false;

	if (ctl_scrub(&o, &bad, e) < 0)
		return -1;
	return bad ? EXIT_FAILED : EXIT_ANSWERED;
}

static int run_metrics(const struct args *a, struct err *e)
{
	owned(buf) struct buf answer = { 0 };

	if (ctl_ask_text(a->run, "metrics\n", &answer, e) < 0)
		return -1;
	if (fwrite(answer.p, 1, answer.len, stdout) != answer.len ||
	    fflush(stdout) != 0)
		return err_sys(e, -errno, "write the answer");
	return EXIT_ANSWERED;
}

static const struct command commands[] = {
	{ "doctor", OPT_JSON | OPT_CONFIG | OPT_CONTAINERD, true, false,
	  run_doctor },
	{ "ls", OPT_JSON, true, false, run_ls },
	{ "status", OPT_JSON, false, false, run_status },
	{ "scrub", OPT_JSON | OPT_NO_WAIT, true, false, run_scrub },
	{ "metrics", 0, false, false, run_metrics },
	{ "pull-status", OPT_JSON | OPT_NO_WAIT | OPT_PROVEN, true, true,
	  run_pull_status },
};

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

/* -1: go on; else the exit code. */
static int parse_words(int argc, char **argv, struct args *a)
{
	const struct command *c;

	if (argc == 0)
		return bad_usage("a command is missing", "");
	c = find_command(argv[0]);
	if (!c)
		return bad_usage("unknown command: ", argv[0]);
	if (c->takes_image && argc > 1)
		a->image = argv[1];
	if (argc > 1 + c->takes_image)
		return bad_usage("too many arguments: ",
				 argv[1 + c->takes_image]);
	if (c->needs_image && !a->image)
		return bad_usage("an image is missing behind ", c->name);
	if (a->opts & ~c->opts)
		return bad_usage("an option given has no meaning for ",
				 c->name);
	a->command = c;
	return -1;
}

/* -1: go on; else the exit code. */
static int parse_args(int argc, char **argv, struct args *a)
{
	static const struct option options[] = {
		{ "run", required_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ "no-wait", no_argument, NULL, 'n' },
		{ "proven", no_argument, NULL, 'p' },
		{ "config", required_argument, NULL, 'c' },
		{ "containerd", required_argument, NULL, 'd' },
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
			a->opts |= OPT_JSON;
			break;
		case 'n':
			a->opts |= OPT_NO_WAIT;
			break;
		case 'p':
			a->opts |= OPT_PROVEN;
			break;
		case 'c':
			a->opts |= OPT_CONFIG;
			a->config = optarg;
			break;
		case 'd':
			a->opts |= OPT_CONTAINERD;
			a->containerd = optarg;
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
	return parse_words(argc - optind, argv + optind, a);
}

int main(int argc, char **argv)
{
	struct args a = { .run = DEFAULT_RUN };
	struct err e = ERR_INIT;
	int r = parse_args(argc, argv, &a);

	if (r >= 0)
		return r;
	r = a.command->run(&a, &e);
	if (r >= 0)
		return r;
	(void)fprintf(stderr, "verityctl: %s\n", e.msg);
	return EXIT_FAILED;
}
