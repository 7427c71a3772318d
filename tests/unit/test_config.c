/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/config: defaults, refusals, and the file that documents the keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "plugin/config.h"

static void assert_defaults(const struct config *c)
{
	assert_int_equal(c->policy, POLICY_PREFER_LAZY);
	assert_int_equal(c->verity, VERITY_PREFER);
	assert_true(c->background_fill);
	assert_false(c->prove_before_run);
	assert_true(c->passthrough);
	assert_false(c->unsealed_passthrough);
	assert_int_equal(c->prepare_budget_s, 20);
	assert_int_equal(c->read_timeout_s, 60);
	assert_true(c->sealer_memory == 48 << 20);
	assert_true(c->seal_from_cache == 64 << 20);
	assert_int_equal(c->scrub_interval_s, 30 * 86400);
	assert_true(c->scrub_rate == 16 << 20);
	assert_string_equal(c->containerd_address,
			    "/run/containerd/containerd.sock");
	assert_string_equal(c->hosts_dir,
			    "/etc/containerd/certs.d:/etc/docker/certs.d");
	assert_null(c->docker_config);
	assert_false(c->http2);
	assert_null(c->metrics_address);
}

static void parse_of_an_empty_file_gives_defaults(void **state)
{
	owned(config) struct config *c = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(config_parse("f", "", 0, &c, &e), 0);
	assert_defaults(c);
}

static void parse_sets_every_key(void **state)
{
	static const char text[] = "policy = \"never-lazy\"\n"
				   "proof = \"before-run\"\n"
				   "verity = 'require'\n"
				   "unsealed_reads = \"passthrough\"\n"
				   "passthrough = false\n"
				   "background_fill = false\n"
				   "prepare_budget = 1\n"
				   "read_timeout = 86400\n"
				   "sealer_memory = 16\n"
				   "seal_from_cache = 0\n"
				   "scrub_interval = 3650\n"
				   "scrub_rate = 0\n"
				   "containerd_address = \"/x.sock\"\n"
				   "hosts_dir = \"/a:/b\"\n"
				   "docker_config = \"/c.json\"\n"
				   "http2 = true\n"
				   "metrics_address = \"[::1]:9099\"\n";
	owned(config) struct config *c = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(config_parse("f", text, strlen(text), &c, &e), 0);
	assert_int_equal(c->policy, POLICY_NEVER_LAZY);
	assert_int_equal(c->verity, VERITY_REQUIRE);
	assert_false(c->background_fill);
	assert_true(c->prove_before_run);
	assert_false(c->passthrough);
	assert_true(c->unsealed_passthrough);
	assert_int_equal(c->prepare_budget_s, 1);
	assert_int_equal(c->read_timeout_s, 86400);
	assert_true(c->sealer_memory == 16 << 20);
	assert_true(c->seal_from_cache == 0);
	assert_int_equal(c->scrub_interval_s, 3650 * 86400);
	assert_true(c->scrub_rate == 0);
	assert_string_equal(c->containerd_address, "/x.sock");
	assert_string_equal(c->hosts_dir, "/a:/b");
	assert_string_equal(c->docker_config, "/c.json");
	assert_true(c->http2);
	assert_string_equal(c->metrics_address, "[::1]:9099");
}

