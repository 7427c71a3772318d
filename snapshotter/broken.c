/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts over a view that has died; see broken.h. Reads mountinfo only: behind
 * the paths in it there is nobody who could answer. */
#include "snapshotter/broken.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "fuse/mount.h"

#define MOUNTINFO_MAX (64u << 20)

struct entry {
	int id;
	unsigned major, minor;
	char *path;
};

struct broken {
	struct lock lock; /* guards the list */
	struct entry *v;
	size_t n;
};

/* ---- one line ---- */

static bool is_seq(const char *s)
{
	return *s && s[strspn(s, "0123456789")] == '\0';
}

/* What follows "@dir/" in @path, or NULL. */
static const char *below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/' ? path + n + 1
							    : NULL;
}

static bool is_layer(const char *lower, const char *root, bool upper_is_ours)
{
	const char *s = below(lower, root);

	if (*lower == '/' && !s)
		return false;
	if (!s)
		s = lower;
	if (s[0] == 'l' && s[1] == '/')
		return is_seq(s + 2);
	return s == lower && upper_is_ours && is_seq(s);
}

/* The next option @name of @at, unescaped, on the heap; NULL: no more. The
 * kernel writes the ',' inside a value as \054. */
static char *next_option(const char **at, const char *name)
{
	size_t n_name = strlen(name);

	while (**at) {
		const char *p = *at;
		size_t n = strcspn(p, ",");
		char *value;

		*at += n + (p[n] == ',');
		if (n <= n_name || p[n_name] != '=' ||
		    strncmp(p, name, n_name) != 0)
			continue;
		value = strndup(p + n_name + 1, n - n_name - 1);
		if (value)
			mount_unescape(value);
		return value;
	}
	return NULL;
}

static bool list_has_layer(char *lowers, const char *root, bool upper_is_ours)
{
	bool inside = false; /* the ':' before was escaped: part of a name */
	char *s;

	while ((s = strsep(&lowers, ":"))) {
		if (!inside && is_layer(s, root, upper_is_ours))
			return true;
		inside = *s && s[strlen(s) - 1] == '\\';
	}
	return false;
}

static bool overlay_has_layer(const char *options, const char *root)
{
	/* "lowerdir+": each by itself, from Linux 6.7 on */
	static const char *const names[] = { "lowerdir", "lowerdir+" };
	const char *at = options;
	owned(mem) char *upper = next_option(&at, "upperdir");
	const char *s = upper ? below(upper, root) : NULL;
	bool ours = s && s[0] == 's' && s[1] == '/';
	bool found = false;

	for (size_t i = 0; i < ARRAY_LEN(names) && !found; i++) {
		char *lowers;

		at = options;
		while (!found && (lowers = next_option(&at, names[i]))) {
			found = list_has_layer(lowers, root, ours);
			free(lowers);
		}
	}
	return found;
}

void broken_container(const char *path, char *ret, size_t size)
{
	static const char mark[] = "/io.containerd.runtime.";
	const char *s = strstr(path, mark), *ns, *id, *end;

	ret[0] = '\0';
	ns = s ? strchr(s + sizeof(mark) - 1, '/') : NULL;
	id = ns ? strchr(ns + 1, '/') : NULL;
	end = id ? strchr(id + 1, '/') : NULL;
	if (end && !strcmp(end, "/rootfs") && id > ns + 1 && end > id + 1)
		(void)snprintf(ret, size, "%.*s", (int)(end - ns - 1), ns + 1);
}

/* ---- the list ---- */

/* Sessions that are mounted as a whole elsewhere: other daemons'. */
struct sessions {
	struct mount_dev *v;
	size_t n;
};

static void owned_sessions(struct sessions *s)
{
	free(s->v);
}

static bool is_session(const struct mount_entry *m)
{
	return !strcmp(m->type, MOUNT_TYPE) && !strcmp(m->source, MOUNT_SOURCE);
}

static int find_others(const char *text, const char *root, struct sessions *ret)
{
	owned(mem) char *copy = strdup(text);
	char *at = copy;
	struct mount_entry m;

	if (!copy)
		return -ENOMEM;
	while (mount_next(&at, &m)) {
		const char *s = below(m.path, root);
		struct mount_dev *v;

		if (!is_session(&m) || strcmp(m.root, "/") != 0 ||
		    (s && !strcmp(s, "l")))
			continue;
		v = reallocarray(ret->v, ret->n + 1, sizeof(*v));
		if (!v)
			return -ENOMEM;
		ret->v = v;
		v[ret->n++] = (struct mount_dev){ m.major, m.minor };
	}
	return 0;
}

