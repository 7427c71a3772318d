/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containerd's configuration, judged; see ctl_doctor_config.h.
 * Sources: containerd docs/PLUGINS.md and cmd/containerd/server/config (2.3):
 * files are read breadth first, later ones win, tables of proxy plugins and
 * lists are replaced whole.
 */
#include "plugin/ctl_doctor_config.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

#define TRANSFER "io.containerd.transfer.v1.local"
#define CRI_IMAGES "io.containerd.cri.v1.images"
#define CRI_1 "io.containerd.grpc.v1.cri"
#define FIX_MAX 4096

/* The text of a member, or "". */
static const char *text_of(const struct toml *table, const char *key)
{
	const struct toml *v = table ? toml_find(table, key) : NULL;

	return v && v->type == TOML_STRING ? v->str : "";
}

static bool flag_of(const struct toml *table, const char *key)
{
	const struct toml *v = table ? toml_find(table, key) : NULL;

	return v && v->type == TOML_BOOL && v->flag;
}

static const struct toml *member(const struct toml *t, const char *key)
{
	return t ? toml_find(t, key) : NULL;
}

static const struct toml *plugin_of(const struct toml *root, const char *name)
{
	return member(member(root, "plugins"), name);
}

static bool is_at_least(const struct ctd_config *c, unsigned major,
			unsigned minor)
{
	return c->major > major || (c->major == major && c->minor >= minor);
}

