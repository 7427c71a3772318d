/* SPDX-License-Identifier: Apache-2.0 */
/* Status for people; see ctl_status.h. Two passes: widths, then rows. */
#include "plugin/ctl_status.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "plugin/ctl_text.h"

#define DIGEST_SHORT 12

enum column { DIGEST, STATE, LOCAL, TOTAL, WAITING, IMAGE, REASON, N_COLUMNS };

static const char *const titles[N_COLUMNS] = {
	[DIGEST] = "LAYER",  [STATE] = "STATE",     [LOCAL] = "LOCAL",
	[TOTAL] = "TOTAL",   [WAITING] = "WAITING", [IMAGE] = "IMAGE",
	[REASON] = "REASON",
};

struct row {
	char cell[N_COLUMNS][CTL_CELL_MAX];
};

static void put_cell(FILE *out, const char *s, int w, bool right)
{
	int pad = w - ctl_width(s);

	if (right)
		(void)fprintf(out, "%*s%s", pad > 0 ? pad : 0, "", s);
	else
		(void)fprintf(out, "%s%*s", s, pad > 0 ? pad : 0, "");
}

/* ---- members ---- */

static void get_size(struct json_object *o, const char *name, char *out,
		     size_t size)
{
	struct json_object *v = ctl_get(o, name);

	if (json_object_is_type(v, json_type_int))
		ctl_human_size(out, size, ctl_get_num(o, name));
	else
		(void)snprintf(out, size, "-");
}

/* ---- parts ---- */

static void print_uptime(FILE *out, int64_t s)
{
	if (s >= 86400)
		(void)fprintf(out, "%" PRId64 "d ", s / 86400);
	if (s >= 3600)
		(void)fprintf(out, "%" PRId64 "h ", s / 3600 % 24);
	if (s >= 60)
		(void)fprintf(out, "%" PRId64 "m ", s / 60 % 60);
	(void)fprintf(out, "%" PRId64 "s\n", s % 60);
}

static void print_daemon(struct json_object *doc, FILE *out)
{
	static const char *const names[] = { "root", "run", "address",
					     "policy" };
	char text[CTL_CELL_MAX], pid[CTL_CELL_MAX];

	ctl_get_text(doc, "version", text, sizeof(text));
	ctl_get_text(doc, "pid", pid, sizeof(pid));
	(void)fprintf(out, "verity-snapshotter %s, pid %s, up ", text, pid);
	print_uptime(out, json_object_get_int64(ctl_get(doc, "uptime_s")));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		ctl_get_text(doc, names[i], text, sizeof(text));
		(void)fprintf(out, "%-8s %s\n", names[i], text);
	}
}

/* Only what is missing: each absence with what it costs. */
static void print_features(struct json_object *doc, FILE *out)
{
	struct json_object *list;
	size_t n = ctl_get_array(doc, "features", &list);

	for (size_t i = 0; i < n; i++) {
		struct json_object *f = json_object_array_get_idx(list, i);
		char name[CTL_CELL_MAX], state[CTL_CELL_MAX], why[CTL_CELL_MAX];

		ctl_get_text(f, "name", name, sizeof(name));
		ctl_get_text(f, "state", state, sizeof(state));
		ctl_get_text(f, "why", why, sizeof(why));
		if (strcmp(state, "on") != 0 && strcmp(state, "auto") != 0)
			(void)fprintf(out, "%-8s %s (%s): %s\n", "without",
				      name, state, why);
	}
}

/* Who reads what is open, and why the kernel does not although it could. */
static void print_opens(struct json_object *doc, FILE *out)
{
	struct json_object *opens = ctl_get(ctl_get(doc, "view"), "opens");
	char text[CTL_CELL_MAX];

	if (!json_object_is_type(opens, json_type_object))
		return;
	(void)fprintf(
		out,
		"%-8s %llu files, %llu of them read by the kernel itself; %llu could be when they are opened again\n",
		"open",
		(unsigned long long)(ctl_get_num(opens, "cached") +
				     ctl_get_num(opens, "passthrough") +
				     ctl_get_num(opens, "healed")),
		(unsigned long long)ctl_get_num(opens, "passthrough"),
		(unsigned long long)ctl_get_num(opens, "changeable"));
	ctl_get_text(opens, "refused", text, sizeof(text));
	if (text[0] && strcmp(text, "-") != 0)
		(void)fprintf(
			out,
			"%-8s passthrough (refused by the kernel: %s): reads of complete files go through the daemon\n",
			"without", text);
}