static bool is_broken(const struct mount_entry *m, const char *root,
		      const struct sessions *others)
{
	if (!strcmp(m->type, "overlay"))
		return overlay_has_layer(m->options, root);
	if (!is_session(m) || !strcmp(m->root, "/"))
		return false;
	for (size_t i = 0; i < others->n; i++)
		if (others->v[i].major == m->major &&
		    others->v[i].minor == m->minor)
			return false;
	return true;
}

static int add(struct broken *b, const struct mount_entry *m)
{
	struct entry *v = reallocarray(b->v, b->n + 1, sizeof(*v));
	char *path = strdup(m->path);

	if (v)
		b->v = v;
	if (!v || !path) {
		free(path);
		return -ENOMEM;
	}
	v[b->n++] = (struct entry){ m->id, m->major, m->minor, path };
	return 0;
}

int broken_find_in(char *text, const char *root, struct broken **ret)
{
	owned(sessions) struct sessions others = { 0 };
	struct broken *b = calloc(1, sizeof(*b));
	struct mount_entry m;
	int r;

	if (!b)
		return -ENOMEM;
	lock_init(&b->lock, RANK_LEAF);
	r = find_others(text, root, &others);
	while (r == 0 && mount_next(&text, &m))
		if (is_broken(&m, root, &others))
			r = add(b, &m);
	if (r < 0) {
		broken_free(b);
		return r;
	}
	*ret = b;
	return 0;
}

void broken_free(struct broken *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < b->n; i++)
		free(b->v[i].path);
	free(b->v);
	lock_release(&b->lock);
	free(b);
}

static bool is_same(const struct entry *a, const struct mount_entry *m)
{
	return a->id == m->id && a->major == m->major && a->minor == m->minor &&
	       !strcmp(a->path, m->path);
}

/* Those still there come to the front, in any order. */
static void forget_gone(struct broken *b, char *text)
{
	struct mount_entry m;
	size_t n = 0;

	while (n < b->n && mount_next(&text, &m))
		for (size_t i = n; i < b->n; i++) {
			struct entry e = b->v[i];

			if (!is_same(&e, &m))
				continue;
			b->v[i] = b->v[n];
			b->v[n++] = e;
			break;
		}
	while (b->n > n)
		free(b->v[--b->n].path);
}

void broken_refresh_in(struct broken *b, char *text)
{
	lock_take(&b->lock);
	forget_gone(b, text);
	lock_drop(&b->lock);
}

/* ---- of this process ---- */

static int read_mountinfo(char **ret)
{
	return read_file_at(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX,
			    ret, NULL);
}

int broken_find(const char *root, struct broken **ret)
{
	owned(mem) char *text = NULL;
	char name[160];
	int r = read_mountinfo(&text);

	if (r == 0)
		r = broken_find_in(text, root, ret);
	if (r < 0 || (*ret)->n == 0)
		return r;
	broken_container((*ret)->v[0].path, name, sizeof(name));
	log_warn(
		"containers stand on layers of an earlier daemon and get errors: restart them, `verityctl status` names them: count=%zu first='%s'",
		(*ret)->n, *name ? name : (*ret)->v[0].path);
	return 0;
}

void broken_refresh(struct broken *b)
{
	owned(mem) char *text = NULL;
	size_t n;

	lock_take(&b->lock);
	n = b->n;
	lock_drop(&b->lock);
	/* The text is read without the lock: whatever has gone stays gone. */
	if (n > 0 && read_mountinfo(&text) == 0)
		broken_refresh_in(b, text);
}

void broken_json_of(struct broken *b, struct buf *out)
{
	char name[300];

	(void)buf_adds(out, "\"broken\":[");
	lock_take(&b->lock);
	for (size_t i = 0; i < b->n; i++) {
		broken_container(b->v[i].path, name, sizeof(name));
		(void)buf_adds(out, i ? ",{\"mount\":" : "{\"mount\":");
		(void)buf_add_json(out, b->v[i].path);
		(void)buf_adds(out, ",\"container\":");
		(void)buf_add_json(out, name);
		(void)buf_adds(out, "}");
	}
	lock_drop(&b->lock);
	(void)buf_adds(out, "]");
}

void broken_json(struct broken *b, struct buf *out)
{
	if (!b) {
		(void)buf_adds(out, "\"broken\":[]");
		return;
	}
	broken_refresh(b);
	broken_json_of(b, out);
}
