/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/ctl_status: the table for people, also of hostile documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "plugin/ctl_status.h"
#include "plugin/ctl_text.h"

/* Heap text, or NULL with @e set. */
static char *print(const char *json, struct err *e)
{
	owned(json) struct json_object *doc = json_tokener_parse(json);
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	int r;

	assert_non_null(doc);
	assert_non_null(out);
	r = ctl_status_print(doc, out, e);
	assert_int_equal(fclose(out), 0);
	if (r < 0) {
		free(text);
		return NULL;
	}
	return text;
}

static void expect(const char *json, const char *want)
{
	struct err e = ERR_INIT;
	owned(mem) char *got = print(json, &e);

	if (!got)
		fail_msg("%s", e.msg);
	assert_string_equal(got, want);
}

#define HEAD                                                       \
	"\"version\":\"1\",\"pid\":7,\"uptime_s\":93784,\"root\":" \
	"\"/r\",\"run\":\"/u\",\"address\":\"/a\",\"policy\":\"p\","
#define HEAD_TEXT                                                        \
	"verity-snapshotter 1, pid 7, up 1d 2h 3m 4s\nroot     /r\nrun " \
	"     /u\naddress  /a\npolicy   p\n"

static void print_shows_the_daemon_and_missing_features(void **state)
{
	(void)state;
	expect("{" HEAD "\"features\":["
	       "{\"name\":\"a\",\"state\":\"on\",\"why\":\"\"},"
	       "{\"name\":\"b\",\"state\":\"auto\",\"why\":\"\"},"
	       "{\"name\":\"c\",\"state\":\"absent\",\"why\":\"slow\"}],"
	       "\"page_cache\":[{\"device\":\"8:1\",\"way\":\"fadvise\"}],"
	       "\"layers\":[]}",
	       HEAD_TEXT "without  c (absent): slow\n"
			 "cache    fadvise on device 8:1\n\nno layers\n");
}

static void print_tells_who_reads_what_is_open(void **state)
{
	(void)state;
	expect("{" HEAD "\"view\":{\"opens\":{\"cached\":3,\"passthrough\":4,"
	       "\"healed\":1,\"changeable\":2,\"refused\":\"EL\\u001b\"}},"
	       "\"layers\":[]}",
	       HEAD_TEXT
	       "open     8 files, 4 of them read by the kernel itself; "
	       "2 could be when they are opened again\n"
	       "without  passthrough (refused by the kernel: EL?): "
	       "reads of complete files go through the daemon\n\nno layers\n");
}

static void print_tells_what_a_scrub_found(void **state)
{
	(void)state;
	expect("{" HEAD "\"scrub\":{\"state\":\"idle\",\"files\":3,"
	       "\"bytes\":2048,\"bad\":0,\"no_kernel_log\":\"\"},\"layers\":[]}",
	       HEAD_TEXT
	       "scrub    idle, 3 files (2.0 KiB) read, 0 bad\n\nno layers\n");
	expect("{" HEAD "\"scrub\":{\"state\":\"running\",\"files\":9,"
	       "\"bytes\":0,\"bad\":2,\"not_healed\":1,\"last_bad\":\"map\\u001b\","
	       "\"no_kernel_log\":\"EPERM\"},\"layers\":[]}",
	       HEAD_TEXT "scrub    running, 9 files (0 B) read, 2 bad\n"
			 "scrub    1 not healed; the last bad: map?\n"
			 "scrub    the kernel's log is not watched: EPERM\n"
			 "\nno layers\n");
}

static void print_tells_how_sealing_goes(void **state)
{
	(void)state;
	expect("{" HEAD
	       "\"sealing\":{\"state\":\"off\",\"reason\":\"no\\u001b\"},"
	       "\"layers\":[]}",
	       HEAD_TEXT "sealing  off: no?\n\nno layers\n");
	expect("{" HEAD
	       "\"sealing\":{\"state\":\"on\",\"files\":3,\"bytes\":2048,"
	       "\"queued\":1,\"waiting\":0,\"helper\":{\"no_cgroup\":\"\"}},"
	       "\"layers\":[]}",
	       HEAD_TEXT
	       "sealing  3 files (2.0 KiB) sealed, 1 queued\n\nno layers\n");
	expect("{" HEAD "\"sealing\":{\"state\":\"on\",\"files\":0,\"bytes\":0,"
	       "\"queued\":0,\"waiting\":2,\"last_error\":\"full\","
	       "\"helper\":{\"no_cgroup\":\"v2\"}},\"layers\":[]}",
	       HEAD_TEXT
	       "sealing  0 files (0 B) sealed, 0 queued\n"
	       "sealing  2 files wait (full)\n"
	       "sealing  without a cgroup of its own: v2\n\nno layers\n");
	expect("{" HEAD "\"sealing\":7,\"layers\":[]}",
	       HEAD_TEXT "\nno layers\n");
}

static void print_names_broken_containers(void **state)
{
	(void)state;
	expect("{" HEAD "\"broken\":["
	       "{\"mount\":\"/t/a/rootfs\",\"container\":\"default/a\"},"
	       "{\"mount\":\"/v\",\"container\":\"\"},7],\"layers\":[]}",
	       HEAD_TEXT
	       "broken   default/a: on layers of an earlier daemon, restart it (/t/a/rootfs)\n"
	       "broken   -: on layers of an earlier daemon, restart it (/v)\n"
	       "broken   -: on layers of an earlier daemon, restart it (-)\n"
	       "\nno layers\n");
}

