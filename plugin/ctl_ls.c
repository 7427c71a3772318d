/* SPDX-License-Identifier: Apache-2.0 */
/* The list of images for people and programs; see ctl_ls.h. */
#include "plugin/ctl_ls.h"

#include <string.h>

#include "plugin/ctl_client.h"
#include "plugin/ctl_text.h"
#include "snapshotter/registry.h"

#define DIGEST_SHORT (sizeof("sha256:") - 1 + 12)

enum column { NAMESPACE, DIGEST, LAZY, IMAGE, REASON, N_COLUMNS };

struct row {
	char cell[N_COLUMNS][CTL_CELL_MAX];
};

/* What the user asks for, taken apart. */
struct wanted {
	const char *image; /* NULL: everything */
	struct image_ref ref;
	const char *suffix; /* "": any */
};

static int parse_wanted(const char *image, struct wanted *w, struct err *e)
{
	const char *last;

	memset(w, 0, sizeof(*w));
	w->image = image;
	if (!image)
		return 0;
	if (image_ref_parse(image, &w->ref, e) < 0)
		return -1;
	last = strrchr(image, '/');
	last = last ? last : image;
	w->suffix = last + strcspn(last, ":@");
	return 0;
}

static const char *text_of(struct json_object *o, const char *name)
{
	struct json_object *v = ctl_get(o, name);

	return json_object_is_type(v, json_type_string)
		       ? json_object_get_string(v)
		       : "";
}

static bool is_wanted(const struct wanted *w, struct json_object *im)
{
	if (!w->image || !strcmp(text_of(im, "name"), w->image))
		return true;
	return !strcmp(text_of(im, "host"), w->ref.host) &&
	       !strcmp(text_of(im, "repository"), w->ref.repo) &&
	       (!*w->suffix || !strcmp(text_of(im, "suffix"), w->suffix));
}

static void fill_row(struct json_object *im, struct row *r)
{
	bool lazy = json_object_get_boolean(ctl_get(im, "lazy"));

	ctl_get_text(im, "namespace", r->cell[NAMESPACE], CTL_CELL_MAX);
	ctl_get_text(im, "digest", r->cell[DIGEST], CTL_CELL_MAX);
	r->cell[DIGEST][DIGEST_SHORT] = '\0';
	(void)snprintf(r->cell[LAZY], CTL_CELL_MAX, "%s", lazy ? "yes" : "no");
	ctl_get_text(im, "name", r->cell[IMAGE], CTL_CELL_MAX);
	ctl_get_text(im, "reason", r->cell[REASON], CTL_CELL_MAX);
}

static void print_row(const struct row *r, const int *width, FILE *out)
{
	for (int c = 0; c < N_COLUMNS; c++) {
		int pad = width[c] - ctl_width(r->cell[c]);

		if (c == N_COLUMNS - 1)
			(void)fprintf(out, "%s\n", r->cell[c]);
		else
			(void)fprintf(out, "%s%*s", r->cell[c],
				      (pad > 0 ? pad : 0) + 2, "");
	}
}

/* Two passes: widths, then rows. */
static void print_table(struct json_object *list, FILE *out)
{
	const struct row title = { { [NAMESPACE] = "NAMESPACE",
				     [DIGEST] = "DIGEST",
				     [LAZY] = "LAZY",
				     [IMAGE] = "IMAGE",
				     [REASON] = "REASON" } };
	size_t n = json_object_array_length(list);
	int width[N_COLUMNS];
	struct row r;

	for (int c = 0; c < N_COLUMNS; c++)
		width[c] = ctl_width(title.cell[c]);
	for (size_t i = 0; i < n; i++) {
		fill_row(json_object_array_get_idx(list, i), &r);
		for (int c = 0; c < N_COLUMNS; c++)
			if (ctl_width(r.cell[c]) > width[c])
				width[c] = ctl_width(r.cell[c]);
	}
	print_row(&title, width, out);
	for (size_t i = 0; i < n; i++) {
		fill_row(json_object_array_get_idx(list, i), &r);
		print_row(&r, width, out);
	}
}

static void print_containerd(struct json_object *doc, FILE *out)
{
	struct json_object *c = ctl_get(doc, "containerd");
	char address[CTL_CELL_MAX], reason[CTL_CELL_MAX];

	if (json_object_get_boolean(ctl_get(c, "connected")))
		return;
	ctl_get_text(c, "address", address, sizeof(address));
	ctl_get_text(c, "reason", reason, sizeof(reason));
	(void)fprintf(out,
		      "containerd (%s) cannot be asked now, this is what was "
		      "known last: %s\n",
		      address, reason);
}

/* A new list: the wanted ones. NULL: no memory. */
static struct json_object *select_wanted(struct json_object *doc,
					 const struct wanted *w)
{
	struct json_object *all, *list = json_object_new_array();
	size_t n = ctl_get_array(doc, "images", &all);

	for (size_t i = 0; list && i < n; i++) {
		struct json_object *im = json_object_array_get_idx(all, i);

		if (is_wanted(w, im) &&
		    json_object_array_add(list, json_object_get(im)) < 0) {
			json_object_put(im);
			json_object_put(list);
			list = NULL;
		}
	}
	return list;
}

int ctl_ls_print(struct json_object *doc, const struct ls_opts *o,
		 struct err *e)
{
	struct json_object *list;
	struct wanted w;

	if (parse_wanted(o->image, &w, e) < 0)
		return -1;
	if (!json_object_is_type(ctl_get(doc, "images"), json_type_array))
		return err_set(e, ERR_INVALID,
			       "the daemon's answer has no list of images");
	list = select_wanted(doc, &w);
	if (!list || json_object_object_add(doc, "images", list) < 0) {
		json_object_put(list);
		return err_sys(e, -ENOMEM, "images");
	}
	if (o->json) {
		(void)fprintf(o->out, "%s\n",
			      json_object_to_json_string_ext(
				      doc, JSON_C_TO_STRING_PLAIN));
	} else {
		print_containerd(doc, o->out);
		print_table(list, o->out);
	}
	if (fflush(o->out) != 0 || ferror(o->out))
		return err_sys(e, -errno, "write the list");
	if (o->image && json_object_array_length(list) == 0)
		return err_set(e, ERR_UNAVAILABLE,
			       "containerd has no image '%s'", o->image);
	return 0;
}

int ctl_ls(const struct ls_opts *o, struct err *e)
{
	owned(json) struct json_object *doc = NULL;
	owned(buf) struct buf answer = { 0 };

	if (ctl_ask(o->run, "images\n", &answer, &doc, e) < 0)
		return -1;
	return ctl_ls_print(doc, o, e);
}
