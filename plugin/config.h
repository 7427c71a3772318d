/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /etc/verity-snapshotter/config.toml: what it may say, and the defaults.
 * Every key is in deploy/config.toml with its default; a test compares.
 */
#ifndef PLUGIN_CONFIG_H
#define PLUGIN_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "snapshotter/snapshotter.h"

struct config {
	enum policy policy;
	enum verity_mode verity;
	bool background_fill;
	bool prove_before_run;
	bool passthrough, unsealed_passthrough;
	unsigned prepare_budget_s, read_timeout_s;
	uint64_t sealer_memory, seal_from_cache; /* bytes */
	uint64_t scrub_rate; /* bytes a second; 0: no limit */
	unsigned scrub_interval_s; /* 0: only when somebody asks */
	char *containerd_address;
	char *hosts_dir;
	char *docker_config; /* NULL: where clients keep it */
	bool http2;
	char *metrics_address; /* NULL: not over TCP */
};

/**
 * config_parse() - text to configuration; what it does not say is the default
 * @name: of the file, for messages
 *
 * ERR_INVALID "NAME:LINE: …": unknown key, wrong type, value out of range, or
 * a value that is specified but that this version cannot do yet.
 */
int config_parse(const char *name, const char *text, size_t len,
		 struct config **ret, struct err *e) must_check;

/**
 * config_load() - read a file
 * @path: NULL: the default path, which need not exist
 */
int config_load(const char *path, struct config **ret, struct err *e)
	must_check;
void config_free(struct config *c); /* accepts NULL */

/* The known keys, for tests and nothing else; NULL behind the last. */
const char *config_key_name(size_t i);

const char *policy_name(enum policy p);

DEFINE_OWNED(config, struct config *, config_free)

#endif