/* "/var/run/x" and "/run/x" are one socket. */
static bool same_socket(const char *a, const char *b)
{
	struct stat sa, sb;

	if (!strncmp(a, "unix://", 7))
		a += 7;
	if (!strcmp(a, b))
		return true;
	return stat(a, &sa) == 0 && stat(b, &sb) == 0 &&
	       sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* ---- the list of unpack_config ---- */

static const struct toml *unpack_list(const struct toml *root)
{
	const struct toml *v =
		member(plugin_of(root, TRANSFER), "unpack_config");

	return v && v->type == TOML_ARRAY ? v : NULL;
}

static bool list_has(const struct toml *list, const char *snapshotter)
{
	if (!list)
		return false;
	for (const struct toml *k = list->kids.first; k; k = k->next)
		if (!strcmp(text_of(k, "snapshotter"), snapshotter))
			return true;
	return false;
}

/* The file whose list counts: the last that has one. */
static const struct ctd_file *list_owner(const struct ctd_config *c)
{
	for (size_t i = c->n_files; i-- > 0;)
		if (c->files[i].toml && unpack_list(c->files[i].toml))
			return &c->files[i];
	return NULL;
}

/* One that has the entry, in vain. */
static const struct ctd_file *list_loser(const struct ctd_config *c,
					 const char *snapshotter)
{
	for (size_t i = 0; i < c->n_files; i++)
		if (c->files[i].toml &&
		    list_has(unpack_list(c->files[i].toml), snapshotter))
			return &c->files[i];
	return NULL;
}

static void add_entry(char *out, size_t size, const char *snapshotter)
{
	size_t len = strlen(out);

	(void)snprintf(out + len, size - len,
		       "[[plugins.'" TRANSFER "'.unpack_config]]\n"
		       "  platform = \"linux\"\n"
		       "  snapshotter = \"%s\"\n",
		       snapshotter);
}

static void report_list(struct doctor *d, const struct ctd_config *c,
			const char *name, const char *why)
{
	const struct ctd_file *owner = list_owner(c);
	const struct ctd_file *loser = list_loser(c, name);
	const struct toml *list = unpack_list(c->dump);
	char fix[FIX_MAX];
	const struct finding f = { FINDING_PROBLEM, "containerd.unpack_config",
				   why, fix };

	(void)snprintf(fix, sizeof(fix), "in %s add:\n",
		       owner ? owner->path : c->path);
	add_entry(fix, sizeof(fix), name);
	/* Without a list of one's own the built-in one is replaced, too. */
	if (!owner && list)
		for (const struct toml *k = list->kids.first; k; k = k->next)
			if (strlen(fix) + 256 < sizeof(fix) &&
			    !flag_of(k, "optional") &&
			    strcmp(text_of(k, "snapshotter"), name) != 0)
				add_entry(fix, sizeof(fix),
					  text_of(k, "snapshotter"));
	(void)snprintf(fix + strlen(fix), sizeof(fix) - strlen(fix),
		       "systemctl restart containerd");
	if (loser && owner && loser != owner)
		doctor_add(
			d, &f,
			"the list unpack_config of %s replaces that of %s, which has \"%s\"",
			owner->path, loser->path, name);
	else
		doctor_add(d, &f, "unpack_config has no entry for \"%s\"",
			   name);
}

static void check_unpack(struct doctor *d, const struct ctd_config *c,
			 const char *name)
{
	const struct toml *list = unpack_list(c->dump);
	unsigned before = d->n[FINDING_PROBLEM];

	if (!is_at_least(c, 2, 0))
		return;
	if (!list_has(list, name))
		report_list(d, c, name,
			    "pulls fail: \"no unpack platforms defined\"");
	if (!list_has(list, "overlayfs"))
		report_list(
			d, c, "overlayfs",
			"pulls for the default snapshotter fail: the list takes the place of the built-in one");
	if (d->n[FINDING_PROBLEM] == before)
		doctor_ok(
			d, "containerd.unpack_config",
			"unpack_config has entries for \"%s\" and \"overlayfs\"",
			name);
}

/* ---- the proxy plugin ---- */

static void check_exports(struct doctor *d, const struct ctd_config *c,
			  const struct toml *p)
{
	static const char key[] = "enable_remote_snapshot_annotations";
	const struct toml *exports = member(p, "exports");
	const struct toml *on = member(exports, key);
	const char *root = text_of(exports, "root");
	char fix[FIX_MAX];

	(void)snprintf(fix, sizeof(fix),
		       "[proxy_plugins.%s.exports]\n"
		       "  root = \"%s\"\n"
		       "  %s = \"true\"\n"
		       "systemctl restart containerd",
		       p->key, d->root, key);
	if (!is_at_least(c, 2, 1))
		return;
	if (!on || on->type != TOML_STRING || strcmp(on->str, "true") != 0)
		doctor_add(
			d,
			&(struct finding){
				FINDING_PROBLEM, "containerd.exports",
				"containerd does not tell which layer of which image a snapshot is for: every image is downloaded whole, and nothing says so",
				fix },
			"plugin \"%s\" does not export %s = \"true\"%s", p->key,
			key,
			on && on->type == TOML_BOOL ? " (it must be a string)"
						    : "");
	else
		doctor_ok(d, "containerd.exports",
			  "plugin \"%s\" asks for the annotations", p->key);
	if (strcmp(root, d->root) != 0)
		doctor_add(
			d,
			&(struct finding){
				FINDING_WARN, "containerd.exports.root",
				"kubelet and CRI ask a folder that does not exist for the use of the disk",
				fix },
			"plugin \"%s\" exports root = \"%s\", the state is in '%s'",
			p->key, root, d->root);
}

static void check_capabilities(struct doctor *d, const struct toml *p)
{
	const struct toml *caps = member(p, "capabilities");

	if (!caps || caps->type != TOML_ARRAY)
		return;
	for (const struct toml *k = caps->kids.first; k; k = k->next)
		if (k->type == TOML_STRING && !strcmp(k->str, "rebase"))
			doctor_add(
				d,
				&(struct finding){
					FINDING_PROBLEM,
					"containerd.capabilities",
					"containerd then unpacks layers without their parents, which cannot be lazy",
					"remove \"rebase\" from capabilities" },
				"plugin \"%s\" claims the capability \"rebase\"",
				p->key);
}

/* ---- Kubernetes ---- */

static bool is_disabled(const struct toml *dump, const char *plugin)
{
	const struct toml *list = member(dump, "disabled_plugins");

	if (!list || list->type != TOML_ARRAY)
		return false;
	for (const struct toml *k = list->kids.first; k; k = k->next)
		if (k->type == TOML_STRING && !strcmp(k->str, plugin))
			return true;
	return false;
}

/* From 2.1 on the transfer service pulls, and the plugin's exports count; these
 * settings make the CRI plugin pull by itself, and then its own setting does
 * (CheckLocalImagePullConfigs() of containerd's internal/cri/config). */
static bool pulls_by_itself(const struct ctd_config *c, const struct toml *cri)
{
	static const char *const flags[] = { "use_local_image_pull",
					     "discard_unpacked_layers",
					     "image_pull_with_sync_fs" };
	static const char *const tables[] = { "mirrors", "configs", "auths" };
	const struct toml *registry = member(cri, "registry"),
			  *downloads = member(cri, "max_concurrent_downloads");

	if (!is_at_least(c, 2, 1))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		if (flag_of(cri, flags[i]))
			return true;
	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		const struct toml *t = member(registry, tables[i]);

		if (t && t->type == TOML_TABLE && t->kids.n > 0)
			return true;
	}
	return downloads && downloads->type == TOML_INT && downloads->num != 3;
}

