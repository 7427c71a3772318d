/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cgroups of helper processes; see cgroup.h. Looks where systemd mounts the
 * hierarchies, and nowhere else.
 */
#include "verity/cgroup.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include <linux/magic.h>

#include "base/fs.h"
#include "base/io.h"

#define V1_MEMORY "/sys/fs/cgroup/memory"
#define V2 "/sys/fs/cgroup"
#define DAEMON "daemon"
#define TEXT_MAX 65536 /* of a file in /proc or in a cgroup */

/* What went wrong, for people. */
struct why {
	char *text;
	size_t size;
};

printf_like(3, 4) static int fail(const struct why *w, int r, const char *fmt,
				  ...)
{
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	(void)vsnprintf(w->text, w->size, fmt, ap);
	va_end(ap);
	n = strlen(w->text);
	(void)snprintf(w->text + n, w->size - n, ": %s", strerror(-r));
	return r;
}

static int write_text(int dirfd, const char *name, const char *text)
{
	owned(fd) int fd = openat(dirfd, name, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : write_full(fd, text, strlen(text));
}

static bool is_mounted(const char *path, long magic)
{
	struct statfs st;

	return statfs(path, &st) == 0 && st.f_type == magic;
}

/* The path behind "N:@controller:" ("" for v2) in /proc/self/cgroup. */
static int own_path(const char *controller, char ret[PATH_MAX])
{
	owned(mem) char *text = NULL;
	char *line, *next;
	int r = read_file_at(AT_FDCWD, "/proc/self/cgroup", TEXT_MAX, &text,
			     NULL);

	for (line = text; r == 0 && line && *line; line = next) {
		char *name = strchr(line, ':');
		char *path = name ? strchr(name + 1, ':') : NULL;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (!path)
			continue;
		*path++ = '\0';
		if (strcmp(name + 1, controller) != 0)
			continue;
		if (*path != '/' || strlen(path) >= PATH_MAX)
			return -ENAMETOOLONG;
		(void)snprintf(ret, PATH_MAX, "%s", path);
		return 0;
	}
	return r < 0 ? r : -ENOENT;
}

/* @dirfd: the parent; the child is made, limited, and joined. */
static int enter_child(int dirfd, const char *name, const char *limit,
		       uint64_t memory, const struct why *w)
{
	owned(fd) int child = -1;
	char text[32];
	int r = 0;

	if (mkdirat(dirfd, name, 0755) < 0 && errno != EEXIST)
		return fail(w, -errno, "make cgroup '%s'", name);
	child = open_dir(dirfd, name);
	if (child < 0)
		return fail(w, child, "open cgroup '%s'", name);
	(void)snprintf(text, sizeof(text), "%" PRIu64 "\n", memory);
	r = write_text(child, limit, text);
	if (r < 0)
		return fail(w, r, "set %s", limit);
	(void)snprintf(text, sizeof(text), "%d\n", (int)getpid());
	r = write_text(child, "cgroup.procs", text);
	return r < 0 ? fail(w, r, "join cgroup '%s'", name) : 0;
}

static int enter_v1(const char *name, uint64_t memory, const char *own,
		    char path[PATH_MAX], const struct why *w)
{
	owned(fd) int dirfd = -1;
	int n = snprintf(path, PATH_MAX, V1_MEMORY "%s", own);

	if (n >= PATH_MAX)
		return fail(w, -ENAMETOOLONG, "own cgroup");
	dirfd = open_dir(AT_FDCWD, path);
	if (dirfd < 0)
		return fail(w, dirfd, "open '%s'", path);
	return enter_child(dirfd, name, "memory.limit_in_bytes", memory, w);
}

/* The group that is ours to divide: without the child that we moved to. */
static void strip_child(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash && !strcmp(slash + 1, DAEMON))
		*slash = '\0';
}

static bool is_delegated(int dirfd)
{
	static const char *const names[] = { "user.delegate",
					     "trusted.delegate" };
	char value[4];

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (fgetxattr(dirfd, names[i], value, sizeof(value)) == 1 &&
		    value[0] == '1')
			return true;
	return false;
}

