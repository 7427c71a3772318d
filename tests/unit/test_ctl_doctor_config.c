/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plugin/ctl_doctor_config: what is found in configurations of versions of
 * containerd that the integration tests have not; the list of findings.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "plugin/ctl_doctor_config.h"
#include "plugin/ctl_text.h"

#define ADDRESS "/run/x/snapshotter.sock"
#define PLUGIN                             \
	"[proxy_plugins.verity]\n"         \
	"type = 'snapshot'\n"              \
	"address = '" ADDRESS "'\n"        \
	"[proxy_plugins.verity.exports]\n" \
	"root = '/r'\n"
#define EXPORT "enable_remote_snapshot_annotations = 'true'\n"
#define LIST                                                            \
	"[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]\n" \
	"snapshotter = 'overlayfs'\n"                                   \
	"[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]\n" \
	"snapshotter = 'verity'\n"
#define CRI_1 "[plugins.'io.containerd.grpc.v1.cri'.containerd]\n"
#define CRI_2 "[plugins.'io.containerd.cri.v1.images']\n"

/* "check level, check level, ..." of all that is not ok. */
static void expect(unsigned major, unsigned minor, const char *dump,
		   const char *want)
{
	static const struct doctor_opts o = { 0 };
	struct doctor d = { .o = &o,
			    .findings = json_object_new_array(),
			    .root = "/r",
			    .address = ADDRESS };
	owned(toml) struct toml *t = NULL;
	struct ctd_config c = { .major = major,
				.minor = minor,
				.path = "/nowhere/config.toml" };
	struct err e = ERR_INIT;
	char got[1000] = "";

	if (toml_parse("dump", dump, strlen(dump), &t, &e) < 0)
		fail_msg("%s", e.msg);
	c.dump = t;
	doctor_judge_config(&d, &c);
	for (size_t i = 0; i < json_object_array_length(d.findings); i++) {
		struct json_object *f =
			json_object_array_get_idx(d.findings, i);
		const char *level = json_object_get_string(ctl_get(f, "level"));
		size_t len = strlen(got);

		if (strcmp(level, "ok") != 0)
			(void)snprintf(
				got + len, sizeof(got) - len, "%s%s %s",
				len ? ", " : "",
				json_object_get_string(ctl_get(f, "check")),
				level);
	}
	assert_string_equal(got, want);
	doctor_release(&d);
}

static void judge_asks_of_each_version_what_it_has(void **state)
{
	(void)state;
	expect(2, 1, PLUGIN EXPORT LIST, "");
	expect(2, 4, PLUGIN LIST, "containerd.exports problem");
	/* 2.0 has the transfer service, and no annotations. */
	expect(2, 0, PLUGIN,
	       "containerd.unpack_config problem, "
	       "containerd.unpack_config problem, "
	       "containerd.alias warning");
	expect(1, 7, PLUGIN, "containerd.alias warning");
	expect(1, 7,
	       PLUGIN "[proxy_plugins.stargz]\ntype = 'snapshot'\n"
		      "address = 'unix://" ADDRESS "'\n",
	       "");
	expect(2, 3, PLUGIN "enable_remote_snapshot_annotations = true\n" LIST,
	       "containerd.exports problem");
	expect(2, 3, "", "containerd.plugin problem");
	expect(2, 3,
	       "[proxy_plugins.verity]\ntype = 'snapshot'\naddress = '/a'\n",
	       "containerd.address problem");
	/* Another kind of plugin at the same address is none of ours. */
	expect(2, 3,
	       "[proxy_plugins.verity]\ntype = 'content'\n"
	       "address = '" ADDRESS "'\n",
	       "containerd.plugin problem");
}

static void judge_knows_when_kubernetes_is_not_told(void **state)
{
	(void)state;
	expect(1, 7,
	       PLUGIN CRI_1 "snapshotter = 'verity'\n"
			    "disable_snapshot_annotations = true\n",
	       "containerd.cri problem, containerd.alias warning");
	expect(1, 7,
	       PLUGIN CRI_1 "snapshotter = 'verity'\n"
			    "disable_snapshot_annotations = false\n",
	       "containerd.alias warning");
	/* The transfer service tells by itself, a local pull does not. */
	expect(2, 2,
	       PLUGIN EXPORT LIST CRI_2 "snapshotter = 'verity'\n"
					"disable_snapshot_annotations = true\n",
	       "");
	expect(2, 2,
	       PLUGIN EXPORT LIST CRI_2 "snapshotter = 'verity'\n"
					"disable_snapshot_annotations = true\n"
					"discard_unpacked_layers = true\n",
	       "containerd.cri problem");
	expect(2, 2,
	       PLUGIN EXPORT LIST CRI_2 "snapshotter = 'overlayfs'\n"
					"disable_snapshot_annotations = true\n"
					"discard_unpacked_layers = true\n",
	       "");
	expect(2, 2,
	       "disabled_plugins = ['io.containerd.cri.v1.images']\n" PLUGIN
		       EXPORT LIST CRI_2 "snapshotter = 'verity'\n"
	       "disable_snapshot_annotations = true\n"
	       "discard_unpacked_layers = true\n",
	       "");
}

/* Types that nobody expects are as good as nothing. */
static void judge_survives_other_types(void **state)
{
	(void)state;
	expect(2, 3, "proxy_plugins = 3\n", "containerd.plugin problem");
	expect(2, 3, "[proxy_plugins]\nverity = 1\n",
	       "containerd.plugin problem");
	expect(2, 3, "plugins = []\n" PLUGIN EXPORT,
	       "containerd.unpack_config problem, "
	       "containerd.unpack_config problem");
	expect(2, 3,
	       "disabled_plugins = [1, {}]\n" PLUGIN EXPORT
	       "[plugins.'io.containerd.transfer.v1.local']\n"
	       "unpack_config = ['verity', {snapshotter = 1}]\n",
	       "containerd.unpack_config problem, "
	       "containerd.unpack_config problem");
}

static void print_cleans_what_it_shows(void **state)
{
	struct doctor d = { .findings = json_object_new_array() };
	owned(mem) char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	(void)state;
	assert_non_null(out);
	doctor_ok(&d, "a", "%s", "good\x1b[2J");
	doctor_add(&d,
		   &(struct finding){ FINDING_PROBLEM, "b", "because\x07",
				      "one\ntwo\x1b" },
		   "bad");
	doctor_print(&d, out);
	assert_int_equal(fclose(out), 0);
	assert_string_equal(text, "ok       good?[2J\n"
				  "problem  bad\n"
				  "         why: because?\n"
				  "         do:  one\n"
				  "              two?\n"
				  "\n1 problems, 0 warnings, 0 not known\n");
	doctor_release(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(judge_asks_of_each_version_what_it_has),
		cmocka_unit_test(judge_knows_when_kubernetes_is_not_told),
		cmocka_unit_test(judge_survives_other_types),
		cmocka_unit_test(print_cleans_what_it_shows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
