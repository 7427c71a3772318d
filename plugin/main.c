/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verity-snapshotter: arguments, what must be in place before threads start,
 * the order of starting and stopping, and the only exit codes:
 *
 *	0   asked to stop by SIGTERM or SIGINT
 *	1   could not start, or cannot go on
 *	2   wrong command line or configuration: starting again will not help
 *
 * The last line of the log names the reason. Nothing here looks at a path
 * below our own mounts: behind them may be a daemon that has died.
 */
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/io.h"
#include "base/log.h"
#include "plugin/config.h"
#include "plugin/control.h"
#include "plugin/features.h"
#include "plugin/listen.h"
#include "plugin/loop.h"
#include "plugin/metrics_http.h"
#include "plugin/paths.h"
#include "plugin/server.h"
#include "plugin/systemd.h"
#include "plugin/worker.h"
#include "snapshotter/snapshotter.h"
#include "verity/scrubber.h"
#include "verity/sealer.h"

#define NAME "verity-snapshotter"
#define DEFAULT_ROOT "/var/lib/" NAME
#define DEFAULT_RUN "/run/" NAME
#define WORKERS_MAX 16
#define GRACE_MS 5000

enum exit_code { EXIT_STOPPED = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct args {
	const char *config; /* NULL: the default, if it is there */
	const char *root, *run;
	const char *address; /* NULL: below run */
	enum log_level log_level;
	unsigned without;
};

struct daemon {
	const struct args *args;
	struct config *config;
	char *root, *run; /* canonical: mountinfo will show them like this */
	struct sealer
		*sealer; /* NULL: could not be started, or is not wanted */
	struct helper_caller *scrubber; /* NULL: could not be started */
	int root_fd, lock_fd;
	struct listener api, ctl;
	struct sockaddr_un address; /* of api */
	struct control_info info;
	struct loop *loop;
	struct workers *workers;
	struct snapshotter *snapshotter;
	struct server *server;
	struct control *control;
	struct metrics_http *metrics; /* NULL: not over TCP */
};

/* ---- command line ---- */

static void print_help(void)
{
	char known[128];

	(void)features_names(known, sizeof(known));
	(void)printf(
		"usage: " NAME " [OPTION]...\n"
		"containerd proxy snapshotter: containers start before their image is here.\n"
		"\n"
		"  --config FILE        configuration (" SYSCONFDIR "/" NAME
		"/config.toml, if present)\n"
		"  --root DIR           state (" DEFAULT_ROOT ")\n"
		"  --run DIR            run-time files (" DEFAULT_RUN ")\n"
		"  --address PATH       socket for containerd (RUN/snapshotter.sock)\n"
		"  --log-level LEVEL    error, warn, info or debug (info)\n"
		"  --without LIST       do as if the kernel lacked these features:\n"
		"                       %s\n"
		"  --help, --version\n"
		"\n"
		"It stays in the foreground and logs to stderr. Exit status: 0 stopped by\n"
		"SIGTERM or SIGINT, 1 failed, 2 wrong command line or configuration.\n",
		known);
}

static int bad_usage(const char *what)
{
	(void)fprintf(stderr, NAME ": %s (see --help)\n", what);
	return EXIT_USAGE;
}

/* -1: go on; else the exit code. */
static int parse_args(int argc, char **argv, struct args *a)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "root", required_argument, NULL, 'r' },
		{ "run", required_argument, NULL, 'u' },
		{ "address", required_argument, NULL, 'a' },
		{ "log-level", required_argument, NULL, 'l' },
		{ "without", required_argument, NULL, 'w' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};
	struct err e = ERR_INIT;
	int opt;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (opt) {
		case 'c':
			a->config = optarg;
			break;
		case 'r':
			a->root = optarg;
			break;
		case 'u':
			a->run = optarg;
			break;
		case 'a':
			a->address = optarg;
			break;
		case 'l':
			if (log_level_parse(optarg, &a->log_level) < 0)
				return bad_usage("--log-level must be error, "
						 "warn, info or debug");
			break;
		case 'w':
			if (features_parse(optarg, &a->without, &e) < 0)
				return bad_usage(e.msg);
			break;
		case 'h':
			print_help();
			return EXIT_STOPPED;
		case 'v':
			(void)puts(NAME " " VERSION);
			return EXIT_STOPPED;
		default: /* getopt has said what is wrong */
			return EXIT_USAGE;
		}
	}
	if (optind < argc)
		return bad_usage("arguments other than options are not known");
	if (!*a->root || !*a->run || (a->address && !*a->address))
		return bad_usage("an empty path is not a path");
	return -1;
}

/* ---- before threads start ---- */