static void parse_refuses_with_file_and_line(void **state)
{
	static const struct {
		const char *text, *msg;
	} cases[] = {
		{ "\n\npolici = 1", "f:3: unknown key 'polici'" },
		{ "[policy]", "f:1: policy must be a string, not a table" },
		{ "policy = 1",
		  "f:1: policy must be a string, not an integer" },
		{ "background_fill = \"true\"",
		  "f:1: background_fill must be true or false, not a string" },
		{ "prepare_budget = \"20s\"",
		  "f:1: prepare_budget must be an integer, not a string" },
		{ "prepare_budget = 0",
		  "f:1: prepare_budget must be from 1 to 3600 seconds" },
		{ "read_timeout = -1",
		  "f:1: read_timeout must be from 1 to 86400 seconds" },
		{ "read_timeout = 4294967297",
		  "f:1: read_timeout must be from 1 to 86400 seconds" },
		{ "sealer_memory = 15",
		  "f:1: sealer_memory must be from 16 to 65536 MiB" },
		{ "seal_from_cache = 65537",
		  "f:1: seal_from_cache must be from 0 to 65536 MiB" },
		{ "scrub_interval = -1",
		  "f:1: scrub_interval must be from 0 to 3650 days" },
		{ "scrub_interval = 3651",
		  "f:1: scrub_interval must be from 0 to 3650 days" },
		{ "scrub_rate = 65537",
		  "f:1: scrub_rate must be from 0 to 65536 MiB" },
		{ "policy = \"lazy\"",
		  "f:1: policy must be \"prefer-lazy\", \"require-lazy\" or "
		  "\"never-lazy\"" },
		{ "#\nproof = \"never\"",
		  "f:2: proof must be \"lazy\" or \"before-run\"" },
		{ "verity = \"on\"",
		  "f:1: verity must be \"require\", \"prefer\" or \"off\"" },
		{ "unsealed_reads = \"never\"",
		  "f:1: unsealed_reads must be \"verify\" or "
		  "\"passthrough\"" },
		{ "containerd_address = \"run/c.sock\"",
		  "f:1: containerd_address must be an absolute path" },
		{ "hosts_dir = \"/a:b\"",
		  "f:1: hosts_dir must be an absolute path" },
		{ "docker_config = \"~/.docker\"",
		  "f:1: docker_config must be an absolute path" },
		{ "policy = \"never-lazy\"\npolicy = \"never-lazy\"",
		  "f:2: key 'policy' is set twice (first in line 1)" },
		{ "metrics_address = \"localhost:80\"",
		  "f:1: metrics_address: 'localhost:80' is not an IP address and a port, as in 127.0.0.1:9099 or [::1]:9099" },
		{ "policy = ", "f:1: a value is missing" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		owned(config) struct config *c = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(config_parse("f", cases[i].text,
					      strlen(cases[i].text), &c, &e),
				 -1);
		assert_null(c);
		assert_int_equal(e.kind, ERR_INVALID);
		assert_string_equal(e.msg, cases[i].msg);
	}
}

static void load_wants_a_named_file_to_exist(void **state)
{
	owned(config) struct config *c = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(config_load("/nonexistent/config.toml", &c, &e), -1);
	assert_string_equal(e.msg,
			    "read configuration '/nonexistent/config.toml': No "
			    "such file or directory");
}

/* "#key = value" counts as a commented default, "# text" as prose. */
static bool is_commented_default(const char *line)
{
	return line[0] == '#' && line[1] >= 'a' && line[1] <= 'z';
}

/* deploy/config.toml with every "#key" line uncommented. */
static void uncomment(struct buf *out)
{
	owned(mem) char *text = NULL;
	char *save = NULL;

	assert_int_equal(read_file_at(AT_FDCWD, "deploy/config.toml", 65536,
				      &text, NULL),
			 0);
	for (char *l = strtok_r(text, "\n", &save); l;
	     l = strtok_r(NULL, "\n", &save)) {
		assert_int_equal(
			buf_addf(out, "%s\n", l + is_commented_default(l)), 0);
	}
}

static void shipped_file_documents_every_key_with_its_default(void **state)
{
	owned(config) struct config *c = NULL;
	owned(buf) struct buf b = { 0 };
	struct err e = ERR_INIT;

	(void)state;
	uncomment(&b);
	if (config_parse("config.toml", (char *)b.p, b.len, &c, &e) < 0)
		fail_msg("%s", e.msg);
	assert_defaults(c);
	for (size_t i = 0; config_key_name(i); i++) {
		char want[64];

		(void)snprintf(want, sizeof(want),
			       "\n%s = ", config_key_name(i));
		if (!strstr((char *)b.p, want))
			fail_msg("no line for '%s'", config_key_name(i));
	}
}

static void shipped_file_sets_nothing(void **state)
{
	owned(mem) char *text = NULL;
	char *save = NULL;

	(void)state;
	assert_int_equal(read_file_at(AT_FDCWD, "deploy/config.toml", 65536,
				      &text, NULL),
			 0);
	for (char *l = strtok_r(text, "\n", &save); l;
	     l = strtok_r(NULL, "\n", &save))
		assert_int_equal(l[0], '#');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_of_an_empty_file_gives_defaults),
		cmocka_unit_test(parse_sets_every_key),
		cmocka_unit_test(parse_refuses_with_file_and_line),
		cmocka_unit_test(load_wants_a_named_file_to_exist),
		cmocka_unit_test(
			shipped_file_documents_every_key_with_its_default),
		cmocka_unit_test(shipped_file_sets_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