static void print_names_hosts_that_are_not_well(void **state)
{
	(void)state;
	expect("{" HEAD "\"registries\":["
	       "{\"registry\":\"a.test\",\"config\":\"/c\",\"error\":\"\","
	       "\"hosts\":[{\"url\":\"https://m\",\"state\":\"bad\","
	       "\"reason\":\"silent\\u001b\",\"failures\":2,\"left_s\":9},"
	       "{\"url\":\"https://n\",\"reason\":\"gone\",\"failures\":1,"
	       "\"wrong_bytes\":1,\"left_s\":0},"
	       "{\"url\":\"https://a\",\"failures\":0,\"wrong_bytes\":2},"
	       "{\"url\":\"https://well\",\"failures\":0},7]},"
	       "{\"registry\":\"c.test\",\"hosts\":[{\"url\":\"https://c\","
	       "\"reason\":\"down\",\"failures\":1,\"left_s\":9}]},"
	       "{\"registry\":\"b.test\",\"error\":\"/c:3: no\"},7],"
	       "\"layers\":[]}",
	       HEAD_TEXT
	       "registry a.test: https://m fails: silent? (others first for 9 s)\n"
	       "registry a.test: https://n fails: gone\n"
	       "registry a.test: https://n sent wrong bytes 1 time\n"
	       "registry a.test: https://a sent wrong bytes 2 times\n"
	       "registry c.test: https://c fails: down\n"
	       "registry b.test: not usable: /c:3: no\n"
	       "\nno layers\n");
	expect("{" HEAD "\"registries\":7,\"layers\":[]}",
	       HEAD_TEXT "\nno layers\n");
}

static void print_tells_what_limits_hold_up(void **state)
{
	(void)state;
	expect("{" HEAD "\"limits\":{\"connections\":3,"
	       "\"connections_max\":64,\"requests_queued\":0,"
	       "\"readers_refused\":0},\"layers\":[]}",
	       HEAD_TEXT "\nno layers\n");
	expect("{" HEAD "\"limits\":{\"connections\":64,"
	       "\"connections_max\":64,\"requests_queued\":5,"
	       "\"readers_of_a_registry_max\":4096,\"readers_refused\":2},"
	       "\"layers\":[]}",
	       HEAD_TEXT
	       "limits   5 requests wait for a connection (64 of 64 in use)\n"
	       "limits   2 reads were refused with EBUSY: more than 4096 waited for one registry\n"
	       "\nno layers\n");
}

static void print_aligns_rows(void **state)
{
	(void)state;
	expect("{" HEAD "\"layers\":["
	       "{\"digest\":\"sha256:00112233445566\",\"image\":\"a/b:1\","
	       "\"state\":\"lazy\",\"reason\":\"\",\"bytes_total\":1073741824,"
	       "\"bytes_local\":1536,\"waiting\":2,"
	       "\"waiting_for\":\"registry:5000\"},"
	       "{\"digest\":\"sha256:ff\",\"image\":\"\xc3\xa9\","
	       "\"state\":\"fallback\",\"reason\":\"no TOC\","
	       "\"bytes_total\":0,\"bytes_local\":0,\"waiting\":0}]}",
	       HEAD_TEXT
	       "\n"
	       "LAYER         STATE       LOCAL    TOTAL  WAITING  IMAGE  REASON\n"
	       "001122334455  lazy      1.5 KiB  1.0 GiB        2  a/b:1  -\n"
	       "              waits for registry:5000\n"
	       "ff            fallback      0 B      0 B        0  \xc3\xa9      no TOC\n");
}

static void print_disarms_terminal_escapes(void **state)
{
	struct err e = ERR_INIT;
	owned(mem) char *got =
		print("{\"layers\":[{\"image\":\"a\\u001b[2J\\u009b1m\\u007f"
		      "\\n\\r\\u0000z\",\"reason\":\"\\u0008\"}]}",
		      &e);

	(void)state;
	assert_non_null(got);
	assert_null(strchr(got, '\x1b'));
	assert_null(strstr(got, "\xc2\x9b"));
	assert_null(strchr(got, '\b'));
	assert_null(strchr(got, '\r'));
	assert_non_null(strstr(got, "a?[2J?1m???"));
}

static void print_survives_odd_types_and_lengths(void **state)
{
	static const char euro[] = "\xe2\x82\xac";
	char json[4096] = "{\"features\":3,\"pid\":{},\"layers\":[null,7,"
			  "{\"bytes_total\":\"x\",\"waiting_for\":[null,1],"
			  "\"image\":\"";
	struct err e = ERR_INIT;
	owned(mem) char *got = NULL;
	const char *p;

	(void)state;
	for (int i = 0; i < 600; i++)
		strncat(json, euro, sizeof(json) - strlen(json) - 1);
	strncat(json, "\"}]}", sizeof(json) - strlen(json) - 1);
	got = print(json, &e);
	assert_non_null(got);
	/* cut, and not within a character: only whole euro signs */
	p = strstr(got, euro);
	assert_non_null(p);
	while (!strncmp(p, euro, 3))
		p += 3;
	assert_int_equal(*p, ' ');
}

static void print_refuses_a_document_without_layers(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_null(print("{\"layers\":{}}", &e));
	assert_int_equal(e.kind, ERR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(print_shows_the_daemon_and_missing_features),
		cmocka_unit_test(print_tells_who_reads_what_is_open),
		cmocka_unit_test(print_tells_how_sealing_goes),
		cmocka_unit_test(print_tells_what_a_scrub_found),
		cmocka_unit_test(print_names_broken_containers),
		cmocka_unit_test(print_names_hosts_that_are_not_well),
		cmocka_unit_test(print_tells_what_limits_hold_up),
		cmocka_unit_test(print_aligns_rows),
		cmocka_unit_test(print_disarms_terminal_escapes),
		cmocka_unit_test(print_survives_odd_types_and_lengths),
		cmocka_unit_test(print_refuses_a_document_without_layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
