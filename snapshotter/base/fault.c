/* SPDX-License-Identifier: Apache-2.0 */
/* Fault points; see fault.h. */
#include "fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "cleanup.h"
#include "log.h"

#define FAULTS_MAX 8

enum action { ACTION_KILL, ACTION_FAIL, ACTION_SLEEP };

struct fault {
	char name[64];
	enum action action;
	int arg;
	int at; /* the passage that acts */
	atomic_int n_seen;
};

static struct fault faults[FAULTS_MAX];
static int n_faults;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool parse_one(char *text, struct fault *f)
{
	char *colon = strchr(text, ':');
	char *at, *eq;

	if (!colon || (size_t)(colon - text) >= sizeof(f->name))
		return false;
	*colon++ = '\0';
	(void)snprintf(f->name, sizeof(f->name), "%s", text);
	f->at = 1;
	at = strchr(colon, '@');
	if (at) {
		*at++ = '\0';
		f->at = (int)strtol(at, NULL, 10);
	}
	eq = strchr(colon, '=');
	if (eq) {
		*eq++ = '\0';
		f->arg = (int)strtol(eq, NULL, 10);
	}
	if (!strcmp(colon, "kill"))
		f->action = ACTION_KILL;
	else if (!strcmp(colon, "fail"))
		f->action = ACTION_FAIL;
	else if (!strcmp(colon, "sleep"))
		f->action = ACTION_SLEEP;
	else
		return false;
	return true;
}

static void parse_env(void)
{
	const char *env = getenv("VS_FAULT");
	owned(mem) char *copy = env ? strdup(env) : NULL;
	char *save = NULL;

	if (!copy)
		return;
	for (char *t = strtok_r(copy, ",", &save); t && n_faults < FAULTS_MAX;
	     t = strtok_r(NULL, ",", &save)) {
		if (parse_one(t, &faults[n_faults]))
			n_faults++;
		else
			log_err("VS_FAULT not understood: part='%s'", t);
	}
}

static int act(const struct fault *f)
{
	struct timespec ts = { .tv_sec = f->arg / 1000,
			       .tv_nsec = f->arg % 1000 * 1000000L };

	switch (f->action) {
	case ACTION_KILL:
		log_warn("fault point reached, dying: name=%s", f->name);
		(void)kill(getpid(), SIGKILL);
		for (;;)
			(void)pause();
	case ACTION_SLEEP:
		(void)nanosleep(&ts, NULL);
		return 0;
	case ACTION_FAIL:
	default:
		return -f->arg;
	}
}

int fault_point(const char *name)
{
	(void)pthread_once(&once, parse_env);
	for (int i = 0; i < n_faults; i++) {
		struct fault *f = &faults[i];

		if (!strcmp(f->name, name) &&
		    atomic_fetch_add(&f->n_seen, 1) + 1 == f->at)
			return act(f);
	}
	return 0;
}