static void check_cri(struct doctor *d, const struct ctd_config *c,
		      const char *name)
{
	bool two = is_at_least(c, 2, 0);
	const char *id = two ? CRI_IMAGES : CRI_1;
	const struct toml *cri = plugin_of(c->dump, id);
	char fix[FIX_MAX];

	if (!two)
		cri = member(cri, "containerd");
	if (!cri || is_disabled(c->dump, id) ||
	    strcmp(text_of(cri, "snapshotter"), name) != 0)
		return;
	(void)snprintf(fix, sizeof(fix),
		       "[plugins.'%s'%s]\n"
		       "  disable_snapshot_annotations = false\n"
		       "systemctl restart containerd",
		       id, two ? "" : ".containerd");
	if (flag_of(cri, "disable_snapshot_annotations") &&
	    pulls_by_itself(c, cri))
		doctor_add(
			d,
			&(struct finding){
				FINDING_PROBLEM, "containerd.cri",
				"pods start only when their images have been downloaded whole, and nothing says so",
				fix },
			"Kubernetes uses \"%s\", but CRI's disable_snapshot_annotations is true",
			name);
	else
		doctor_ok(d, "containerd.cri", "Kubernetes uses \"%s\"", name);
}

/* ---- what is missing altogether ---- */

static bool is_read(const struct ctd_config *c, const char *path)
{
	for (size_t i = 0; i < c->n_files; i++)
		if (!strcmp(c->files[i].path, path))
			return true;
	return false;
}

static bool mentions(const char *path, const char *what)
{
	owned(mem) char *text = NULL;

	return read_file_at(AT_FDCWD, path, TOML_SIZE_MAX, &text, NULL) == 0 &&
	       strstr(text, what);
}

/* A drop-in that names our socket, and that containerd does not read. */
static bool report_unread(struct doctor *d, const struct ctd_config *c)
{
	const char *slash = strrchr(c->path, '/');
	int dir = slash ? (int)(slash - c->path) : 0;
	char pattern[PATH_MAX], fix[PATH_MAX + 256];
	bool found = false;
	glob_t g = { 0 };

	(void)snprintf(pattern, sizeof(pattern), "%.*s/conf.d/*.toml", dir,
		       c->path);
	if (glob(pattern, 0, NULL, &g) == 0) {
		for (size_t i = 0; i < g.gl_pathc && !found; i++) {
			if (is_read(c, g.gl_pathv[i]) ||
			    !mentions(g.gl_pathv[i], d->address))
				continue;
			found = true;
			(void)snprintf(fix, sizeof(fix),
				       "first lines of %s:\n"
				       "version = 2\n"
				       "imports = [\"%s\"]\n"
				       "systemctl restart containerd",
				       c->path, pattern);
			doctor_add(
				d,
				&(struct finding){
					FINDING_PROBLEM, "containerd.imports",
					"without that line containerd reads no drop-in at all, whatever \"config dump\" says of imports",
					fix },
				"%s is not read: %s has no line for it",
				g.gl_pathv[i], c->path);
		}
	}
	globfree(&g);
	return found;
}

