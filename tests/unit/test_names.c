/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of image names over a real store and a fake containerd: what it
 * follows, what it shows, and the reasons when it shows nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "snapshotter/image_parse.h"
#include "snapshotter/names.h"
#include "tests/lib/fake_containerd.h"
#include "tests/unit/store_layers.h"
#include "tests/unit/tmpdir.h"

#define WAIT_MS 120000
#define NAME "reg.test/app:1"

struct fixture {
	void *dir;
	struct store *store;
	struct names *names;
	atomic_uint n_sets;
	struct fake_containerd ctd;
	struct image_platform node;
};

static void on_changed(void *ctx, const struct names_set *set)
{
	struct fixture *f = ctx;

	assert_non_null(set);
	atomic_fetch_add(&f->n_sets, 1);
}

static const struct names_ops ops = { .changed = on_changed };

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char path[64];

	if (!f || tmpdir_setup(&f->dir) < 0)
		return -1;
	f->store = open_store(f->dir);
	image_platform_node(&f->node);
	(void)snprintf(path, sizeof(path), "%s/c.sock", (char *)f->dir);
	fake_init(&f->ctd, path);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	int r;

	names_close(f->names);
	fake_release(&f->ctd);
	store_close(f->store);
	r = tmpdir_teardown(&f->dir);
	free(f);
	return r;
}

static void start(struct fixture *f)
{
	const struct names_opts o = { .containerd = f->ctd.addr.sun_path,
				      .store = f->store,
				      .ops = &ops,
				      .ctx = f };
	struct err e = ERR_INIT;

	assert_int_equal(names_open(&o, &f->names, &e), 0);
}

static void pause_ms(long ms)
{
	const struct timespec ts = { .tv_nsec = ms * 1000000 };

	(void)nanosleep(&ts, NULL);
}

static bool says(struct fixture *f, const char *what)
{
	owned(buf) struct buf b = { 0 };

	assert_int_equal(names_json(f->names, &b), 0);
	return strstr((char *)b.p, what) != NULL;
}

static void wait_for(struct fixture *f, const char *what, bool there)
{
	uint64_t end = now_ms() + WAIT_MS;

	while (says(f, what) != there) {
		owned(buf) struct buf b = { 0 };

		if (now_ms() > end) {
			assert_int_equal(names_json(f->names, &b), 0);
			fail_msg("%s: %s: %s", what,
				 there ? "not there" : "still there",
				 (char *)b.p);
		}
		pause_ms(2);
	}
}

/* Connected and subscribed; what was there before is known. */
static void start_connected(struct fixture *f)
{
	fake_do(&f->ctd, fake_listen);
	start(f);
	wait_for(f, "\"connected\":true", true);
}

/* ---- images ---- */

static struct digest nowhere;

/* An image's configuration of layers with diff ids @ids, "\"sha256:…\",…" */
static struct digest add_config(struct fixture *f, const char *arch,
				const char *ids)
{
	char text[1024];

	(void)snprintf(text, sizeof(text),
		       "{\"os\":\"linux\",\"architecture\":\"%s\","
		       "\"rootfs\":{\"diff_ids\":[%s]}}",
		       arch, ids);
	return fake_add_content(&f->ctd, text);
}

/* As add_layer(): blob @x, TOC @x + 100. */
static void layer_text(char *out, size_t size, uint8_t x)
{
	struct digest blob = digest_of(x), toc = digest_of((uint8_t)(x + 100));

	(void)snprintf(out, size,
		       "{\"digest\":\"%s\",\"size\":1000,\"annotations\":{"
		       "\"containerd.io/snapshot/stargz/toc.digest\":\"%s\"}}",
		       digest_str(&blob).s, digest_str(&toc).s);
}

static void manifest_text(char *out, size_t size, const struct digest *config,
			  const char *layers)
{
	(void)snprintf(out, size,
		       "{\"config\":{\"digest\":\"%s\"},\"layers\":[%s]}",
		       digest_str(config).s, layers);
}

