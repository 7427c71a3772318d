/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two scripted registries, and a fetcher, a registry and a blob of each test's
 * own. Include after <cmocka.h>, in one file of a test only.
 */
#ifndef TESTS_LIB_REGWORLD_H
#define TESTS_LIB_REGWORLD_H

#include "snapshotter/registry.h"
#include "tests/lib/regserver.h"

#define SILENCE_MS 300

static struct regdata data;
static struct regserver main_srv, other_srv;

/* What each test starts with; the servers stay, their scripts go. */
struct world {
	struct fetcher *fetcher;
	struct registry *reg;
	struct blob *blob; /* the big one, at main_srv */
	struct err e;
	uint8_t buf[REG_BIG];
	char config[96];
	char hosts[96]; /* folder of hosts.toml files; not made yet */
};

static inline struct image_ref ref_at(const struct regserver *s)
{
	struct image_ref ref = { .repo = REG_REPO };

	(void)snprintf(ref.host, sizeof(ref.host), "127.0.0.1:%d", s->port);
	return ref;
}

static inline struct blob *blob_at(struct world *w, const struct regserver *s,
				   const struct digest *d)
{
	struct image_ref ref = ref_at(s);
	struct blob *b;

	assert_int_equal(blob_new(w->reg, &ref, d, &b), 0);
	return b;
}

static inline int group_setup(void **state)
{
	(void)state;
	/* Fail here and not in each test when there is no python3. */
	if (regdata_make(&data) < 0 ||
	    regserver_start(&main_srv, &data, NULL) < 0 ||
	    regserver_start(&other_srv, &data, NULL) < 0)
		return -1;
	return 0;
}

static inline int group_teardown(void **state)
{
	(void)state;
	regserver_stop(&main_srv);
	regserver_stop(&other_srv);
	regdata_drop(&data);
	return 0;
}

static inline int setup(void **state)
{
	static const char fresh[] =
		"{\"clear\":true,\"reset\":true,\"revoke\":true,"
		"\"auth\":null,\"expires_in\":300}";
	struct fetcher_opts fo = { .silence_ms = SILENCE_MS };
	struct registry_opts ro = { .backoff_ms = 10 };
	struct world *w = calloc(1, sizeof(*w));

	if (!w || fetcher_new(&fo, &w->fetcher) < 0)
		return -1;
	(void)snprintf(w->config, sizeof(w->config), "%s/config.json",
		       data.dir);
	(void)unlink(w->config);
	(void)snprintf(w->hosts, sizeof(w->hosts), "%s/hosts.%p", data.dir,
		       (void *)w);
	ro.fetcher = w->fetcher;
	ro.docker_config = w->config;
	ro.hosts_dirs = w->hosts;
	if (registry_new(&ro, &w->reg) < 0)
		return -1;
	w->blob = blob_at(w, &main_srv, &data.big);
	regserver_admin(&main_srv, fresh);
	regserver_admin(&other_srv, fresh);
	*state = w;
	return 0;
}

static inline int teardown(void **state)
{
	struct world *w = *state;

	fetcher_free(w->fetcher);
	blob_unref(w->blob);
	registry_free(w->reg);
	free(w);
	return 0;
}

static inline void write_config(struct world *w, const char *text)
{
	assert_int_equal(write_file_atomic(AT_FDCWD, w->config, text,
					   strlen(text), 0600),
			 0);
}

/* "auths" entry for main_srv; user:password as base64 in @auth */
static inline void write_auth(struct world *w, const char *field,
			      const char *value)
{
	char text[256];

	(void)snprintf(text, sizeof(text),
		       "{\"auths\":{\"127.0.0.1:%d\":{\"%s\":\"%s\"}}}",
		       main_srv.port, field, value);
	write_config(w, text);
}

static inline int read_at(struct world *w, uint64_t off, size_t len)
{
	memset(&w->e, 0, sizeof(w->e));
	memset(w->buf, 0, sizeof(w->buf));
	return blob_read(w->blob, off, w->buf, len, 5000, &w->e);
}

static inline void assert_reads(struct world *w, uint64_t off, size_t len)
{
	int r = read_at(w, off, len);

	if (r < 0)
		print_error("%s: %s\n", err_kind_name(w->e.kind), w->e.msg);
	assert_int_equal(r, 0);
	assert_memory_equal(w->buf, data.p + off, len);
}

static inline void assert_fails(struct world *w, enum err_kind kind,
				const char *text)
{
	assert_int_equal(read_at(w, 4096, 8192), -1);
	if (w->e.kind != kind || !strstr(w->e.msg, text))
		print_error("%s: %s\n", err_kind_name(w->e.kind), w->e.msg);
	assert_int_equal(w->e.kind, kind);
	assert_non_null(strstr(w->e.msg, text));
	/* Every message says whose fault it is. */
	assert_non_null(strstr(w->e.msg, "127.0.0.1:"));
}

#endif
