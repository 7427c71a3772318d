/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress of an image; see ctl_pull_status.h. The daemon is asked again and
 * again: a fill goes on whether anybody looks or not.
 */
#include "plugin/ctl_pull_status.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>

#include "base/io.h"
#include "plugin/ctl_client.h"
#include "plugin/ctl_text.h"
#include "snapshotter/registry.h"

#define LOOK_EVERY_MS 1000
#define LINE_EVERY_MS 2000 /* without a terminal, while the state is the same */
#define WIDTH_DEFAULT 80
#define WIDTH_MAX 400
#define BAR_MAX 40
#define REF_MAX 1024

static const char *const state_names[] = {
	[PULL_UNKNOWN] = "unknown",   [PULL_BAD] = "bad",
	[PULL_FETCHING] = "fetching", [PULL_COMPLETE] = "complete",
	[PULL_PROVEN] = "proven",     [PULL_FALLBACK] = "fallback",
};

const char *pull_state_name(enum pull_state st)
{
	return state_names[st];
}

/* ---- sums ---- */

/* One text for all spellings of a reference. */
static int full_name(const char *image, char *out, size_t size, struct err *e)
{
	const char *digest = strchr(image, '@');
	struct image_ref ref;

	if (image_ref_parse(image, &ref, e) < 0)
		return -1;
	(void)snprintf(out, size, "%s/%s%s%s%s", ref.host, ref.repo,
		       ref.tag[0] ? ":"
		       : digest   ? ""
				  : ":latest",
		       ref.tag, digest ? digest : "");
	return 0;
}

static bool is_of(struct json_object *layer, const char *want)
{
	const char *image = json_object_get_string(ctl_get(layer, "image"));
	char name[REF_MAX];
	struct err e = ERR_INIT;

	return image && full_name(image, name, sizeof(name), &e) == 0 &&
	       !strcmp(name, want);
}

static void add_layer(struct json_object *layer, struct pull_sum *ps)
{
	const char *state = json_object_get_string(ctl_get(layer, "state"));
	const char *why = json_object_get_string(ctl_get(layer, "reason"));
	bool bad, fetching;

	if (!state)
		state = "";
	bad = !strcmp(state, "bad");
	fetching = !strcmp(state, "lazy");
	ps->n_layers++;
	/* What is worst is told, and of two that are the same the first. */
	if (why && *why &&
	    (!ps->reason[0] || (bad && ps->state != PULL_BAD) ||
	     (fetching && ps->state == PULL_UNKNOWN)))
		ctl_clean(ps->reason, sizeof(ps->reason), why);
	if (bad)
		ps->state = PULL_BAD;
	else if (fetching && ps->state != PULL_BAD)
		ps->state = PULL_FETCHING;
	if (!strcmp(state, "fallback")) {
		ps->n_fallback++;
		return;
	}
	ps->n_complete += !bad && !fetching;
	ps->n_proven +=
		json_object_get_boolean(ctl_get(layer, "proven")) ? 1 : 0;
	ps->bytes_total += ctl_get_num(layer, "bytes_total");
	ps->bytes_local += ctl_get_num(layer, "bytes_local");
	ps->n_waiting += (unsigned)ctl_get_num(layer, "waiting");
}

/* Where layer @seq stands in the list, or @n. */
static size_t find_seq(const uint64_t *seqs, size_t n, struct json_object *seq)
{
	uint64_t want = (uint64_t)json_object_get_int64(seq);
	size_t i = 0;

	while (i < n && seqs[i] != want)
		i++;
	return i;
}

/*
 * Layers below those of the image are its own, too, whoever brought them:
 * containerd does not ask again for what it has. @mine: grows until nothing is
 * left to add.
 */
static void add_below(struct json_object *doc, const uint64_t *seqs, bool *mine,
		      size_t n)
{
	struct json_object *pairs;
	size_t n_pairs = ctl_get_array(doc, "below", &pairs);
	bool again;

	do {
		again = false;
		for (size_t i = 0; i < n_pairs; i++) {
			struct json_object *p =
				json_object_array_get_idx(pairs, i);
			size_t top, below;

			if (!json_object_is_type(p, json_type_array) ||
			    json_object_array_length(p) != 2)
				continue;
			top = find_seq(seqs, n,
				       json_object_array_get_idx(p, 0));
			below = find_seq(seqs, n,
					 json_object_array_get_idx(p, 1));
			if (top == n || below == n || !mine[top] || mine[below])
				continue;
			mine[below] = again = true;
		}
	} while (again);
}

/* The layers of a document, and which of them are the image's. */
struct found {
	struct json_object *layers;
	size_t n;
	uint64_t *seqs; /* UINT64_MAX: has none */
	bool *mine;
};

static void found_release(struct found *f)
{
	free(f->seqs);
	free(f->mine);
}

static void owned_found(struct found *f)
{
	found_release(f);
}