/* What the kernel verifies by now, and what keeps it from more. */
static void print_sealing(struct json_object *doc, FILE *out)
{
	struct json_object *s = ctl_get(doc, "sealing");
	char text[CTL_CELL_MAX], size[CTL_CELL_MAX];
	uint64_t n;

	if (!json_object_is_type(s, json_type_object))
		return;
	ctl_get_text(s, "state", text, sizeof(text));
	if (strcmp(text, "on") != 0) {
		ctl_get_text(s, "reason", text, sizeof(text));
		(void)fprintf(out, "%-8s off: %s\n", "sealing", text);
		return;
	}
	ctl_human_size(size, sizeof(size), ctl_get_num(s, "bytes"));
	(void)fprintf(
		out, "%-8s %" PRIu64 " files (%s) sealed, %" PRIu64 " queued\n",
		"sealing", ctl_get_num(s, "files"), size,
		ctl_get_num(s, "queued"));
	n = ctl_get_num(s, "waiting");
	ctl_get_text(s, "last_error", text, sizeof(text));
	if (n)
		(void)fprintf(out, "%-8s %" PRIu64 " files wait (%s)\n",
			      "sealing", n, text);
	ctl_get_text(ctl_get(s, "helper"), "no_cgroup", text, sizeof(text));
	if (strcmp(text, "-") != 0)
		(void)fprintf(out, "%-8s without a cgroup of its own: %s\n",
			      "sealing", text);
}

/* What was read again, and what came of it. */
static void print_scrub(struct json_object *doc, FILE *out)
{
	struct json_object *s = ctl_get(doc, "scrub");
	char text[CTL_CELL_MAX], size[CTL_CELL_MAX];

	if (!json_object_is_type(s, json_type_object))
		return;
	ctl_get_text(s, "state", text, sizeof(text));
	ctl_human_size(size, sizeof(size), ctl_get_num(s, "bytes"));
	(void)fprintf(out,
		      "%-8s %s, %" PRIu64 " files (%s) read, %" PRIu64 " bad\n",
		      "scrub", text, ctl_get_num(s, "files"), size,
		      ctl_get_num(s, "bad"));
	ctl_get_text(s, "last_bad", text, sizeof(text));
	if (ctl_get_num(s, "bad"))
		(void)fprintf(out,
			      "%-8s %" PRIu64 " not healed; the last bad: %s\n",
			      "scrub", ctl_get_num(s, "not_healed"), text);
	ctl_get_text(s, "no_kernel_log", text, sizeof(text));
	if (strcmp(text, "-") != 0)
		(void)fprintf(out, "%-8s the kernel's log is not watched: %s\n",
			      "scrub", text);
}

/* How image bytes pass through the page cache, for each file system. */
static void print_page_cache(struct json_object *doc, FILE *out)
{
	struct json_object *list;
	size_t n = ctl_get_array(doc, "page_cache", &list);

	for (size_t i = 0; i < n; i++) {
		struct json_object *f = json_object_array_get_idx(list, i);
		char device[CTL_CELL_MAX], way[CTL_CELL_MAX];

		ctl_get_text(f, "device", device, sizeof(device));
		ctl_get_text(f, "way", way, sizeof(way));
		(void)fprintf(out, "%-8s %s on device %s\n", "cache", way,
			      device);
	}
}

/* Containers that outlived a daemon, each with what to do. */
static void print_broken(struct json_object *doc, FILE *out)
{
	struct json_object *list;
	size_t n = ctl_get_array(doc, "broken", &list);

	for (size_t i = 0; i < n; i++) {
		struct json_object *b = json_object_array_get_idx(list, i);
		char name[CTL_CELL_MAX], mount[CTL_CELL_MAX];

		ctl_get_text(b, "container", name, sizeof(name));
		ctl_get_text(b, "mount", mount, sizeof(mount));
		(void)fprintf(
			out,
			"%-8s %s: on layers of an earlier daemon, restart it (%s)\n",
			"broken", name, mount);
	}
}

/* Who is left for others, or was found lying; nothing of those who are well. */
static void print_host(const char *registry, struct json_object *h, bool others,
		       FILE *out)
{
	char url[CTL_CELL_MAX], why[CTL_CELL_MAX];
	uint64_t left = ctl_get_num(h, "left_s");
	uint64_t wrong = ctl_get_num(h, "wrong_bytes");

	ctl_get_text(h, "url", url, sizeof(url));
	if (ctl_get_num(h, "failures")) {
		ctl_get_text(h, "reason", why, sizeof(why));
		(void)fprintf(out, "%-8s %s: %s fails: %s", "registry",
			      registry, url, why);
		if (left && others)
			(void)fprintf(out, " (others first for %" PRIu64 " s)",
				      left);
		(void)fputs("\n", out);
	}
	if (wrong)
		(void)fprintf(out,
			      "%-8s %s: %s sent wrong bytes %" PRIu64
			      " time%s\n",
			      "registry", registry, url, wrong,
			      wrong == 1 ? "" : "s");
}

static void print_registries(struct json_object *doc, FILE *out)
{
	struct json_object *list, *hosts;
	size_t n = ctl_get_array(doc, "registries", &list);

	for (size_t i = 0; i < n; i++) {
		struct json_object *r = json_object_array_get_idx(list, i);
		char name[CTL_CELL_MAX], error[CTL_CELL_MAX];
		size_t n_hosts = ctl_get_array(r, "hosts", &hosts);

		ctl_get_text(r, "registry", name, sizeof(name));
		ctl_get_text(r, "error", error, sizeof(error));
		if (strcmp(error, "-") != 0)
			(void)fprintf(out, "%-8s %s: not usable: %s\n",
				      "registry", name, error);
		for (size_t k = 0; k < n_hosts; k++)
			print_host(name, json_object_array_get_idx(hosts, k),
				   n_hosts > 1, out);
	}
}

