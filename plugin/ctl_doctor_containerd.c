/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor's look at containerd: the process behind its socket, what that
 * makes of its configuration, and whether it sees what the daemon mounts. Where
 * it does not run, what it would make of its configuration.
 */
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "base/io.h"
#include "fuse/mount.h"
#include "plugin/ctl_doctor_config.h"
#include "plugin/ctl_run.h"

#define DEFAULT_CONFIG "/etc/containerd/config.toml"
#define PROC_FILE_MAX (16u << 20)
#define FILES_MAX 64

struct ctd {
	pid_t pid; /* 0: does not run */
	char exe[PATH_MAX], config[PATH_MAX];
	bool config_given; /* else the default, which need not exist */
	uint64_t started_s; /* on the clock of file times; 0: not known */
	struct ctd_file files[FILES_MAX];
	size_t n_files;
};

/* ---- the process ---- */

/* Whoever called listen(). -1 with errno: nobody. */
static pid_t listener_of(const char *path)
{
	owned(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct ucred peer;
	socklen_t len = sizeof(peer);

	(void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return -1;
	return peer.pid;
}

static int read_proc(pid_t pid, const char *name, char **ret, size_t *ret_len)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return read_file_at(AT_FDCWD, path, PROC_FILE_MAX, ret, ret_len);
}

/* "-c X", "--config X", "-config=X" in what it was started with, or NULL. */
static const char *config_argument(const char *args, size_t len)
{
	const char *end = args + len;

	for (const char *a = args; a < end; a += strlen(a) + 1) {
		const char *name = a + strspn(a, "-");
		size_t n = strcspn(name, "=");
		const char *next = a + strlen(a) + 1;

		if (name == a || !((n == 1 && *name == 'c') ||
				   (n == 6 && !strncmp(name, "config", 6))))
			continue;
		if (name[n] == '=')
			return name + n + 1;
		return next < end ? next : NULL;
	}
	return NULL;
}

/* Absolute, as the process would find it. */
static void find_config(struct ctd *c)
{
	owned(mem) char *args = NULL;
	char link[64], cwd[PATH_MAX];
	const char *path = NULL;
	size_t len = 0;
	ssize_t n;

	(void)snprintf(c->config, sizeof(c->config), "%s", DEFAULT_CONFIG);
	if (!c->pid || read_proc(c->pid, "cmdline", &args, &len) < 0)
		return;
	path = config_argument(args, len);
	if (!path)
		return;
	c->config_given = true;
	(void)snprintf(link, sizeof(link), "/proc/%d/cwd", (int)c->pid);
	n = *path == '/' ? -1 : readlink(link, cwd, sizeof(cwd) - 1);
	if (n < 0)
		(void)snprintf(c->config, sizeof(c->config), "%s", path);
	else
		(void)snprintf(c->config, sizeof(c->config), "%.*s/%s", (int)n,
			       cwd, path);
}

/* Wall clock, so that it compares with the times of files. */
static uint64_t start_time(pid_t pid)
{
	owned(mem) char *stat = NULL;
	struct timespec boot, now;
	unsigned long long ticks;
	const char *p;
	long hz = sysconf(_SC_CLK_TCK);

	if (hz <= 0 || read_proc(pid, "stat", &stat, NULL) < 0)
		return 0;
	/* The name, which may hold anything, ends at the last ')'; field 22 is
	 * the 20th behind it. */
	p = strrchr(stat, ')');
	for (int i = 0; p && i < 20; i++)
		p = strchr(p + 1, ' ');
	if (!p || clock_gettime(CLOCK_BOOTTIME, &boot) < 0 ||
	    clock_gettime(CLOCK_REALTIME, &now) < 0)
		return 0;
	ticks = strtoull(p, NULL, 10);
	return (uint64_t)now.tv_sec -
	       ((uint64_t)boot.tv_sec - ticks / (unsigned long)hz);
}

static bool find_in_path(const char *name, char *out, size_t size)
{
	const char *dirs = getenv("PATH");

	for (const char *d = dirs ? dirs : "/usr/bin"; *d;) {
		size_t n = strcspn(d, ":");

		(void)snprintf(out, size, "%.*s/%s", (int)n, d, name);
		if (n && access(out, X_OK) == 0)
			return true;
		d += n + (d[n] == ':');
	}
	return false;
}

/* False: there is neither a process nor a program. */
static bool find_containerd(struct doctor *d, struct ctd *c)
{
	static const char why[] =
		"no image can be pulled and no container started";
	pid_t pid = listener_of(d->containerd);

	if (pid > 0) {
		c->pid = pid;
		c->started_s = start_time(pid);
		(void)snprintf(c->exe, sizeof(c->exe), "/proc/%d/exe",
			       (int)pid);
		doctor_ok(d, "containerd.running",
			  "containerd listens on '%s', pid %d", d->containerd,
			  (int)pid);
		return true;
	}
	doctor_add(
		d,
		&(struct finding){
			FINDING_PROBLEM, "containerd.running", why,
			"systemctl start containerd; or say where it listens:\n"
			"containerd_address = \"/run/...\"    # in the daemon's config.toml" },
		"containerd cannot be reached at '%s': %s", d->containerd,
		pid < 0 ? strerror(errno) : "it is in another pid namespace");
	return find_in_path("containerd", c->exe, sizeof(c->exe));
}

/* ---- its configuration ---- */

/* "containerd github.com/.../v2 v2.3.7-x hash" */
static void read_version(const char *text, struct ctd_config *cc)
{
	const char *p = strchr(text, ' ');
	char *end;

	p = p ? strchr(p + 1, ' ') : NULL;
	if (!p)
		return;
	p += 1 + (p[1] == 'v');
	cc->major = (unsigned)strtoul(p, &end, 10);
	cc->minor = *end == '.' ? (unsigned)strtoul(end + 1, NULL, 10) : 0;
}

static void check_version(struct doctor *d, const struct ctd *c,
			  struct ctd_config *cc)
{
	char name[] = "containerd", option[] = "--version";
	char *argv[] = { name, option, NULL };
	struct ctl_output o = { 0 };
	struct err e = ERR_INIT;

	if (ctl_run(c->exe, argv, &o, &e) < 0) {
		doctor_add(d,
			   &(struct finding){
				   FINDING_UNKNOWN, "containerd.version",
				   "what it needs depends on its version",
				   "run this as root" },
			   "containerd does not tell its version: %s", e.msg);
		return;
	}
	read_version(o.out, cc);
	ctl_output_release(&o);
	if (cc->major == 2 && cc->minor == 0)
		doctor_add(
			d,
			&(struct finding){
				FINDING_WARN, "containerd.version",
				"its transfer service tells a snapshotter nothing of layers: only clients that pull by themselves are lazy",
				"use containerd 2.1 or newer" },
			"containerd is of version 2.0");
	else
		doctor_ok(d, "containerd.version",
			  "containerd is of version %u.%u", cc->major,
			  cc->minor);
}

static void last_line(const char *text, char *out, size_t size)
{
	size_t len = strlen(text), from;

	while (len && text[len - 1] == '\n')
		len--;
	for (from = len; from && text[from - 1] != '\n'; from--)
		;
	(void)snprintf(out, size, "%.*s", (int)(len - from), text + from);
}

/* What containerd makes of its files; NULL: nothing, which is reported. */
static struct toml *load_dump(struct doctor *d, struct ctd *c)
{
	char name[] = "containerd", config[] = "config", dump[] = "dump";
	char option[] = "-c", none[] = "default";
	char *given[] = { name, option, c->config, config, dump, NULL };
	/* 1.6 starts without the default file, but cannot dump it. */
	char *by_default[] = { name, config,
			       access(c->config, F_OK) == 0 ? dump : none,
			       NULL };
	char **argv = c->config_given ? given : by_default;
	struct ctl_output o = { 0 };
	struct toml *t = NULL;
	struct err e = ERR_INIT;

	if (ctl_run(c->exe, argv, &o, &e) == 0) {
		if (WIFEXITED(o.status) && WEXITSTATUS(o.status) == 0)
			(void)!toml_parse("config dump", o.out, o.out_len, &t,
					  &e);
		else
			last_line(o.errors, e.msg, sizeof(e.msg));
		ctl_output_release(&o);
	}
	if (!t)
		doctor_add(
			d,
			&(struct finding){
				FINDING_PROBLEM, "containerd.config",
				"containerd does not start with a configuration that it cannot read",
				"containerd config dump >/dev/null    # until it is quiet" },
			"containerd's configuration in %s cannot be read: %s",
			c->config, e.msg);
	return t;
}

static void add_file(struct ctd *c, const char *path)
{
	struct ctd_file *f = &c->files[c->n_files];
	owned(mem) char *text = NULL;
	struct err e = ERR_INIT;
	size_t len = 0;

	for (size_t i = 0; i < c->n_files; i++)
		if (!strcmp(c->files[i].path, path))
			return;
	if (c->n_files == FILES_MAX ||
	    read_file_at(AT_FDCWD, path, TOML_SIZE_MAX, &text, &len) < 0)
		return;
	f->path = strdup(path);
	if (!f->path)
		return;
	/* What our reader does not know, containerd may. */
	(void)!toml_parse(path, text, len, &f->toml, &e);
	c->n_files++;
}

/* The pattern of an import: relative ones are beside the file. */
static void add_import(struct ctd *c, const char *from, const char *pattern)
{
	const char *slash = strrchr(from, '/');
	char full[PATH_MAX];
	glob_t g = { 0 };

	if (*pattern == '/' || !slash)
		(void)snprintf(full, sizeof(full), "%s", pattern);
	else
		(void)snprintf(full, sizeof(full), "%.*s/%s",
			       (int)(slash - from), from, pattern);
	if (glob(full, 0, NULL, &g) == 0)
		for (size_t i = 0; i < g.gl_pathc; i++)
			add_file(c, g.gl_pathv[i]);
	globfree(&g);
}

/* Breadth first, as containerd does. */
static void load_files(struct ctd *c)
{
	add_file(c, c->config);
	for (size_t i = 0; i < c->n_files; i++) {
		const struct toml *list =
			c->files[i].toml
				? toml_find(c->files[i].toml, "imports")
				: NULL;

		if (!list || list->type != TOML_ARRAY)
			continue;
		for (const struct toml *k = list->kids.first; k; k = k->next)
			if (k->type == TOML_STRING)
				add_import(c, c->files[i].path, k->str);
	}
}

/* Files that are newer than the process: it runs with something else. */
static void check_stale(struct doctor *d, const struct ctd *c)
{
	struct stat st;

	if (!c->started_s)
		return;
	for (size_t i = 0; i < c->n_files; i++) {
		if (stat(c->files[i].path, &st) < 0 ||
		    (uint64_t)st.st_mtime <= c->started_s + 1)
			continue;
		doctor_add(
			d,
			&(struct finding){
				FINDING_WARN, "containerd.stale",
				"it runs with what was there before; the findings are about what is there now",
				"systemctl restart containerd" },
			"%s was changed after containerd was started",
			c->files[i].path);
		return;
	}
	doctor_ok(d, "containerd.stale",
		  "containerd runs with the configuration as it is now");
}

static void check_config(struct doctor *d, struct ctd *c)
{
	struct ctd_config cc = { .path = c->config };
	owned(toml) struct toml *dump = NULL;

	check_version(d, c, &cc);
	load_files(c);
	check_stale(d, c);
	dump = load_dump(d, c);
	if (dump && cc.major) {
		cc.dump = dump;
		cc.files = c->files;
		cc.n_files = c->n_files;
		doctor_judge_config(d, &cc);
	}
	for (size_t i = 0; i < c->n_files; i++) {
		free(c->files[i].path);
		toml_free(c->files[i].toml);
	}
}

/* ---- what it sees ---- */

static bool sees(pid_t pid, const char *mountpoint)
{
	owned(mem) char *text = NULL;
	struct mount_entry m;
	char *p;

	if (read_proc(pid, "mountinfo", &text, NULL) < 0)
		return false;
	p = text;
	while (mount_next(&p, &m))
		if (!strcmp(m.path, mountpoint) && !strcmp(m.type, MOUNT_TYPE))
			return true;
	return false;
}

/* Inode numbers of mount namespaces; 0: not known. */
static ino_t mount_ns(pid_t pid)
{
	char path[64];
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	return stat(path, &st) < 0 ? 0 : st.st_ino;
}

static void check_mounts(struct doctor *d, const struct ctd *c)
{
	static const char fix[] =
		"neither unit may have a mount namespace of its own: no PrivateMounts=, PrivateTmp=, ProtectSystem=, ProtectHome=, ProtectKernelModules=, ProtectKernelTunables=, ProtectControlGroups=; see\n"
		"systemctl cat verity-snapshotter containerd";
	ino_t theirs = mount_ns(c->pid), ours = mount_ns(d->pid),
	      init = mount_ns(1);
	char view[sizeof(d->root) + 8];

	(void)snprintf(view, sizeof(view), "%s/l", d->root);
	if (!theirs || !ours)
		doctor_add(
			d,
			&(struct finding){
				FINDING_UNKNOWN, "containerd.mounts",
				"if it does not, containers get empty images",
				"run this as root" },
			"whether containerd sees the daemon's mounts is not known");
	else if (sees(c->pid, view))
		doctor_ok(d, "containerd.mounts",
			  "containerd sees the layers at '%s'", view);
	else if (sees(d->pid, view))
		doctor_add(
			d,
			&(struct finding){ FINDING_PROBLEM, "containerd.mounts",
					   "containers get empty images", fix },
			"containerd does not see '%s': %s another mount namespace",
			view,
			theirs == ours ? "but it is in no"
			: ours != init ? "the daemon is in"
				       : "it is in");
}

void doctor_check_containerd(struct doctor *d)
{
	struct ctd c = { 0 };

	if (!find_containerd(d, &c))
		return;
	find_config(&c);
	check_config(d, &c);
	if (c.pid && d->pid)
		check_mounts(d, &c);
}
