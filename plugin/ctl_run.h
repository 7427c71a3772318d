/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program for its output. */
#ifndef PLUGIN_CTL_RUN_H
#define PLUGIN_CTL_RUN_H

#include <stddef.h>

#include "base/err.h"

struct ctl_output {
	char *out, *errors; /* NUL-terminated; for ctl_output_release() */
	size_t out_len;
	int status; /* as of waitpid() */
};

/**
 * ctl_run() - a program with no input, until it has ended
 * @path: its file, not looked up in PATH; argv[0] may be another name
 *
 * It and its children are killed after 30 seconds. ERR_UNAVAILABLE: it does not
 * run, does not end, or says more than a few megabytes. What it makes of its
 * task is in @ret->status.
 */
int ctl_run(const char *path, char *const argv[], struct ctl_output *ret,
	    struct err *e) must_check;
void ctl_output_release(struct ctl_output *o);

#endif