/* What the daemon's own limits hold up or have refused. */
static void print_limits(struct json_object *doc, FILE *out)
{
	struct json_object *l = ctl_get(doc, "limits");
	uint64_t queued, refused;

	if (!json_object_is_type(l, json_type_object))
		return;
	queued = ctl_get_num(l, "requests_queued");
	refused = ctl_get_num(l, "readers_refused");
	if (queued)
		(void)fprintf(out,
			      "%-8s %" PRIu64
			      " requests wait for a connection (%" PRIu64
			      " of %" PRIu64 " in use)\n",
			      "limits", queued, ctl_get_num(l, "connections"),
			      ctl_get_num(l, "connections_max"));
	if (refused)
		(void)fprintf(
			out,
			"%-8s %" PRIu64
			" reads were refused with EBUSY: more than %" PRIu64
			" waited for one registry\n",
			"limits", refused,
			ctl_get_num(l, "readers_of_a_registry_max"));
}

static void fill_row(struct json_object *l, struct row *r)
{
	char text[CTL_CELL_MAX];
	const char *hex;

	ctl_get_text(l, "digest", text, sizeof(text));
	hex = strchr(text, ':');
	(void)snprintf(r->cell[DIGEST], CTL_CELL_MAX, "%.*s", DIGEST_SHORT,
		       hex ? hex + 1 : text);
	ctl_get_text(l, "state", r->cell[STATE], CTL_CELL_MAX);
	get_size(l, "bytes_local", r->cell[LOCAL], CTL_CELL_MAX);
	get_size(l, "bytes_total", r->cell[TOTAL], CTL_CELL_MAX);
	ctl_get_text(l, "waiting", r->cell[WAITING], CTL_CELL_MAX);
	ctl_get_text(l, "image", r->cell[IMAGE], CTL_CELL_MAX);
	ctl_get_text(l, "reason", r->cell[REASON], CTL_CELL_MAX);
}

static void print_row(const struct row *r, const int *widths, FILE *out)
{
	for (int c = 0; c < N_COLUMNS; c++) {
		bool right = c == LOCAL || c == TOTAL || c == WAITING;

		/* No blanks at the end of a line. */
		put_cell(out, r->cell[c], c == REASON ? 0 : widths[c], right);
		(void)fputs(c == REASON ? "\n" : "  ", out);
	}
}

/* What the readers of a layer wait for, in a line of its own. */
static void print_waiting(struct json_object *layer, FILE *out)
{
	struct json_object *v = ctl_get(layer, "waiting_for");
	const char *s = json_object_get_string(v);
	char text[CTL_CELL_MAX];

	if (!json_object_is_type(v, json_type_string) || !*s)
		return;
	ctl_clean(text, sizeof(text), s);
	(void)fprintf(out, "%*s  waits for %s\n", DIGEST_SHORT, "", text);
}

/* Content that was damaged, has been replaced, and is still being used. */
static void print_old_files(struct json_object *layer, FILE *out)
{
	uint64_t n = ctl_get_num(layer, "old_files");

	if (n > 0)
		(void)fprintf(
			out,
			"%*s  damaged content of %llu %s, replaced since, is still open or mapped: restart what uses it\n",
			DIGEST_SHORT, "", (unsigned long long)n,
			n == 1 ? "file" : "files");
}

static void print_layers(struct json_object *list, FILE *out)
{
	size_t n = json_object_array_length(list);
	int widths[N_COLUMNS];
	struct row r;

	for (int c = 0; c < N_COLUMNS; c++)
		widths[c] = ctl_width(titles[c]);
	for (size_t i = 0; i < n; i++) {
		fill_row(json_object_array_get_idx(list, i), &r);
		for (int c = 0; c < N_COLUMNS; c++)
			if (ctl_width(r.cell[c]) > widths[c])
				widths[c] = ctl_width(r.cell[c]);
	}
	for (int c = 0; c < N_COLUMNS; c++)
		(void)snprintf(r.cell[c], CTL_CELL_MAX, "%s", titles[c]);
	print_row(&r, widths, out);
	for (size_t i = 0; i < n; i++) {
		struct json_object *l = json_object_array_get_idx(list, i);

		fill_row(l, &r);
		print_row(&r, widths, out);
		print_waiting(l, out);
		print_old_files(l, out);
	}
}

int ctl_status_print(struct json_object *doc, FILE *out, struct err *e)
{
	struct json_object *layers = ctl_get(doc, "layers");

	if (!json_object_is_type(layers, json_type_array))
		return err_set(e, ERR_INVALID,
			       "the daemon's answer has no list of layers");
	print_daemon(doc, out);
	print_features(doc, out);
	print_opens(doc, out);
	print_sealing(doc, out);
	print_scrub(doc, out);
	print_page_cache(doc, out);
	print_registries(doc, out);
	print_limits(doc, out);
	print_broken(doc, out);
	(void)fputs("\n", out);
	if (json_object_array_length(layers) == 0)
		(void)fputs("no layers\n", out);
	else
		print_layers(layers, out);
	return 0;
}
