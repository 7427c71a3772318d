/* SPDX-License-Identifier: Apache-2.0 */
/* The list of findings, and how it is told; see ctl_doctor.h. */
#include "plugin/ctl_doctor.h"

#include <stdarg.h>
#include <string.h>

#include "plugin/ctl_text.h"

static const char *const level_names[] = {
	[FINDING_OK] = "ok",
	[FINDING_UNKNOWN] = "unknown",
	[FINDING_WARN] = "warning",
	[FINDING_PROBLEM] = "problem",
};

static void add_member(struct doctor *d, struct json_object *o,
		       const char *name, const char *value)
{
	struct json_object *v = json_object_new_string(value ? value : "");

	if (!v || json_object_object_add(o, name, v) < 0) {
		json_object_put(v);
		d->failed = true;
	}
}

printf_like(3, 0) static void add_va(struct doctor *d, const struct finding *f,
				     const char *fmt, va_list ap)
{
	owned(json) struct json_object *o = json_object_new_object();
	char what[2048];

	(void)vsnprintf(what, sizeof(what), fmt, ap);
	d->n[f->level]++;
	if (!o) {
		d->failed = true;
		return;
	}
	add_member(d, o, "check", f->check);
	add_member(d, o, "level", level_names[f->level]);
	add_member(d, o, "what", what);
	add_member(d, o, "why", f->why);
	add_member(d, o, "fix", f->fix);
	if (json_object_array_add(d->findings, o) < 0)
		d->failed = true;
	else
		o = NULL;
}

void doctor_add(struct doctor *d, const struct finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_va(d, f, fmt, ap);
	va_end(ap);
}

void doctor_ok(struct doctor *d, const char *check, const char *fmt, ...)
{
	const struct finding f = { .level = FINDING_OK, .check = check };
	va_list ap;

	va_start(ap, fmt);
	add_va(d, &f, fmt, ap);
	va_end(ap);
}

int doctor_examine(const struct doctor_opts *o, struct doctor *ret,
		   struct err *e)
{
	*ret = (struct doctor){ .o = o, .findings = json_object_new_array() };
	if (!ret->findings)
		return err_sys(e, -ENOMEM, "list of findings");
	doctor_check_daemon(ret);
	doctor_check_host(ret);
	doctor_check_containerd(ret);
	if (o->image)
		doctor_check_registry(ret);
	if (ret->failed) {
		doctor_release(ret);
		return err_sys(e, -ENOMEM, "list of findings");
	}
	return 0;
}

void doctor_release(struct doctor *d)
{
	json_object_put(d->findings);
	json_object_put(d->status);
	d->findings = d->status = NULL;
}

struct json_object *doctor_json(const struct doctor *d)
{
	owned(json) struct json_object *o = json_object_new_object();
	struct json_object *problems, *warnings;
	bool ok;

	problems = json_object_new_int((int)d->n[FINDING_PROBLEM]);
	warnings = json_object_new_int((int)d->n[FINDING_WARN]);
	/* A member that cannot be added is not taken. */
	ok = o && json_object_object_add(o, "problems", problems) == 0;
	if (!ok)
		json_object_put(problems);
	if (!ok || json_object_object_add(o, "warnings", warnings) < 0) {
		json_object_put(warnings);
		ok = false;
	}
	if (!ok || json_object_object_add(o, "findings",
					  json_object_get(d->findings)) < 0)
		return NULL;
	return take_ptr(&o);
}

/* Each line of @text, cleaned, behind @head or below it. */
static void print_lines(FILE *out, const char *head, const char *text)
{
	char line[CTL_CELL_MAX * 4], clean[CTL_CELL_MAX * 4];

	while (*text) {
		size_t n = strcspn(text, "\n");

		(void)snprintf(line, sizeof(line), "%.*s", (int)n, text);
		ctl_clean(clean, sizeof(clean), line);
		(void)fprintf(out, "%9s%-5s%s\n", "", head, clean);
		head = "";
		text += n + (text[n] == '\n');
	}
}

static void print_finding(struct json_object *f, FILE *out)
{
	const char *why = json_object_get_string(ctl_get(f, "why"));
	const char *fix = json_object_get_string(ctl_get(f, "fix"));
	const char *what = json_object_get_string(ctl_get(f, "what"));
	char level[CTL_CELL_MAX], clean[CTL_CELL_MAX * 4];

	ctl_get_text(f, "level", level, sizeof(level));
	ctl_clean(clean, sizeof(clean), what ? what : "");
	(void)fprintf(out, "%-8s %s\n", level, clean);
	print_lines(out, "why:", why ? why : "");
	print_lines(out, "do:", fix ? fix : "");
}

void doctor_print(const struct doctor *d, FILE *out)
{
	size_t n = json_object_array_length(d->findings);

	for (size_t i = 0; i < n; i++)
		print_finding(json_object_array_get_idx(d->findings, i), out);
	(void)fprintf(out, "\n%u problems, %u warnings, %u not known\n",
		      d->n[FINDING_PROBLEM], d->n[FINDING_WARN],
		      d->n[FINDING_UNKNOWN]);
}
