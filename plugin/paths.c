/* SPDX-License-Identifier: Apache-2.0 */
/* Which folders the daemon may take; see paths.h. Looks at names only. */
#include "plugin/paths.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

/* Covered by the view, deleted at start, or files that are no sockets. */
static const char *const names[] = {
	"s",
	"l",
	"layer",
	"body",
	"trash",
	"scrubbed",
	"lock",
	"state.db",
	"state.db-wal",
	"state.db-journal",
	"state.db-shm",
};

static bool is_own(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

/* Sockets when RUN is ROOT, and what mkfs makes. */
static bool is_harmless(const char *name)
{
	return !strcmp(name, "snapshotter.sock") ||
	       !strcmp(name, "control.sock") || !strcmp(name, "lost+found");
}

/* Copies @from component by component; only ever shrinks. */
static void squeeze(char *to, const char *from)
{
	char *start = to;

	while (*(from += strspn(from, "/"))) {
		size_t n = strcspn(from, "/");

		if (n != 1 || *from != '.') {
			*to++ = '/';
			memcpy(to, from, n);
			to += n;
		}
		from += n;
	}
	if (to == start)
		*to++ = '/';
	*to = '\0';
}

int path_absolute(const char *path, char **ret)
{
	owned(mem) char *cwd = *path == '/' ? strdup("") : getcwd(NULL, 0);
	owned(mem) char *all = NULL;
	char *out;

	if (!cwd)
		return errno ? -errno : -ENOMEM;
	if (asprintf(&all, "%s/%s", cwd, path) < 0) {
		all = NULL;
		return -ENOMEM;
	}
	out = malloc(strlen(all) + 2);
	if (!out)
		return -ENOMEM;
	squeeze(out, all);
	*ret = out;
	return 0;
}

/* The first component of @path below @root, or "". */
static int name_below(const char *root, const char *path,
		      char ret[NAME_MAX + 1])
{
	owned(mem) char *abs = NULL;
	size_t n = strcmp(root, "/") ? strlen(root) : 0;
	int r = path_absolute(path, &abs);

	if (r < 0)
		return r;
	ret[0] = '\0';
	if (strncmp(abs, root, n) == 0 && abs[n] == '/')
		(void)snprintf(ret, NAME_MAX + 1, "%.*s",
			       (int)strcspn(abs + n + 1, "/"), abs + n + 1);
	return 0;
}

static bool is_file(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISREG(st.st_mode);
}

/* The first name in @fd that we do not make; "": none. */
static int find_foreign(int fd, const char *run, const char *address,
			char ret[NAME_MAX + 1])
{
	int copy = open_dir(fd, ".");
	owned(dir) DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (!d) {
		if (copy >= 0)
			(void)close(copy);
		return copy < 0 ? copy : -ENOMEM;
	}
	ret[0] = '\0';
	while ((de = readdir(d))) {
		const char *s = de->d_name;

		if (!strcmp(s, ".") || !strcmp(s, "..") || is_own(s) ||
		    is_harmless(s) || !strcmp(s, run) || !strcmp(s, address))
			continue;
		(void)snprintf(ret, NAME_MAX + 1, "%s", s);
		break;
	}
	return 0;
}

int paths_check_root(int fd, const char *root, const char *run,
		     const char *address, struct err *e)
{
	char in_run[NAME_MAX + 1], in_address[NAME_MAX + 1] = "";
	char found[NAME_MAX + 1];
	int r;

	if (is_file(fd, "lock") && is_file(fd, "state.db"))
		return 0;
	r = name_below(root, run, in_run);
	if (r == 0 && address)
		r = name_below(root, address, in_address);
	if (r == 0)
		r = find_foreign(fd, in_run, in_address, found);
	if (r < 0)
		return err_sys(e, r, "look into '%s'", root);
	if (!found[0])
		return 0;
	return err_set(
		e, ERR_INVALID,
		"root '%s' holds what is not ours ('%.60s'): choose an empty or a new folder",
		root, found);
}

int paths_check_outside(const char *root, const char *path, const char *option,
			struct err *e)
{
	char name[NAME_MAX + 1];
	int r = name_below(root, path, name);

	if (r < 0)
		return err_sys(e, r, "%s '%s'", option, path);
	if (!is_own(name))
		return 0;
	return err_set(
		e, ERR_INVALID,
		"%s '%s' lies at or below '%s' of the root, which the daemon covers or deletes: choose another place",
		option, path, name);
}
