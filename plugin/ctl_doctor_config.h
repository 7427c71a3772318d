/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor's judgement of containerd's configuration: of what containerd
 * itself says it makes of its files ("config dump"), and of the files, to name
 * the one that is to be changed.
 */
#ifndef PLUGIN_CTL_DOCTOR_CONFIG_H
#define PLUGIN_CTL_DOCTOR_CONFIG_H

#include "base/toml.h"
#include "plugin/ctl_doctor.h"

/* A file that containerd reads, in the order in which they take effect. */
struct ctd_file {
	char *path;
	struct toml *toml; /* NULL: not understood by our reader */
};

struct ctd_config {
	unsigned major, minor; /* of containerd; 0.0: not known */
	const char *path; /* the first file, whether it exists or not */
	const struct toml *dump;
	const struct ctd_file *files;
	size_t n_files;
};

/**
 * doctor_judge_config() - everything that makes pulls not lazy, or fail
 *
 * Reads the files beside @c->path for those that containerd does not read.
 */
void doctor_judge_config(struct doctor *d, const struct ctd_config *c);

#endif
