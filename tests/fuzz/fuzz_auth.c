/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What registries, token servers, credential helpers and config.json say. The
 * first byte picks the parser; what it accepts must keep its promises.
 */
#include <stdint.h>
#include <string.h>

#include "snapshotter/auth.h"
#include "snapshotter/credhelper.h"
#include "snapshotter/transfer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

static void challenge(const char *s)
{
	struct auth_challenge ch;
	struct err e = ERR_INIT;
	char *url;

	if (auth_challenge_parse(s, &ch, &e) < 0) {
		require(e.kind == ERR_INVALID || e.kind == ERR_UNSUPPORTED);
		return;
	}
	require(ch.scheme != AUTH_NONE);
	require(ch.scheme != AUTH_BEARER || ch.realm[0]);
	require(memchr(ch.realm, 0, sizeof(ch.realm)) != NULL);
	require(memchr(ch.scope, 0, sizeof(ch.scope)) != NULL);
	if (auth_token_url(&ch, "repository:a:pull", &url) == 0) {
		require(!strpbrk(url + strlen(ch.realm), "\r\n "));
		free(url);
	}
}

static void token(const char *s, size_t len)
{
	struct auth_token t = { 0 };

	if (auth_token_parse(s, len, &t, NULL) < 0)
		return;
	require(t.token[0] && !strpbrk(t.token, "\r\n ") && t.expires_s > 0);
	free(t.token);
}

static void config(const char *s, size_t len)
{
	static const char *const hosts[] = { "docker.io", "r.io:5000" };
	char helper[AUTH_HELPER_MAX + 1];

	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		struct auth_cred c = { 0 };

		if (auth_config_find(s, len, hosts[i], "a/b", &c, helper,
				     NULL) < 0)
			continue;
		require(!c.user == !c.secret);
		auth_cred_release(&c);
	}
}

static void helper_answer(const char *s, size_t len)
{
	struct auth_cred c = { 0 };

	if (credhelper_parse(s, len, &c, NULL) > 0)
		require(c.user && c.secret);
	auth_cred_release(&c);
}

static void content_range(const char *s)
{
	struct http_response r = { 0 };

	if (http_content_range(s, &r) && r.range_first != UINT64_MAX)
		require(r.range_first <= r.range_last &&
			r.range_last < r.range_total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size == 0)
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0]) {
	case 'c':
		challenge(text);
		break;
	case 't':
		token(text, size - 1);
		break;
	case 'j':
		config(text, size - 1);
		break;
	case 'h':
		helper_answer(text, size - 1);
		break;
	case 'r':
		content_range(text);
		break;
	default:
		break;
	}
	free(text);
	return 0;
}