static int find_layers(struct json_object *doc, const char *image,
		       struct found *f, struct err *e)
{
	char want[REF_MAX];

	f->n = ctl_get_array(doc, "layers", &f->layers);
	f->seqs = calloc(f->n + 1, sizeof(*f->seqs));
	f->mine = calloc(f->n + 1, sizeof(*f->mine));
	if (!f->seqs || !f->mine)
		return err_sys(e, -ENOMEM, "layers of '%s'", image);
	if (!json_object_is_type(f->layers, json_type_array))
		return err_set(e, ERR_INVALID,
			       "the daemon's answer has no list of layers");
	if (full_name(image, want, sizeof(want), e) < 0)
		return -1;
	for (size_t i = 0; i < f->n; i++) {
		struct json_object *l = json_object_array_get_idx(f->layers, i);

		/* Those that containerd unpacked have no number. */
		f->seqs[i] =
			ctl_get(l, "seq") ? ctl_get_num(l, "seq") : UINT64_MAX;
		f->mine[i] = is_of(l, want);
	}
	add_below(doc, f->seqs, f->mine, f->n);
	return 0;
}

int pull_sum_up(struct json_object *doc, const char *image,
		struct pull_sum *ret, struct err *e)
{
	owned(found) struct found f = { 0 };
	struct pull_sum ps = { .state = PULL_UNKNOWN };

	if (find_layers(doc, image, &f, e) < 0)
		return -1;
	for (size_t i = 0; i < f.n; i++)
		if (f.mine[i])
			add_layer(json_object_array_get_idx(f.layers, i), &ps);
	if (ps.n_layers && ps.state == PULL_UNKNOWN)
		ps.state = ps.n_fallback == ps.n_layers   ? PULL_FALLBACK
			   : ps.n_proven == ps.n_complete ? PULL_PROVEN
							  : PULL_COMPLETE;
	*ret = ps;
	return 0;
}

int pull_layer_seqs(struct json_object *doc, const char *image, uint64_t **ret,
		    size_t *ret_n, struct err *e)
{
	owned(found) struct found f = { 0 };
	size_t n = 0;

	if (find_layers(doc, image, &f, e) < 0)
		return -1;
	for (size_t i = 0; i < f.n; i++)
		if (f.mine[i] && f.seqs[i] != UINT64_MAX)
			f.seqs[n++] = f.seqs[i];
	*ret = take_ptr(&f.seqs);
	*ret_n = n;
	return 0;
}

/* ---- text ---- */

static unsigned percent(const struct pull_sum *ps)
{
	/* 100 is what only a complete image has. */
	if (ps->state != PULL_FETCHING)
		return ps->state == PULL_UNKNOWN || ps->state == PULL_BAD ? 0
									  : 100;
	if (ps->bytes_total == 0 || ps->bytes_local >= ps->bytes_total)
		return ps->bytes_total ? 99 : 0;
	return (unsigned)((double)ps->bytes_local * 100 /
			  (double)ps->bytes_total);
}

/* "fetching 45%, 1.2 MiB of 2.6 MiB, 300.0 KiB/s, 1 of 3 layers" */
static void figures(const struct pull_sum *ps, uint64_t bytes_per_s, char *out,
		    size_t size)
{
	char local[32], total[32], rate[32], ordinary[64] = "";

	ctl_human_size(local, sizeof(local), ps->bytes_local);
	ctl_human_size(total, sizeof(total), ps->bytes_total);
	ctl_human_size(rate, sizeof(rate), bytes_per_s);
	if (ps->n_fallback)
		(void)snprintf(ordinary, sizeof(ordinary),
			       ", %u unpacked by containerd", ps->n_fallback);
	(void)snprintf(out, size, "%s %u%%, %s of %s, %s/s, %u of %u layers%s",
		       pull_state_name(ps->state), percent(ps), local, total,
		       rate, ps->n_complete, ps->n_layers - ps->n_fallback,
		       ordinary);
}

void pull_bar(const struct pull_sum *ps, uint64_t bytes_per_s, unsigned width,
	      char *out, size_t size)
{
	char text[CTL_CELL_MAX];
	unsigned len, bar, full;

	figures(ps, bytes_per_s, text, sizeof(text));
	len = (unsigned)strlen(text);
	if (width >= size)
		width = (unsigned)size - 1;
	/* "[####....] text"; without a bar where it would be a stump */
	bar = width > len + 3 ? width - len - 3 : 0;
	if (bar > BAR_MAX)
		bar = BAR_MAX;
	if (bar < 5) {
		(void)snprintf(out, size, "%.*s", (int)width, text);
		return;
	}
	full = bar * percent(ps) / 100;
	*out++ = '[';
	memset(out, '#', full);
	memset(out + full, '.', bar - full);
	(void)snprintf(out + bar, size - 1 - bar, "] %s", text);
}

