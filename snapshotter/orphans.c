/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orphans, in both directions; see trash_orphans(). Runs once, before anything
 * is created, so that a name without row is garbage and not work in progress.
 *
 * Names that the daemon makes: decimal numbers in s/ and layer/, two hex digits
 * in body/ with 64 hex digits below, the latter also with ".state"; each also
 * with ".tmp", which no row ever stands for. All other names are left alone.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/hex.h"
#include "base/log.h"
#include "snapshotter/trash.h"

/* The rows, ascending, and which of them have been met on disk. */
struct known {
	uint64_t *id;
	bool *seen;
	size_t n;
};

static int known_init(struct known *k, size_t n)
{
	*k = (struct known){ .n = n };
	k->id = calloc(n ? n : 1, sizeof(*k->id));
	k->seen = calloc(n ? n : 1, sizeof(*k->seen));
	return k->id && k->seen ? 0 : -ENOMEM;
}

static void owned_known(struct known *k)
{
	free(k->id);
	free(k->seen);
}

static bool known_meet(struct known *k, uint64_t id)
{
	size_t lo = 0, hi = k->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (k->id[mid] == id) {
			k->seen[mid] = true;
			return true;
		}
		if (k->id[mid] < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

enum name_kind { NAME_FOREIGN, NAME_NUMBER, NAME_TMP };

/* "7" or "7.tmp"; no sign, no leading zero, no overflow. */
static enum name_kind classify_number(const char *s, uint64_t *ret)
{
	size_t n = strspn(s, "0123456789");
	char *end;

	if (n == 0 || n > 19 || (s[0] == '0' && n > 1))
		return NAME_FOREIGN;
	*ret = strtoull(s, &end, 10);
	if (!*end)
		return NAME_NUMBER;
	return !strcmp(end, ".tmp") ? NAME_TMP : NAME_FOREIGN;
}

static int throw_away(struct trash *t, const char *dir, const char *name,
		      const char *why)
{
	char path[64 + NAME_MAX];
	int r;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	r = trash_add(t, path);
	if (r < 0)
		log_warn("orphan stays: path=%s err='%s'", path, strerror(-r));
	else
		log_info("orphan removed: path=%s reason='%s'", path, why);
	return r;
}

static int open_folder(int rootfd, const char *dir, DIR **ret, struct err *e)
{
	int fd = open_dir(rootfd, dir);
	DIR *d;

	if (fd < 0)
		return err_sys(e, fd, "folder '%s'", dir);
	d = fdopendir(fd);
	if (!d) {
		(void)close(fd);
		return err_sys(e, -ENOMEM, "folder '%s'", dir);
	}
	*ret = d;
	return 0;
}

/* All numbers in @dir that @k does not have go to the trash. */
static int scan_numbers(struct trash *t, const char *dir, struct known *k,
			struct err *e)
{
	owned(dir) DIR *d = NULL;
	struct dirent *de;

	if (open_folder(trash_rootfd(t), dir, &d, e) < 0)
		return -1;
	while ((de = readdir(d))) {
		uint64_t id;
		enum name_kind kind = classify_number(de->d_name, &id);

		if (kind == NAME_TMP)
			(void)throw_away(t, dir, de->d_name, "unfinished");
		else if (kind == NAME_NUMBER && !known_meet(k, id))
			(void)throw_away(t, dir, de->d_name, "not recorded");
	}
	return 0;
}

/* ---- snapshots ---- */

static int make_empty(int rootfd, const struct snap_folder *f)
{
	char path[40];
	int r;

	(void)snprintf(path, sizeof(path), "s/%" PRIu64, f->id);
	r = mkdir_exact(rootfd, path, 0700);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "s/%" PRIu64 "/fs", f->id);
	r = mkdir_exact(rootfd, path, 0755);
	if (r < 0 || f->kind != SNAP_KIND_ACTIVE)
		return r;
	(void)snprintf(path, sizeof(path), "s/%" PRIu64 "/work", f->id);
	return mkdir_exact(rootfd, path, 0711);
}

static void restore(struct trash *t, const struct snap_folder *f)
{
	int r;

	/* An empty layer in the middle of an image would run, wrongly; without
	 * the folder the mount fails and says which it is. */
	if (f->kind == SNAP_KIND_COMMITTED) {
		log_err("contents of a committed snapshot are lost, remove its image and pull it again: folder=s/%" PRIu64,
			f->id);
		return;
	}
	r = make_empty(trash_rootfd(t), f);
	if (r < 0)
		log_err("folder of a snapshot is lost: folder=s/%" PRIu64
			" err='%s'",
			f->id, strerror(-r));
	else
		log_warn(
			"folder of a snapshot was lost, made an empty one: folder=s/%" PRIu64,
			f->id);
}

static int scan_snapshots(struct trash *t, struct store *s, struct err *e)
{
	owned(mem) struct snap_folder *f = NULL;
	owned(known) struct known k = { 0 };
	size_t n = 0;

	if (store_folders(s, &f, &n, e) < 0)
		return -1;
	if (known_init(&k, n) < 0)
		return err_sys(e, -ENOMEM, "orphans");
	for (size_t i = 0; i < n; i++)
		k.id[i] = f[i].id;
	if (scan_numbers(t, "s", &k, e) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (!k.seen[i])
			restore(t, &f[i]);
	return 0;
}

/* ---- layers ---- */

static int scan_layers(struct trash *t, struct store *s, struct err *e)
{
	owned(mem) struct layer_row *rows = NULL;
	owned(known) struct known k = { 0 };
	size_t n = 0;

	if (store_layers(s, &rows, &n, e) < 0)
		return -1;
	if (known_init(&k, n) < 0)
		return err_sys(e, -ENOMEM, "orphans");
	for (size_t i = 0; i < n; i++)
		k.id[i] = rows[i].seq;
	return scan_numbers(t, "layer", &k, e);
}

/* ---- bodies ---- */

struct alive {
	struct digest *v; /* sorted */
	size_t n;
};

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, DIGEST_LEN);
}