/* One layer: blob @x, diff id @x + 50. Returns the manifest. */
static struct digest add_image(struct fixture *f, uint8_t x)
{
	struct digest diff = digest_of((uint8_t)(x + 50)), config;
	char layer[400], text[1024], ids[100];

	(void)snprintf(ids, sizeof(ids), "\"%s\"", digest_str(&diff).s);
	config = add_config(f, f->node.arch, ids);
	layer_text(layer, sizeof(layer), x);
	manifest_text(text, sizeof(text), &config, layer);
	return fake_add_content(&f->ctd, text);
}

/* The row that makes it lazy. */
static uint32_t add_row(struct fixture *f, uint8_t x)
{
	struct digest diff = digest_of((uint8_t)(x + 50));
	uint32_t seq = add_layer(f->store, x);

	assert_int_equal(add_lazy(f->store, SN, "", digest_str(&diff).s, seq),
			 0);
	return seq;
}

static void set_name(struct fixture *f, const char *name,
		     const struct digest *d, const char *topic)
{
	fake_set_image(&f->ctd, "default", name, d ? digest_str(d).s : NULL);
	if (topic)
		fake_emit(&f->ctd, topic, "default", name);
}

static void wait_digest(struct fixture *f, const char *name,
			const struct digest *d, uint32_t seq)
{
	char text[600];

	(void)snprintf(text, sizeof(text),
		       "\"name\":\"%s\",\"host\":\"reg.test\",\"repository\":"
		       "\"app\",\"suffix\":\"%s\",\"digest\":\"%s\"",
		       name, strchr(name, ':'), digest_str(d).s);
	wait_for(f, text, true);
	(void)snprintf(text, sizeof(text),
		       "\"manifest\":\"%s\",\"lazy\":true,\"n_layers\":1,"
		       "\"layers\":[%u],\"reason\":\"\"",
		       digest_str(d).s, seq);
	wait_for(f, text, true);
}

/* ---- cases ---- */

static void names_open_needs_no_containerd(void **state)
{
	struct fixture *f = *state;
	const struct names_set *set;

	start(f);
	wait_for(f, "connect to '", true);
	assert_true(says(f, "\"connected\":false"));
	set = names_get(f->names);
	assert_int_equal(set->n, 0);
	names_set_unref(set);
	fake_do(&f->ctd, fake_listen);
	wait_for(f, "\"connected\":true", true);
}

static void names_follow_a_tag(void **state)
{
	struct fixture *f = *state;
	struct digest a = add_image(f, 1), b = add_image(f, 2);
	uint32_t sa = add_row(f, 1), sb = add_row(f, 2);
	const struct names_set *before;
	uint64_t end = now_ms() + WAIT_MS;

	set_name(f, NAME, &a, NULL);
	start_connected(f);
	wait_digest(f, NAME, &a, sa);
	before = names_get(f->names);
	set_name(f, "reg.test/app:2", &a, "/images/create");
	wait_digest(f, "reg.test/app:2", &a, sa);
	set_name(f, NAME, &b, "/images/update");
	wait_digest(f, NAME, &b, sb);
	set_name(f, NAME, &a, "/images/update");
	wait_digest(f, NAME, &a, sa);
	set_name(f, NAME, NULL, "/images/delete");
	wait_for(f, "app:1", false);
	assert_true(says(f, "app:2"));
	/* Who is told hears of the last set a little later than we see it; a
	 * set comes for a change and for nothing else. */
	while (atomic_load(&f->n_sets) < 5 && now_ms() < end)
		pause_ms(2);
	assert_int_equal(atomic_load(&f->n_sets), 5);
	/* What somebody holds never changes. */
	assert_int_equal(before->n, 1);
	assert_string_equal(before->images[0]->name, NAME);
	assert_int_equal(before->images[0]->layers[0], sa);
	names_set_unref(before);
}