/*
 * Memory. glibc gives each thread an arena of its own, and grows the limit
 * above which blocks go back to the kernel with every block freed: a daemon
 * that once inflated an image would keep that size for good.
 */
static void limit_memory(void)
{
	(void)mallopt(M_ARENA_MAX, 2);
	(void)mallopt(M_MMAP_THRESHOLD, 128 * 1024);
	(void)mallopt(M_TRIM_THRESHOLD, 128 * 1024);
}

/* Open bodies and sockets need many descriptors, the view's buffers are
 * locked. What the limits do not allow is found out where it is needed. */
static void raise_limits(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &rl) < 0)
			log_debug("limit not raised: name=nofile errno=%d",
				  errno);
	}
	rl.rlim_cur = rl.rlim_max = RLIM_INFINITY;
	if (setrlimit(RLIMIT_MEMLOCK, &rl) < 0 &&
	    getrlimit(RLIMIT_MEMLOCK, &rl) == 0) {
		rl.rlim_cur = rl.rlim_max;
		if (setrlimit(RLIMIT_MEMLOCK, &rl) < 0)
			log_debug("limit not raised: name=memlock errno=%d",
				  errno);
	}
}

/* Makes a folder with its parents; @ret is its canonical path. */
static int make_dir(const char *path, char **ret, struct err *e)
{
	owned(mem) char *abs = NULL;
	int r = path_absolute(path, &abs);

	if (r == 0)
		r = mkdir_parents(abs, 0755);
	if (r < 0)
		return err_sys(e, r, "make folder '%s'", path);
	*ret = realpath(abs, NULL);
	return *ret ? 0 : err_sys(e, -errno, "find folder '%s'", path);
}

/* Before anything is made. What links hide is found once they are resolved. */
static int check_paths(const struct args *a, struct err *e)
{
	owned(mem) char *root = NULL;
	int r = path_absolute(a->root, &root);

	if (r < 0)
		return err_sys(e, r, "root '%s'", a->root);
	if (paths_check_outside(root, a->run, "--run", e) < 0)
		return -1;
	return a->address
		       ? paths_check_outside(root, a->address, "--address", e)
		       : 0;
}

/*
 * The state holds set-user-id files of all images, old ones among them: only
 * root may walk below it. A folder that everybody can write to (/tmp), or that
 * holds other things (/var/lib), is not for us to close, and surely a mistake.
 */
static int open_root(struct daemon *d, struct err *e)
{
	struct stat st;

	if (make_dir(d->args->root, &d->root, e) < 0)
		return -1;
	d->root_fd = open_dir(AT_FDCWD, d->root);
	if (d->root_fd < 0)
		return err_sys(e, d->root_fd, "open '%s'", d->root);
	if (fstat(d->root_fd, &st) < 0)
		return err_sys(e, -errno, "look at '%s'", d->root);
	if (st.st_mode & 0002)
		return err_set(e, ERR_INVALID,
			       "root '%s' is writable by everybody", d->root);
	if (paths_check_root(d->root_fd, d->root, d->args->run,
			     d->args->address, e) < 0)
		return -1;
	if ((st.st_mode & 0777) != 0700 && fchmod(d->root_fd, 0700) < 0)
		return err_sys(e, -errno, "set the mode of '%s'", d->root);
	return 0;
}

/* One daemon for each root. The lock ends with the process, however it ends. */
static int lock_root(struct daemon *d, struct err *e)
{
	char pid[32] = "";
	int n;

	d->lock_fd = openat(d->root_fd, "lock",
			    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (d->lock_fd < 0)
		return err_sys(e, -errno, "open '%s/lock'", d->root);
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return err_sys(e, -errno, "lock '%s/lock'", d->root);
		n = (int)pread(d->lock_fd, pid, sizeof(pid) - 1, 0);
		pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
		return err_set(e, ERR_EXISTS,
			       "root '%s' is in use by another daemon (pid %s)",
			       d->root, *pid ? pid : "unknown");
	}
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(d->lock_fd, 0) < 0 ||
	    pwrite(d->lock_fd, pid, (size_t)n, 0) != n)
		return err_sys(e, -errno, "write '%s/lock'", d->root);
	return 0;
}

/* The socket for containerd at a path of our own. */
static int open_address(struct daemon *d, struct err *e)
{
	const char *address = d->args->address;
	owned(mem) char *path = NULL, *parent = NULL, *canonical = NULL;
	owned(mem) char *resolved = NULL;
	int n = address ? asprintf(&path, "%s", address)
			: asprintf(&path, "%s/snapshotter.sock", d->run);
	const char *slash;

	if (n < 0) {
		path = NULL;
		return err_sys(e, -ENOMEM, "name the socket");
	}
	slash = strrchr(path, '/');
	if (slash && slash > path) {
		parent = strndup(path, (size_t)(slash - path));
		if (!parent)
			return err_sys(e, -ENOMEM, "name the socket");
		if (make_dir(parent, &canonical, e) < 0)
			return -1;
		if (asprintf(&resolved, "%s%s", canonical, slash) < 0) {
			resolved = NULL;
			return err_sys(e, -ENOMEM, "name the socket");
		}
		if (paths_check_outside(d->root, resolved, "--address", e) < 0)
			return -1;
	}
	return listen_unix(path, &d->api, e);
}

