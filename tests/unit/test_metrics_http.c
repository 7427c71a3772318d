/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/metrics_http: what is an address. it/operator/metrics has the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netinet/in.h>

#include "plugin/metrics_http.h"

static void parse_addresses(void **state unused_arg)
{
	static const char *const good[] = { "127.0.0.1:9099", "0.0.0.0:1",
					    "[::1]:9099", "[::]:65535" };
	static const char *const bad[] = {
		"",
		"9099",
		":9099",
		"127.0.0.1",
		"127.0.0.1:",
		"::1:9099",
		"[::1]",
		"[::1]9099",
		"[]:1",
		"localhost:1",
		"127.0.0.1:-1",
		"127.0.0.1:65536",
		"127.0.0.1:x",
		"127.0.0.1: 1",
		"[127.0.0.1]:1",
		"[::1:1",
		"]:1",
		"/run/sock:1",
		"127.0.0.1:99999999999999999999",
	};
	struct sockaddr_storage sa;
	struct err e = ERR_INIT;
	socklen_t len;

	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (metrics_http_parse(good[i], &sa, &len, &e) < 0)
			fail_msg("'%s': %s", good[i], e.msg);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (metrics_http_parse(bad[i], &sa, &len, &e) == 0)
			fail_msg("'%s' is taken", bad[i]);
		assert_int_equal(e.kind, ERR_INVALID);
	}
	assert_int_equal(metrics_http_parse(good[2], &sa, &len, &e), 0);
	assert_int_equal(sa.ss_family, AF_INET6);
	assert_int_equal(((struct sockaddr_in6 *)&sa)->sin6_port, htons(9099));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