static void names_show_layers_top_first(void **state)
{
	struct fixture *f = *state;
	struct digest d1 = digest_of(51), d2 = digest_of(52), chain, config, m;
	char text[2048], layers[900], ids[200], both[200], want[100];
	uint32_t lower = add_row(f, 1), upper = add_layer(f->store, 2);
	owned(snap) struct snap low = { 0 };
	struct err e = ERR_INIT;

	(void)snprintf(both, sizeof(both), "%s %s", digest_str(&d1).s,
		       digest_str(&d2).s);
	chain = fake_digest(both);
	assert_int_equal(
		store_find_ref(f->store, SN, "", digest_str(&d1).s, &low, &e),
		1);
	assert_int_equal(
		add_lazy(f->store, SN, low.name, digest_str(&chain).s, upper),
		0);
	(void)snprintf(ids, sizeof(ids), "\"%s\",\"%s\"", digest_str(&d1).s,
		       digest_str(&d2).s);
	config = add_config(f, f->node.arch, ids);
	layer_text(layers, sizeof(layers), 1);
	(void)strcat(layers, ",");
	layer_text(layers + strlen(layers), sizeof(layers) - strlen(layers), 2);
	manifest_text(text, sizeof(text), &config, layers);
	m = fake_add_content(&f->ctd, text);
	/* An index: the first is for another machine, and not even here. */
	(void)snprintf(text, sizeof(text),
		       "{\"manifests\":[{\"digest\":\"%s\",\"platform\":"
		       "{\"os\":\"linux\",\"architecture\":\"vax\"}},"
		       "{\"digest\":\"%s\",\"platform\":{\"os\":\"linux\","
		       "\"architecture\":\"%s\",\"variant\":\"%s\"}}]}",
		       digest_str(&nowhere).s, digest_str(&m).s, f->node.arch,
		       f->node.variant);
	m = fake_add_content(&f->ctd, text);
	set_name(f, NAME, &m, NULL);
	start_connected(f);
	(void)snprintf(want, sizeof(want),
		       "\"lazy\":true,\"n_layers\":2,\"layers\":[%u,%u]", upper,
		       lower);
	wait_for(f, want, true);
}

static void names_give_reasons(void **state)
{
	struct fixture *f = *state;
	struct digest config = add_config(f, "vax", ""), d;
	struct digest none = add_config(f, f->node.arch, "");
	struct digest wrong = digest_of(7);
	char text[1024], layer[400];

	start_connected(f);
	fake_set_image(&f->ctd, "default", "reg.test/sha512:1", "sha512:00");
	d = fake_add_content(&f->ctd, "hello");
	set_name(f, "reg.test/text:1", &d, NULL);
	manifest_text(text, sizeof(text), &config, "");
	d = fake_add_content(&f->ctd, text);
	set_name(f, "reg.test/vax:1", &d, NULL);
	manifest_text(text, sizeof(text), &none, "");
	d = fake_add_content(&f->ctd, text);
	set_name(f, "reg.test/none:1", &d, NULL);
	layer_text(layer, sizeof(layer), 1);
	manifest_text(text, sizeof(text), &none, layer);
	d = fake_add_content(&f->ctd, text);
	set_name(f, "reg.test/count:1", &d, NULL);
	d = fake_add_content(&f->ctd, "{\"manifests\":[]}");
	set_name(f, "reg.test/empty:1", &d, NULL);
	d = digest_of(77);
	set_name(f, "reg.test/away:1", &d, NULL);
	fake_add_content_as(&f->ctd, &wrong, "{\"manifests\":[]}");
	set_name(f, "reg.test/wrong:1", &wrong, NULL);
	for (int i = 0; i < 4; i++) {
		(void)snprintf(text, sizeof(text),
			       "{\"manifests\":[{\"digest\":\"%s\"}]}",
			       digest_str(&d).s);
		d = fake_add_content(&f->ctd, text);
	}
	set_name(f, "reg.test/deep:1", &d, NULL);
	d = add_image(f, 1);
	set_name(f, NAME, &d, NULL);
	set_name(f, "app", &d, NULL);
	set_name(f, "reg.test/../x:1", &d, "/namespaces/update");
	wait_for(f, "its digest is not SHA-256", true);
	wait_for(f, "manifest is not JSON", true);
	wait_for(f, "it is for linux/vax, not linux/", true);
	wait_for(f, "it has no layers", true);
	wait_for(f, "its manifest has 1 layers, its configuration 0", true);
	wait_for(f, "it has no manifest for linux/", true);
	wait_for(f, "is not in containerd", true);
	wait_for(f, "has another digest", true);
	wait_for(f, "its indexes are nested too deep", true);
	wait_for(f, "layer 1 of 1 is not here as a lazy layer", true);
	wait_for(
		f,
		"\"name\":\"app\",\"host\":\"\",\"repository\":\"\",\"suffix\":\"\"",
		true);
	wait_for(
		f,
		"\"name\":\"reg.test/../x:1\",\"host\":\"\",\"repository\":\"\"",
		true);
	assert_false(says(f, "\"lazy\":true"));
	assert_false(says(f, "\"namespace\":\"../x\""));
}