static void print_json(const struct pull_opts *o, const struct pull_sum *ps,
		       uint64_t bytes_per_s, struct buf *b)
{
	(void)buf_adds(b, "{\"image\":");
	(void)buf_add_json(b, o->image);
	(void)buf_addf(b,
		       ",\"state\":\"%s\",\"layers\":%u,\"complete\":%u,"
		       "\"proven\":%u,\"fallback\":%u,\"bytes_total\":%" PRIu64
		       ",\"bytes_local\":%" PRIu64 ",\"bytes_per_s\":%" PRIu64
		       ",\"waiting\":%u,\"reason\":",
		       pull_state_name(ps->state), ps->n_layers, ps->n_complete,
		       ps->n_proven, ps->n_fallback, ps->bytes_total,
		       ps->bytes_local, bytes_per_s, ps->n_waiting);
	(void)buf_add_json(b, ps->reason);
	(void)buf_adds(b, "}\n");
}

/* ---- following ---- */

struct follow {
	const struct pull_opts *o;
	bool tty;
	uint64_t last_ms, last_bytes, rate; /* of the look before */
	uint64_t line_ms; /* when a line was printed */
	struct pull_sum line; /* and what it said */
};

static unsigned columns(int fd)
{
	struct winsize ws;

	if (ioctl(fd, TIOCGWINSZ, &ws) < 0 || ws.ws_col == 0)
		return WIDTH_DEFAULT;
	return ws.ws_col < WIDTH_MAX ? ws.ws_col : WIDTH_MAX;
}

/* Of the last second, mixed with what was before: a rate that people can
 * read. Contents that another image brought may vanish with it. */
static void measure(struct follow *f, const struct pull_sum *ps)
{
	uint64_t now = now_ms(), bps = 0;

	if (f->last_ms && now > f->last_ms && ps->bytes_local > f->last_bytes)
		bps = (ps->bytes_local - f->last_bytes) * 1000 /
		      (now - f->last_ms);
	f->rate = f->rate ? (f->rate * 2 + bps) / 3 : bps;
	f->last_ms = now;
	f->last_bytes = ps->bytes_local;
}

static bool is_end(const struct pull_opts *o, enum pull_state st)
{
	return o->no_wait || (st != PULL_FETCHING &&
			      (st != PULL_COMPLETE || !o->until_proven));
}

static void show(struct follow *f, const struct pull_sum *ps, bool end)
{
	FILE *out = f->o->out;
	owned(buf) struct buf doc = { 0 };
	char text[WIDTH_MAX + 1];

	if (f->o->json) {
		print_json(f->o, ps, f->rate, &doc);
		(void)fwrite(doc.p, 1, doc.len, out);
	} else if (f->tty) {
		/* The last column stays free: some terminals wrap there. */
		pull_bar(ps, f->rate, columns(fileno(out)) - 1, text,
			 sizeof(text));
		(void)fprintf(out, "\r%s\033[K%s", text, end ? "\n" : "");
	} else if (end || ps->state != f->line.state ||
		   ps->n_layers != f->line.n_layers ||
		   (ps->bytes_local != f->line.bytes_local &&
		    now_ms() - f->line_ms >= LINE_EVERY_MS)) {
		figures(ps, f->rate, text, sizeof(text));
		(void)fprintf(out, "%s\n", text);
		f->line = *ps;
		f->line_ms = now_ms();
	}
	if (end && !f->o->json && ps->reason[0])
		(void)fprintf(out, "reason: %s\n", ps->reason);
}

static int look(const struct pull_opts *o, struct pull_sum *ret, struct err *e)
{
	owned(json) struct json_object *doc = NULL;
	owned(buf) struct buf answer = { 0 };

	if (ctl_ask(o->run, "status\n", &answer, &doc, e) < 0)
		return -1;
	return pull_sum_up(doc, o->image, ret, e);
}

int pull_status(const struct pull_opts *o, enum pull_state *ret, struct err *e)
{
	struct timespec pause = { .tv_sec = LOOK_EVERY_MS / 1000,
				  .tv_nsec = LOOK_EVERY_MS % 1000 * 1000000L };
	struct follow f = { .o = o, .tty = isatty(fileno(o->out)) == 1 };
	struct pull_sum ps;
	bool end;

	do {
		if (look(o, &ps, e) < 0) {
			/* The message is not to stand behind the bar. */
			if (f.tty && f.last_ms && !o->json)
				(void)fputs("\n", o->out);
			return -1;
		}
		measure(&f, &ps);
		end = is_end(o, ps.state);
		show(&f, &ps, end);
		if (fflush(o->out) != 0 || ferror(o->out))
			return err_sys(e, -errno, "write the answer");
		if (!end)
			(void)nanosleep(&pause, NULL);
	} while (!end);
	*ret = ps.state;
	return 0;
}
