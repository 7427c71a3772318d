/* SPDX-License-Identifier: Apache-2.0 */
/* Status for people; see ctl_status.h. Two passes: widths, then rows. */
#include "plugin/ctl_status.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define DIGEST_SHORT 12
#define CELL_MAX 256

enum column { DIGEST, STATE, LOCAL, TOTAL, WAITING, IMAGE, REASON, N_COLUMNS };

static const char *const titles[N_COLUMNS] = {
	[DIGEST] = "LAYER",  [STATE] = "STATE",     [LOCAL] = "LOCAL",
	[TOTAL] = "TOTAL",   [WAITING] = "WAITING", [IMAGE] = "IMAGE",
	[REASON] = "REASON",
};

struct row {
	char cell[N_COLUMNS][CELL_MAX];
};

/* ---- text ---- */

/*
 * Copies @s for a terminal: C0 and C1 controls and DEL become '?', and a
 * sequence is not cut in the middle. json-c gives UTF-8.
 */
static void clean(char *out, size_t size, const char *s)
{
	size_t n = 0;

	while (*s && n + 4 < size) {
		unsigned char c = (unsigned char)*s;
		bool c1 = c == 0xc2 && (unsigned char)s[1] >= 0x80 &&
			  (unsigned char)s[1] <= 0x9f;

		if (c < 0x20 || c == 0x7f || c1) {
			out[n++] = '?';
			s += c1 ? 2 : 1;
			continue;
		}
		do
			out[n++] = *s++;
		while (n + 1 < size && ((unsigned char)*s & 0xc0) == 0x80);
	}
	out[n] = '\0';
}

/* Characters, not bytes; wide ones may spoil a column, nothing else. */
static int width(const char *s)
{
	int n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

static void put_cell(FILE *out, const char *s, int w, bool right)
{
	int pad = w - width(s);

	if (right)
		(void)fprintf(out, "%*s%s", pad > 0 ? pad : 0, "", s);
	else
		(void)fprintf(out, "%s%*s", s, pad > 0 ? pad : 0, "");
}

static void human_size(char *out, size_t size, int64_t bytes)
{
	static const char *const units[] = { "B",   "KiB", "MiB",
					     "GiB", "TiB", "PiB" };
	double v = (double)bytes;
	size_t u = 0;

	while (v >= 1024 && u + 1 < sizeof(units) / sizeof(*units)) {
		v /= 1024;
		u++;
	}
	(void)snprintf(out, size, u ? "%.1f %s" : "%.0f %s", v, units[u]);
}

/* ---- members ---- */

static struct json_object *get(struct json_object *o, const char *name)
{
	struct json_object *v = NULL;

	(void)json_object_object_get_ex(o, name, &v);
	return v;
}

static void get_text(struct json_object *o, const char *name, char *out,
		     size_t size)
{
	struct json_object *v = get(o, name);
	const char *s = v ? json_object_get_string(v) : NULL;

	clean(out, size, s && *s ? s : "-");
}

static void get_size(struct json_object *o, const char *name, char *out,
		     size_t size)
{
	struct json_object *v = get(o, name);

	if (json_object_is_type(v, json_type_int))
		human_size(out, size, json_object_get_int64(v));
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
	char text[CELL_MAX], pid[CELL_MAX];

	get_text(doc, "version", text, sizeof(text));
	get_text(doc, "pid", pid, sizeof(pid));
	(void)fprintf(out, "verity-snapshotter %s, pid %s, up ", text, pid);
	print_uptime(out, json_object_get_int64(get(doc, "uptime_s")));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		get_text(doc, names[i], text, sizeof(text));
		(void)fprintf(out, "%-8s %s\n", names[i], text);
	}
}