/* The name of the socket we have, wherever it came from. */
static int read_address(struct daemon *d, struct err *e)
{
	struct sockaddr_un *sa = &d->address;
	socklen_t len = sizeof(*sa);

	if (getsockname(d->api.fd, (struct sockaddr *)sa, &len) < 0)
		return err_sys(e, -errno, "find the name of the socket");
	/* The kernel does not end a name that fills all, and an abstract one
	 * begins with a NUL. */
	sa->sun_path[sizeof(sa->sun_path) - 1] = '\0';
	if (!sa->sun_path[0])
		sa->sun_path[0] = '@';
	return 0;
}

/* Both sockets exist before the store is opened: who connects early waits. */
static int open_sockets(struct daemon *d, struct err *e)
{
	owned(mem) char *ctl = NULL;

	if (make_dir(d->args->run, &d->run, e) < 0 ||
	    paths_check_outside(d->root, d->run, "--run", e) < 0)
		return -1;
	if (systemd_take_socket(&d->api.fd, e) < 0)
		return -1;
	d->info.socket_activated = d->api.fd >= 0;
	if (!d->info.socket_activated && open_address(d, e) < 0)
		return -1;
	if (read_address(d, e) < 0)
		return -1;
	if (asprintf(&ctl, "%s/" CONTROL_SOCKET, d->run) < 0) {
		ctl = NULL;
		return err_sys(e, -ENOMEM, "name the control socket");
	}
	return listen_unix(ctl, &d->ctl, e);
}

/* ---- start, run, stop ---- */

static int status_members(void *ctx, struct buf *out)
{
	return snapshotter_status_json(ctx, out);
}

static int images_json(void *ctx, struct buf *out)
{
	return snapshotter_names_json(ctx, out);
}

static int ask_registry(void *ctx, struct registry_question *q, struct err *e)
{
	return snapshotter_ask_registry(ctx, q, e);
}

static int scrub(void *ctx, const char *what, uint64_t *ret, struct err *e)
{
	return snapshotter_scrub(ctx, what, ret, e);
}

static uint64_t view_flags(void *ctx)
{
	return snapshotter_view_flags(ctx);
}

static void describe(struct daemon *d)
{
	d->info.root = d->root;
	d->info.run = d->run;
	d->info.address = d->address.sun_path;
	d->info.policy = policy_name(d->config->policy);
	d->info.started_ms = now_ms();
	features_probe(d->root_fd, d->args->without, &d->info.features);
	d->info.features.off =
		d->config->passthrough ? 0 : FEATURES_PASSTHROUGH;
}

/* Containers need the daemon more than it needs to be watched: a port that is
 * taken does not keep it from starting. */
static void serve_metrics(struct daemon *d)
{
	const char *address = d->config->metrics_address;
	struct err e = ERR_INIT;

	if (address && metrics_http_open(address, &d->metrics, &e) < 0)
		log_err("metrics are not served over TCP: err='%s'", e.msg);
}

static int start_services(struct daemon *d, struct err *e)
{
	struct snapshotter_opts so = {
		.root = d->root,
		.run = d->run,
		.policy = d->config->policy,
		.verity = d->config->verity,
		.background_fill = d->config->background_fill,
		.prove_before_run = d->config->prove_before_run,
		.unsealed_passthrough = d->config->unsealed_passthrough,
		.prepare_budget_s = d->config->prepare_budget_s,
		.read_timeout_s = d->config->read_timeout_s,
		.sealer = d->sealer,
		.scrubber = d->scrubber,
		.scrub_rate = d->config->scrub_rate,
		.scrub_interval_s = d->config->scrub_interval_s,
		.verity_error = -d->info.features.errnos[FEATURES_VERITY],
		.seal_from_cache = d->config->seal_from_cache,
		.docker_config = d->config->docker_config,
		.hosts_dirs = d->config->hosts_dir,
		.http2 = d->config->http2,
		.containerd = d->config->containerd_address,
		.without = d->args->without | d->info.features.off,
	};
	int r;

	if (loop_new(&d->loop, e) < 0)
		return -1;
	r = workers_new(d->loop, WORKERS_MAX, &d->workers);
	if (r < 0)
		return err_sys(e, r, "start workers");
	if (snapshotter_open(&so, &d->snapshotter, e) < 0)
		return -1;
	struct server_opts sv = {
		.loop = d->loop,
		.workers = d->workers,
		.snapshotter = d->snapshotter,
		.listen_fd = take_fd(&d->api.fd),
	};
	if (server_open(&sv, &d->server, e) < 0)
		return -1;
	struct control_opts co = {
		.loop = d->loop,
		.workers = d->workers,
		.listen_fd = take_fd(&d->ctl.fd),
		.info = &d->info,
		.members = status_members,
		.images = images_json,
		.ask_registry = ask_registry,
		.scrub = scrub,
		.view_flags = view_flags,
		.ctx = d->snapshotter,
	};
	if (control_open(&co, &d->control, e) < 0)
		return -1;
	serve_metrics(d);
	return 0;
}