/* Rows come and go without any word of containerd. */
static void names_see_the_store_change(void **state)
{
	struct fixture *f = *state;
	struct digest a = add_image(f, 1);
	struct err e = ERR_INIT;
	uint32_t seq;

	set_name(f, NAME, &a, NULL);
	start_connected(f);
	wait_for(f, "is not here as a lazy layer", true);
	seq = add_row(f, 1);
	wait_digest(f, NAME, &a, seq);
	assert_int_equal(store_set_bad(f->store, seq, &e), 0);
	wait_for(f, "is not here as a lazy layer", true);
}

/* The same chain id, but another layer than the image's. */
static void names_take_no_other_layer(void **state)
{
	struct fixture *f = *state;
	struct digest a = add_image(f, 1), diff = digest_of(51);
	uint32_t other = add_layer(f->store, 2);

	assert_int_equal(add_lazy(f->store, SN, "", digest_str(&diff).s, other),
			 0);
	set_name(f, NAME, &a, NULL);
	start_connected(f);
	wait_for(f, "is not here as a lazy layer", true);
}

static void names_keep_what_they_knew(void **state)
{
	struct fixture *f = *state;
	struct digest a = add_image(f, 1), b = add_image(f, 2);
	uint32_t sa = add_row(f, 1), sb = add_row(f, 2);

	set_name(f, NAME, &a, NULL);
	start_connected(f);
	wait_digest(f, NAME, &a, sa);
	fake_do(&f->ctd, fake_hang_up);
	wait_for(f, "\"connected\":false", true);
	wait_digest(f, NAME, &a, sa);
	/* What happens meanwhile is seen afterwards. */
	set_name(f, NAME, &b, NULL);
	fake_do(&f->ctd, fake_listen);
	wait_digest(f, NAME, &b, sb);
	wait_for(f, "\"connected\":true", true);
}

/* What was missing comes without an event. */
static void names_ask_again_for_what_is_missing(void **state)
{
	struct fixture *f = *state;
	struct digest d, config = digest_of(1);
	char text[1024], layer[400], ids[100], all[1024];
	struct digest diff = digest_of(51);
	uint32_t seq = add_row(f, 1);

	(void)snprintf(ids, sizeof(ids), "\"%s\"", digest_str(&diff).s);
	(void)snprintf(all, sizeof(all),
		       "{\"os\":\"linux\",\"architecture\":\"%s\","
		       "\"rootfs\":{\"diff_ids\":[%s]}}",
		       f->node.arch, ids);
	config = fake_digest(all);
	layer_text(layer, sizeof(layer), 1);
	manifest_text(text, sizeof(text), &config, layer);
	d = fake_add_content(&f->ctd, text);
	set_name(f, NAME, &d, NULL);
	start_connected(f);
	wait_for(f, "its configuration sha256:", true);
	fake_add_content_as(&f->ctd, &config, all);
	wait_digest(f, NAME, &d, seq);
}

