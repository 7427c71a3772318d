/* SPDX-License-Identifier: Apache-2.0 */
/* See ctl_scrub.h. The daemon reads whether anybody looks on or not. */
#include "plugin/ctl_scrub.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "plugin/ctl_client.h"
#include "plugin/ctl_pull_status.h"
#include "plugin/ctl_text.h"

#define LOOK_FIRST_MS 20 /* and half as much longer each time */
#define LOOK_LAST_MS 1000
#define SEQS_PER_REQUEST 64 /* a request is one line, of 1 KiB */

/* What is added up while the daemon runs; the text: of one, of several. */
static const struct total {
	const char *name;
	const char *text; /* NULL: not of its own */
	bool bad;
} totals[] = {
	{ "files", NULL, false },
	{ "bytes", NULL, false },
	{ "bad", NULL, true },
	{ "healed", "healed: another file has its place", false },
	{ "fetching", "healed as soon as what is missing is fetched", false },
	{ "leaf_logs", "leaf log written anew", false },
	{ "new_layers",
	  "index or map of a layer: pull the image again, then recreate its containers",
	  false },
	{ "not_healed", "not healed, see the log", true },
	{ "skipped", "not looked at, see the log", true },
};

static uint64_t difference(struct json_object *before,
			   struct json_object *after, const char *name)
{
	uint64_t a = ctl_get_num(ctl_get(before, "scrub"), name);
	uint64_t b = ctl_get_num(ctl_get(after, "scrub"), name);

	return b > a ? b - a : 0;
}

static bool is_bad(struct json_object *before, struct json_object *after)
{
	for (size_t i = 0; i < ARRAY_LEN(totals); i++)
		if (totals[i].bad && difference(before, after, totals[i].name))
			return true;
	return false;
}

bool ctl_scrub_print(struct json_object *before, struct json_object *after,
		     FILE *out)
{
	uint64_t n_bad = difference(before, after, "bad");
	char size[CTL_CELL_MAX], text[CTL_CELL_MAX];

	ctl_human_size(size, sizeof(size), difference(before, after, "bytes"));
	(void)fprintf(out, "%" PRIu64 " files (%s) read: ",
		      difference(before, after, "files"), size);
	if (n_bad)
		(void)fprintf(out, "%" PRIu64 " bad\n", n_bad);
	else
		(void)fprintf(out, "nothing bad\n");
	for (size_t i = 0; i < ARRAY_LEN(totals); i++) {
		uint64_t n = difference(before, after, totals[i].name);

		if (n && totals[i].text)
			(void)fprintf(out, "%6" PRIu64 " %s\n", n,
				      totals[i].text);
	}
	if (n_bad) {
		ctl_get_text(ctl_get(after, "scrub"), "last_bad", text,
			     sizeof(text));
		(void)fprintf(out, "the last one: %s\n", text);
	}
	return is_bad(before, after);
}

static int print_json(struct json_object *before, struct json_object *after,
		      FILE *out, struct err *e)
{
	owned(json) struct json_object *doc = json_object_new_object();

	for (size_t i = 0; doc && i < ARRAY_LEN(totals); i++) {
		uint64_t n = difference(before, after, totals[i].name);

		if (json_object_object_add(doc, totals[i].name,
					   json_object_new_uint64(n)) < 0)
			return err_sys(e, -ENOMEM, "answer");
	}
	if (!doc)
		return err_sys(e, -ENOMEM, "answer");
	(void)fprintf(out, "%s\n", json_object_to_json_string(doc));
	return 0;
}

/* ---- asking ---- */

static int ask(const char *run, const char *request, struct json_object **ret,
	       struct err *e)
{
	owned(buf) struct buf answer = { 0 };

	return ctl_ask(run, request, &answer, ret, e);
}

static int submit(const char *run, const char *request, uint64_t *ret,
		  struct err *e)
{
	owned(json) struct json_object *doc = NULL;

	if (ask(run, request, &doc, e) < 0)
		return -1;
	*ret = ctl_get_num(doc, "ticket");
	return 0;
}

/* All layers of the image. */
static int submit_image(const struct scrub_opts *o, struct json_object *doc,
			uint64_t *ret, struct err *e)
{
	owned(mem) uint64_t *seqs = NULL;
	size_t n = 0;

	if (pull_layer_seqs(doc, o->image, &seqs, &n, e) < 0)
		return -1;
	if (!n)
		return err_set(e, ERR_UNAVAILABLE,
			       "no layer of '%s' is served from here",
			       o->image);
	for (size_t i = 0; i < n;) {
		owned(buf) struct buf rq = { 0 };

		(void)buf_adds(&rq, "scrub");
		for (size_t k = 0; k < SEQS_PER_REQUEST && i < n; k++)
			(void)buf_addf(&rq, " %" PRIu64, seqs[i++]);
		if (buf_adds(&rq, "\n") < 0)
			return err_sys(e, -ENOMEM, "layers of '%s'", o->image);
		if (submit(o->run, (const char *)rq.p, ret, e) < 0)
			return -1;
	}
	return 0;
}

static int wait_for_end(const struct scrub_opts *o, uint64_t ticket,
			struct json_object *before, struct json_object **ret,
			struct err *e)
{
	long ms = LOOK_FIRST_MS;

	for (;; ms = ms * 3 / 2 < LOOK_LAST_MS ? ms * 3 / 2 : LOOK_LAST_MS) {
		const struct timespec pause = { ms / 1000,
						ms % 1000 * 1000000l };
		owned(json) struct json_object *doc = NULL;

		if (ask(o->run, "status\n", &doc, e) < 0)
			return -1;
		if (ctl_get_num(doc, "pid") != ctl_get_num(before, "pid"))
			return err_set(
				e, ERR_UNAVAILABLE,
				"the daemon was started anew meanwhile; ask again");
		if (ctl_get_num(ctl_get(doc, "scrub"), "finished") >= ticket) {
			*ret = take_ptr(&doc);
			return 0;
		}
		(void)nanosleep(&pause, NULL);
	}
}

int ctl_scrub(const struct scrub_opts *o, bool *ret_bad, struct err *e)
{
	owned(json) struct json_object *before = NULL;
	owned(json) struct json_object *after = NULL;
	uint64_t ticket = 0;
	bool bad;

	if (ask(o->run, "status\n", &before, e) < 0)
		return -1;
	if (o->image ? submit_image(o, before, &ticket, e) < 0
		     : submit(o->run, "scrub all\n", &ticket, e) < 0)
		return -1;
	*ret_bad = false;
	if (o->no_wait)
		return 0;
	if (wait_for_end(o, ticket, before, &after, e) < 0)
		return -1;
	bad = is_bad(before, after);
	if (!o->json)
		(void)ctl_scrub_print(before, after, o->out);
	else if (print_json(before, after, o->out, e) < 0)
		return -1;
	if (fflush(o->out) != 0 || ferror(o->out))
		return err_sys(e, -errno, "write the answer");
	*ret_bad = bad;
	return 0;
}
