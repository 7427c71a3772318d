/* SPDX-License-Identifier: Apache-2.0 */
/* verityctl ls: what it makes of a daemon's answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "plugin/ctl_ls.h"
#include "plugin/ctl_text.h"

#define DIGEST \
	"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define IMAGE(name, host, repo, suffix, lazy, reason)                         \
	"{\"namespace\":\"k8s.io\",\"name\":\"" name "\",\"host\":\"" host    \
	"\",\"repository\":\"" repo "\",\"suffix\":\"" suffix                 \
	"\",\"digest\":\"" DIGEST "\",\"lazy\":" lazy ",\"reason\":\"" reason \
	"\"}"

static const char answer[] =
	"{\"containerd\":{\"address\":\"/c.sock\",\"connected\":true,"
	"\"reason\":\"\"},\"images\":[" IMAGE(
		"docker.io/library/a:1", "docker.io", "library/a", ":1", "true",
		"") "," IMAGE("docker.io/library/a:2", "docker.io", "library/a",
			      ":2", "false",
			      "evil \\u001b[31m") "," IMAGE("sha256:00", "", "",
							    "", "false",
							    "no name") "]}";

/* What is printed for @image; 0 or the kind of error. */
static int print(const char *doc, const char *image, bool json, char *out,
		 size_t size)
{
	owned(json) struct json_object *o = json_tokener_parse(doc);
	owned(file) FILE *file = fmemopen(out, size, "w");
	const struct ls_opts opts = { .image = image,
				      .json = json,
				      .out = file };
	struct err e = ERR_INIT;

	assert_non_null(o);
	assert_non_null(file);
	return ctl_ls_print(o, &opts, &e) < 0 ? (int)e.kind : 0;
}

static void ctl_ls_print_lists_all(void **state)
{
	char out[4096] = "";

	(void)state;
	assert_int_equal(print(answer, NULL, false, out, sizeof(out)), 0);
	assert_string_equal(
		out,
		"NAMESPACE  DIGEST               LAZY  IMAGE                  REASON\n"
		"k8s.io     sha256:aaaaaaaaaaaa  yes   docker.io/library/a:1  -\n"
		"k8s.io     sha256:aaaaaaaaaaaa  no    docker.io/library/a:2  evil ?[31m\n"
		"k8s.io     sha256:aaaaaaaaaaaa  no    sha256:00              no name\n");
}

static void ctl_ls_print_finds_an_image(void **state)
{
	static const struct {
		const char *image;
		unsigned n;
	} cases[] = {
		{ "a", 2 },
		{ "a:1", 1 },
		{ "docker.io/library/a:2", 1 },
		{ "sha256:00", 1 },
		{ "a:3", 0 },
		{ "reg.test/a", 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		owned(json) struct json_object *o = NULL;
		char out[4096] = "";
		int r = print(answer, cases[i].image, true, out, sizeof(out));

		assert_int_equal(r, cases[i].n ? 0 : ERR_UNAVAILABLE);
		o = json_tokener_parse(out);
		if (json_object_array_length(ctl_get(o, "images")) !=
		    cases[i].n)
			fail_msg("%s: %s", cases[i].image, out);
	}
}

static void ctl_ls_print_says_when_containerd_is_away(void **state)
{
	char out[4096] = "";

	(void)state;
	assert_int_equal(
		print("{\"containerd\":{\"address\":\"/c.sock\",\"connected\":"
		      "false,\"reason\":\"no\"},\"images\":[]}",
		      NULL, false, out, sizeof(out)),
		0);
	assert_non_null(
		strstr(out, "containerd (/c.sock) cannot be asked now"));
}

static void ctl_ls_print_refuses(void **state)
{
	char out[4096] = "";

	(void)state;
	assert_int_equal(print("{}", NULL, false, out, sizeof(out)),
			 ERR_INVALID);
	assert_int_equal(print(answer, "A b", false, out, sizeof(out)),
			 ERR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ctl_ls_print_lists_all),
		cmocka_unit_test(ctl_ls_print_finds_an_image),
		cmocka_unit_test(ctl_ls_print_says_when_containerd_is_away),
		cmocka_unit_test(ctl_ls_print_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