static void set_odd(struct fixture *f, const char *path, const void *p,
		    size_t len, const char *status)
{
	(void)pthread_mutex_lock(&f->ctd.lock);
	buf_release(&f->ctd.odd);
	assert_int_equal(buf_add(&f->ctd.odd, p, len), 0);
	(void)snprintf(f->ctd.odd_path, sizeof(f->ctd.odd_path), "%s", path);
	(void)snprintf(f->ctd.odd_status, sizeof(f->ctd.odd_status), "%s",
		       status);
	(void)pthread_mutex_unlock(&f->ctd.lock);
}

/* One document that cannot be read harms no other name, whatever the answer. */
static void names_survive_odd_contents(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		const char *status, *reason;
	} odd[] = {
		{ "", 0, "13", "gRPC status '13'" },
		{ "\1\0\0\0\1x", 6, "0", "compressed" },
		{ "\0\xff\xff\xff\xff", 5, "0", "exceeds the limit" },
		{ "\0\0\0\0\5x", 6, "0", "ends within a message" },
		{ "\0\0\0\0\1\x80", 6, "0", "malformed" },
	};
	struct fixture *f = *state;
	struct digest a = add_image(f, 1), b = add_image(f, 2);
	uint32_t sa = add_row(f, 1), sb = add_row(f, 2);

	set_name(f, NAME, &a, NULL);
	start_connected(f);
	wait_digest(f, NAME, &a, sa);
	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		set_odd(f, "Content/Read", odd[i].bytes, odd[i].len,
			odd[i].status);
		set_name(f, "reg.test/app:2", &b, "/images/update");
		wait_for(f, odd[i].reason, true);
		wait_digest(f, NAME, &a, sa);
	}
	set_odd(f, "", "", 0, "");
	wait_digest(f, "reg.test/app:2", &b, sb);
}

/* When no list is to be had, what was known stays, and it is tried again. */
static void names_survive_odd_lists(void **state)
{
	struct fixture *f = *state;
	struct digest a = add_image(f, 1);
	uint32_t sa = add_row(f, 1);

	set_name(f, NAME, &a, NULL);
	start_connected(f);
	wait_digest(f, NAME, &a, sa);
	set_odd(f, "Images/List", "\0\0\0\0\1\x80", 6, "0");
	fake_emit(&f->ctd, "/images/create", "default", NULL);
	wait_for(f, "\"connected\":false", true);
	wait_digest(f, NAME, &a, sa);
	set_odd(f, "", "", 0, "");
	set_name(f, NAME, NULL, NULL);
	wait_for(f, "app:1", false);
	wait_for(f, "\"connected\":true", true);
}

static void names_set_find_finds(void **state)
{
	struct fixture *f = *state;
	struct digest a = add_image(f, 1);
	const struct names_set *set;

	set_name(f, "reg.test/app:1", &a, NULL);
	set_name(f, "reg.test/app:2", &a, NULL);
	set_name(f, "reg.test/b:1", &a, NULL);
	start_connected(f);
	wait_for(f, "reg.test/b:1", true);
	set = names_get(f->names);
	assert_int_equal(set->n, 3);
	for (size_t i = 0; i < set->n; i++)
		assert_ptr_equal(
			names_set_find(set, "default", set->images[i]->name),
			set->images[i]);
	assert_null(names_set_find(set, "other", "reg.test/app:1"));
	assert_null(names_set_find(set, "default", "reg.test/c:1"));
	names_set_unref(set);
}

int main(void)
{
#define CASE(x) cmocka_unit_test_setup_teardown(x, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(names_open_needs_no_containerd),
		CASE(names_follow_a_tag),
		CASE(names_show_layers_top_first),
		CASE(names_give_reasons),
		CASE(names_see_the_store_change),
		CASE(names_take_no_other_layer),
		CASE(names_keep_what_they_knew),
		CASE(names_ask_again_for_what_is_missing),
		CASE(names_survive_odd_contents),
		CASE(names_survive_odd_lists),
		CASE(names_set_find_finds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