/* Before anything else is open: what it inherits cannot hold up a seal, or a
 * mount. Without it everything works, and nothing is sealed. */
static void start_helpers(struct daemon *d)
{
	int r = d->config->verity == VERITY_OFF
			? 0
			: sealer_new(d->config->sealer_memory, &d->sealer);

	if (r < 0)
		log_warn("sealer not started: err='%s'", strerror(-r));
	d->scrubber = scrubber_new();
	if (!d->scrubber)
		log_warn("scrubber not started: err='out of memory'");
}

static int start(struct daemon *d, struct err *e)
{
	start_helpers(d);
	if (check_paths(d->args, e) < 0 || open_root(d, e) < 0 ||
	    lock_root(d, e) < 0)
		return -1;
	if (open_sockets(d, e) < 0)
		return -1;
	describe(d);
	return start_services(d, e);
}

/* Each step may have been reached or not. Requests end before what they use:
 * calls, then workers, then the snapshotter with its mounts. */
static void stop(struct daemon *d)
{
	server_close(d->server, GRACE_MS);
	metrics_http_close(d->metrics);
	control_stop(d->control);
	workers_free(d->workers);
	snapshotter_close(d->snapshotter);
	control_close(d->control);
	sealer_free(d->sealer);
	helper_caller_free(d->scrubber);
	loop_free(d->loop);
	listener_release(&d->api);
	listener_release(&d->ctl);
	if (d->lock_fd >= 0)
		(void)close(d->lock_fd);
	if (d->root_fd >= 0)
		(void)close(d->root_fd);
	free(d->root);
	free(d->run);
	config_free(d->config);
}

static int serve(struct daemon *d, struct err *e)
{
	const char *name;

	log_info("ready: version=" VERSION
		 " address='%s' root='%s' run='%s' policy=%s",
		 d->info.address, d->root, d->run, d->info.policy);
	systemd_ready(loop_event(d->loop), "listening on %s", d->info.address);
	if (loop_run(d->loop, e) < 0)
		return -1;
	name = sigabbrev_np(loop_signal(d->loop));
	(void)snprintf(e->msg, sizeof(e->msg), "signal SIG%s",
		       name ? name : "?");
	systemd_stopping(e->msg);
	return 0;
}

/* The hidden option of processes that the daemon itself starts: see
 * verity/helper.h. NULL: not one of them. */
static const char *helper_spec(int argc, char **argv)
{
	static const char option[] = "--helper=";

	return argc == 2 && !strncmp(argv[1], option, sizeof(option) - 1)
		       ? argv[1] + sizeof(option) - 1
		       : NULL;
}

int main(int argc, char **argv)
{
	const char *helper = helper_spec(argc, argv);
	struct args args = {
		.root = DEFAULT_ROOT,
		.run = DEFAULT_RUN,
		.log_level = LOG_LEVEL_INFO,
	};
	struct daemon d = {
		.args = &args,
		.root_fd = -1,
		.lock_fd = -1,
		.api = LISTENER_INIT,
		.ctl = LISTENER_INIT,
	};
	enum exit_code code = EXIT_FAILED;
	struct err e = ERR_INIT;
	int r;

	if (helper)
		return helper_main(helper);
	r = parse_args(argc, argv, &args);
	if (r >= 0)
		return r;
	(void)umask(022);
	limit_memory();
	log_set_level(args.log_level);
	systemd_log_to_journal();
	raise_limits();
	if (config_load(args.config, &d.config, &e) < 0)
		code = EXIT_USAGE;
	else if (start(&d, &e) == 0 && serve(&d, &e) == 0)
		code = EXIT_STOPPED;
	stop(&d);
	systemd_log_last_lines();
	if (code == EXIT_STOPPED)
		log_info("stopped: reason='%s'", e.msg);
	else
		log_err("stopped: reason='%s'", e.msg);
	return code;
}
