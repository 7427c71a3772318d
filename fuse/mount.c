/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount(2), umount2(2) and mountinfo; see mount.h.
 *
 * Source: Documentation/filesystems/proc.rst §3.5 (6.18) for mountinfo.
 */
#include "fuse/mount.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mount.h>

#include "base/io.h"

#define MOUNTINFO_MAX (64u << 20)

int mount_fuse(const char *mountpoint, int fuse_fd)
{
	char opts[160];

	(void)snprintf(opts, sizeof(opts),
		       "fd=%d,rootmode=40000,user_id=%u,group_id=%u,"
		       "allow_other,default_permissions",
		       fuse_fd, (unsigned)getuid(), (unsigned)getgid());
	if (mount(MOUNT_SOURCE, mountpoint, MOUNT_TYPE, MS_RDONLY | MS_NOATIME,
		  opts) < 0)
		return -errno;
	return 0;
}

/* "\040" and the like; only ever shrinks. */
void mount_unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' &&
		    s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 |
				       (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* id parent maj:min root path options [tags...] - type source superoptions */
static bool parse_line(char *line, struct mount_entry *ret)
{
	static char none[] = "";
	char *field, *root = NULL, *path = NULL;
	int n = 0;

	if (sscanf(line, "%d %d %u:%u ", &ret->id, &ret->parent, &ret->major,
		   &ret->minor) != 4)
		return false;
	while ((field = strsep(&line, " ")) && strcmp(field, "-") != 0) {
		if (n == 3)
			root = field;
		if (n++ == 4)
			path = field;
	}
	ret->root = root;
	ret->path = path;
	ret->type = strsep(&line, " ");
	ret->source = strsep(&line, " ");
	ret->options = line ? line : none;
	if (!field || !path || !ret->type || !ret->source)
		return false;
	mount_unescape(root);
	mount_unescape(path);
	mount_unescape(ret->type);
	mount_unescape(ret->source);
	return true;
}

bool mount_next(char **text, struct mount_entry *ret)
{
	char *line;

	while ((line = strsep(text, "\n")))
		if (parse_line(line, ret))
			return true;
	return false;
}

/* As mountinfo shows it. Only the directory above is resolved. */
static int resolve(const char *mountpoint, char ret[PATH_MAX])
{
	owned(mem) char *copy = strdup(mountpoint);
	char *slash;
	size_t len;

	if (!copy)
		return -ENOMEM;
	slash = strrchr(copy, '/');
	if (copy[0] != '/' || slash[1] == '\0')
		return -EINVAL;
	*slash = '\0';
	if (!realpath(slash == copy ? "/" : copy, ret))
		return -errno;
	len = strlen(ret);
	if (len == 1)
		len = 0;
	if ((size_t)snprintf(ret + len, PATH_MAX - len, "/%s", slash + 1) >=
	    PATH_MAX - len)
		return -ENAMETOOLONG;
	return 0;
}

/*
 * The mount that is on top at @path: the one on which no other stands at the
 * same path. *ret_ours says whether it is of our type. -ENOENT: none.
 */
static int find_top(const char *path, struct mount_entry *ret, bool *ret_ours)
{
	owned(mem) char *text = NULL;
	struct mount_entry m;
	char *at;
	bool found = false;
	int r = read_file_at(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX,
			     &text, NULL);

	if (r < 0)
		return r;
	at = text;
	while (mount_next(&at, &m)) {
		if (strcmp(m.path, path) != 0 || (found && ret->parent == m.id))
			continue;
		*ret = m;
		*ret_ours = !strcmp(m.type, MOUNT_TYPE) &&
			    !strcmp(m.source, MOUNT_SOURCE);
		found = true;
	}
	/* in @text */
	ret->root = ret->path = ret->type = ret->source = NULL;
	ret->options = NULL;
	return found ? 0 : -ENOENT;
}

int mount_find(const char *mountpoint, struct mount_dev *ret)
{
	struct mount_entry m = { 0 };
	char path[PATH_MAX];
	bool ours = false;
	int r = resolve(mountpoint, path);

	if (r == 0)
		r = find_top(path, &m, &ours);
	if (r == 0 && !ours)
		r = -ENOENT;
	if (r < 0)
		return r;
	ret->major = m.major;
	ret->minor = m.minor;
	return 0;
}

/* The kernel does not ask the file system for the root of a mount that is to
 * go, so this works for a dead server, too. */
static int detach(const char *path)
{
	return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}

int mount_detach(const char *mountpoint, const struct mount_dev *dev)
{
	struct mount_dev now = { 0 };
	int r = mount_find(mountpoint, &now);

	if (r == 0 && (now.major != dev->major || now.minor != dev->minor))
		r = -ENOENT;
	return r < 0 ? r : detach(mountpoint);
}

int mount_detach_dead(const char *mountpoint)
{
	struct mount_dev dev;
	int n = 0, r;

	while ((r = mount_find(mountpoint, &dev)) == 0) {
		r = detach(mountpoint);
		if (r < 0)
			return r;
		n++;
	}
	return r == -ENOENT ? n : r;
}

int mount_set_readahead(const struct mount_dev *dev, unsigned kb)
{
	char path[64], text[16];
	int len;

	(void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb",
		       dev->major, dev->minor);
	owned(fd) int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	len = snprintf(text, sizeof(text), "%u", kb);
	return write_full(fd, text, (size_t)len);
}