/* Only what is missing: each absence with what it costs. */
static void print_features(struct json_object *list, FILE *out)
{
	size_t n = json_object_is_type(list, json_type_array)
			   ? json_object_array_length(list)
			   : 0;

	for (size_t i = 0; i < n; i++) {
		struct json_object *f = json_object_array_get_idx(list, i);
		char name[CELL_MAX], state[CELL_MAX], why[CELL_MAX];

		get_text(f, "name", name, sizeof(name));
		get_text(f, "state", state, sizeof(state));
		get_text(f, "why", why, sizeof(why));
		if (strcmp(state, "on") != 0 && strcmp(state, "auto") != 0)
			(void)fprintf(out, "%-8s %s (%s): %s\n", "without",
				      name, state, why);
	}
}

/* Containers that outlived a daemon, each with what to do. */
static void print_broken(struct json_object *list, FILE *out)
{
	size_t n = json_object_is_type(list, json_type_array)
			   ? json_object_array_length(list)
			   : 0;

	for (size_t i = 0; i < n; i++) {
		struct json_object *b = json_object_array_get_idx(list, i);
		char name[CELL_MAX], mount[CELL_MAX];

		get_text(b, "container", name, sizeof(name));
		get_text(b, "mount", mount, sizeof(mount));
		(void)fprintf(
			out,
			"%-8s %s: on layers of an earlier daemon, restart it (%s)\n",
			"broken", name, mount);
	}
}

static void fill_row(struct json_object *l, struct row *r)
{
	char text[CELL_MAX];
	const char *hex;

	get_text(l, "digest", text, sizeof(text));
	hex = strchr(text, ':');
	(void)snprintf(r->cell[DIGEST], CELL_MAX, "%.*s", DIGEST_SHORT,
		       hex ? hex + 1 : text);
	get_text(l, "state", r->cell[STATE], CELL_MAX);
	get_size(l, "bytes_local", r->cell[LOCAL], CELL_MAX);
	get_size(l, "bytes_total", r->cell[TOTAL], CELL_MAX);
	get_text(l, "waiting", r->cell[WAITING], CELL_MAX);
	get_text(l, "image", r->cell[IMAGE], CELL_MAX);
	get_text(l, "reason", r->cell[REASON], CELL_MAX);
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
	struct json_object *v = get(layer, "waiting_for");
	const char *s = json_object_get_string(v);
	char text[CELL_MAX];

	if (!json_object_is_type(v, json_type_string) || !*s)
		return;
	clean(text, sizeof(text), s);
	(void)fprintf(out, "%*s  waits for %s\n", DIGEST_SHORT, "", text);
}

static void print_layers(struct json_object *list, FILE *out)
{
	size_t n = json_object_array_length(list);
	int widths[N_COLUMNS];
	struct row r;

	for (int c = 0; c < N_COLUMNS; c++)
		widths[c] = width(titles[c]);
	for (size_t i = 0; i < n; i++) {
		fill_row(json_object_array_get_idx(list, i), &r);
		for (int c = 0; c < N_COLUMNS; c++)
			if (width(r.cell[c]) > widths[c])
				widths[c] = width(r.cell[c]);
	}
	for (int c = 0; c < N_COLUMNS; c++)
		(void)snprintf(r.cell[c], CELL_MAX, "%s", titles[c]);
	print_row(&r, widths, out);
	for (size_t i = 0; i < n; i++) {
		struct json_object *l = json_object_array_get_idx(list, i);

		fill_row(l, &r);
		print_row(&r, widths, out);
		print_waiting(l, out);
	}
}

int ctl_status_print(struct json_object *doc, FILE *out, struct err *e)
{
	struct json_object *layers = get(doc, "layers");

	if (!json_object_is_type(layers, json_type_array))
		return err_set(e, ERR_INVALID,
			       "the daemon's answer has no list of layers");
	print_daemon(doc, out);
	print_features(get(doc, "features"), out);
	print_broken(get(doc, "broken"), out);
	(void)fputs("\n", out);
	if (json_object_array_length(layers) == 0)
		(void)fputs("no layers\n", out);
	else
		print_layers(layers, out);
	return 0;
}