static void report_missing(struct doctor *d, const struct ctd_config *c)
{
	char fix[FIX_MAX];

	if (report_unread(d, c))
		return;
	(void)snprintf(fix, sizeof(fix),
		       "in %s:\n"
		       "[proxy_plugins.verity]\n"
		       "  type = \"snapshot\"\n"
		       "  address = \"%s\"\n"
		       "and what else the file for this version of containerd "
		       "in share/verity-snapshotter/containerd/ has",
		       c->path, d->address);
	doctor_add(d,
		   &(struct finding){
			   FINDING_PROBLEM, "containerd.plugin",
			   "containerd does not know this snapshotter", fix },
		   "no proxy plugin of containerd has the address '%s'",
		   d->address);
}

/* A plugin with our name that leads elsewhere. */
static void report_address(struct doctor *d, const struct toml *p)
{
	char fix[FIX_MAX];

	(void)snprintf(fix, sizeof(fix),
		       "[proxy_plugins.%s]\n"
		       "  type = \"snapshot\"\n"
		       "  address = \"%s\"\n"
		       "systemctl restart containerd",
		       p->key, d->address);
	doctor_add(
		d,
		&(struct finding){ FINDING_PROBLEM, "containerd.address",
				   "every call of containerd fails", fix },
		"plugin \"%s\" has the address '%s', the daemon listens on '%s'",
		p->key, text_of(p, "address"), d->address);
}

/* nerdctl up to 2.2, the last for containerd 1.x, sends labels only to names
 * that it knows. */
static void check_alias(struct doctor *d, const struct ctd_config *c,
			bool has_alias)
{
	char fix[FIX_MAX];

	if (is_at_least(c, 2, 1) || has_alias)
		return;
	(void)snprintf(fix, sizeof(fix),
		       "[proxy_plugins.stargz]\n"
		       "  type = \"snapshot\"\n"
		       "  address = \"%s\"\n"
		       "systemctl restart containerd\n"
		       "nerdctl --snapshotter=stargz run IMAGE",
		       d->address);
	doctor_add(
		d,
		&(struct finding){
			FINDING_WARN, "containerd.alias",
			"nerdctl up to 2.2 pulls lazily only by names that it knows; ctr-remote does by any",
			fix },
		"containerd %u.%u knows the daemon by no name that nerdctl does",
		c->major, c->minor);
}

void doctor_judge_config(struct doctor *d, const struct ctd_config *c)
{
	const struct toml *plugins = member(c->dump, "proxy_plugins");
	const struct toml *first = plugins && plugins->type == TOML_TABLE
					   ? plugins->kids.first
					   : NULL;
	const struct toml *stray = NULL;
	bool found = false, alias = false;

	for (const struct toml *p = first; p; p = p->next) {
		if (strcmp(text_of(p, "type"), "snapshot") != 0)
			continue;
		if (!same_socket(text_of(p, "address"), d->address)) {
			if (!strcmp(p->key, "verity"))
				stray = p;
			continue;
		}
		found = true;
		alias = alias || !strcmp(p->key, "stargz");
		doctor_ok(d, "containerd.plugin",
			  "containerd knows the daemon as \"%s\"", p->key);
		check_exports(d, c, p);
		check_capabilities(d, p);
		check_unpack(d, c, p->key);
		check_cri(d, c, p->key);
	}
	if (stray)
		report_address(d, stray);
	else if (!found)
		report_missing(d, c);
	if (found)
		check_alias(d, c, alias);
}