/* Each process of the group, into its child. One that ends meanwhile is none. */
static int empty_group(int dirfd, const struct why *w)
{
	owned(mem) char *pids = NULL;
	owned(fd) int child = -1;
	char *pid, *save = NULL;
	int r;

	if (mkdirat(dirfd, DAEMON, 0755) < 0 && errno != EEXIST)
		return fail(w, -errno, "make cgroup '" DAEMON "'");
	child = open_dir(dirfd, DAEMON);
	if (child < 0)
		return fail(w, child, "open cgroup '" DAEMON "'");
	r = read_file_at(dirfd, "cgroup.procs", TEXT_MAX, &pids, NULL);
	if (r < 0)
		return fail(w, r, "list our cgroup");
	for (pid = strtok_r(pids, "\n", &save); pid;
	     pid = strtok_r(NULL, "\n", &save)) {
		r = write_text(child, "cgroup.procs", pid);
		if (r < 0 && r != -ESRCH)
			return fail(w, r, "move process %s", pid);
	}
	return 0;
}

static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p += n)
		if ((p == text || p[-1] == ' ') &&
		    (p[n] == ' ' || p[n] == '\n' || !p[n]))
			return true;
	return false;
}

static int enter_v2(const char *name, uint64_t memory, const char *own,
		    char path[PATH_MAX], const struct why *w)
{
	owned(mem) char *controllers = NULL;
	owned(fd) int dirfd = -1;
	bool root;
	int n = snprintf(path, PATH_MAX, V2 "%s", own);
	int r;

	if (n >= PATH_MAX)
		return fail(w, -ENAMETOOLONG, "own cgroup");
	strip_child(path);
	dirfd = open_dir(AT_FDCWD, path);
	if (dirfd < 0)
		return fail(w, dirfd, "open '%s'", path);
	/* Only the root has no type, and may have processes all the same. */
	root = faccessat(dirfd, "cgroup.type", F_OK, 0) < 0 && errno == ENOENT;
	if (!root && !is_delegated(dirfd))
		return fail(w, -EPERM,
			    "'%s' is not delegated (Delegate= of the unit)",
			    path);
	r = read_file_at(dirfd, "cgroup.controllers", TEXT_MAX, &controllers,
			 NULL);
	if (r == 0 && !has_word(controllers, "memory"))
		r = -ENOENT;
	if (r < 0)
		return fail(w, r, "memory controller of '%s'", path);
	r = root ? 0 : empty_group(dirfd, w);
	if (r < 0)
		return r;
	r = write_text(dirfd, "cgroup.subtree_control", "+memory\n");
	if (r < 0)
		return fail(w, r, "memory controller below '%s'", path);
	return enter_child(dirfd, name, "memory.high", memory, w);
}

int cgroup_enter(const char *name, uint64_t memory, char *ret, size_t size)
{
	const struct why w = { ret, size };
	char own[PATH_MAX], path[PATH_MAX];
	int r;

	if (is_mounted(V1_MEMORY, CGROUP_SUPER_MAGIC)) {
		r = own_path("memory", own);
		if (r < 0)
			return fail(&w, r, "own memory cgroup");
		r = enter_v1(name, memory, own, path, &w);
	} else if (is_mounted(V2, CGROUP2_SUPER_MAGIC)) {
		r = own_path("", own);
		if (r < 0)
			return fail(&w, r, "own cgroup");
		r = enter_v2(name, memory, own, path, &w);
	} else {
		return fail(&w, -ENOENT, "no cgroups at " V2);
	}
	if (r < 0)
		return r;
	(void)snprintf(ret, size, "%s%s%s", path,
		       path[strlen(path) - 1] == '/' ? "" : "/", name);
	return 0;
}

void cgroup_remove(const char *path)
{
	/* EBUSY: a helper of another daemon is in it. */
	(void)rmdir(path);
}