/* Whether @name, below body/@fan, is ours and nobody's. */
static bool is_dead_body(const char *fan, const char *name,
			 const struct alive *alive)
{
	const char *tail = name + strnlen(name, DIGEST_HEX_LEN);
	char hex[DIGEST_HEX_LEN + 1];
	struct digest d;

	if (tail - name != DIGEST_HEX_LEN || strncmp(name, fan, 2) != 0)
		return false;
	memcpy(hex, name, DIGEST_HEX_LEN);
	hex[DIGEST_HEX_LEN] = '\0';
	if (hex_decode(hex, d.b, DIGEST_LEN) < 0)
		return false;
	if (!strcmp(tail, ".tmp") || !strcmp(tail, ".state.tmp"))
		return true;
	if (*tail && strcmp(tail, ".state") != 0)
		return false;
	return !alive->n ||
	       !bsearch(&d, alive->v, alive->n, sizeof(*alive->v), compare);
}

static void scan_fan(struct trash *t, DIR *body, const char *fan,
		     const struct alive *alive)
{
	int fd = open_dir(dirfd(body), fan);
	owned(dir) DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	char dir[16];

	if (!d) {
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	(void)snprintf(dir, sizeof(dir), "body/%.2s", fan);
	while ((de = readdir(d)))
		if (is_dead_body(fan, de->d_name, alive))
			(void)throw_away(t, dir, de->d_name, "not referred to");
	/* Goes if it is empty, else stays. */
	(void)unlinkat(dirfd(body), fan, AT_REMOVEDIR);
}

static int scan_bodies(struct trash *t, struct store *s, struct err *e)
{
	owned(dir) DIR *d = NULL;
	owned(mem) struct digest *ckeys = NULL;
	struct alive alive = { 0 };
	struct dirent *de;

	if (open_folder(trash_rootfd(t), "body", &d, e) < 0)
		return -1;
	if (store_all_ckeys(s, &ckeys, &alive.n, e) < 0)
		return -1;
	alive.v = ckeys;
	while ((de = readdir(d))) {
		uint8_t byte;

		if (strlen(de->d_name) == 2 &&
		    hex_decode(de->d_name, &byte, 1) == 0)
			scan_fan(t, d, de->d_name, &alive);
	}
	return 0;
}

int trash_orphans(struct trash *t, struct store *s, struct err *e)
{
	if (scan_snapshots(t, s, e) < 0 || scan_layers(t, s, e) < 0 ||
	    scan_bodies(t, s, e) < 0)
		return err_wrap(e, "orphans");
	return 0;
}
