/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verityctl doctor: looks at everything that lazy pulling depends on, and says
 * of what is wrong why it matters and what to do. It changes nothing, and needs
 * neither the daemon nor containerd: what cannot be found out is said, too.
 */
#ifndef PLUGIN_CTL_DOCTOR_H
#define PLUGIN_CTL_DOCTOR_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"

enum finding_level {
	FINDING_OK,
	FINDING_UNKNOWN, /* could not be found out */
	FINDING_WARN, /* works, but not as well as it could */
	FINDING_PROBLEM,
};

struct doctor_opts {
	const char *run; /* run-time files of the daemon */
	const char *config; /* the daemon's; NULL: the default */
	const char *image; /* whose registry is to be asked; NULL: none */
	const char *containerd; /* its socket; NULL: as configured */
};

/* What is known so far. The checks run in order, and later ones use it. */
struct doctor {
	const struct doctor_opts *o;
	struct json_object *findings; /* array */
	unsigned n[FINDING_PROBLEM + 1];
	bool failed; /* out of memory */
	/* of the daemon: what it says, or else what it would be by default */
	struct json_object *status; /* NULL: it does not answer */
	pid_t pid; /* 0: not known */
	char root[1024], address[128];
	char containerd[108]; /* its socket */
};

/* What a check found. @check: "group.name", stable, for --json. */
struct finding {
	enum finding_level level;
	const char *check;
	const char *why; /* it matters; NULL: nothing to add */
	const char *fix; /* lines to write or commands to run; may be NULL */
};
printf_like(3, 4) void doctor_add(struct doctor *d, const struct finding *f,
				  const char *fmt, ...);

printf_like(3, 4) void doctor_ok(struct doctor *d, const char *check,
				 const char *fmt, ...);

/* The groups of checks, in their order. */
void doctor_check_daemon(struct doctor *d); /* and fills in what it says */
void doctor_check_host(struct doctor *d);
void doctor_check_containerd(struct doctor *d);
void doctor_check_registry(struct doctor *d);

/* All of them. -1: out of memory. */
int doctor_examine(const struct doctor_opts *o, struct doctor *ret,
		   struct err *e) must_check;
void doctor_release(struct doctor *d);

/* {"problems", "warnings", "findings": [{"check", "level", "what", "why",
 * "fix"}]}; for json_object_put(); NULL: out of memory */
struct json_object *doctor_json(const struct doctor *d);
void doctor_print(const struct doctor *d, FILE *out);

#endif
