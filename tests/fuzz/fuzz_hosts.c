/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a hosts.toml; what is accepted can be asked and sent. */
#include <stdint.h>
#include <string.h>

#include "snapshotter/hosts.h"
#include "snapshotter/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool truth)
{
	if (!truth)
		abort();
}

static void check_host(const struct host *h)
{
	owned(url) struct url u = { 0 };
	size_t n = strlen(h->base);

	require(url_parse(NULL, h->base, &u) == 0);
	require(u.https == h->https && h->base[n - 1] != '/');
	require(h->name[0] && !strpbrk(h->name, "/@? \r\n"));
	require(h->caps & HOST_PULL);
	for (char **s = h->headers; s && *s; s++)
		require(strpbrk(*s, ":;") && !strpbrk(*s, "\r\n"));
	for (char **s = h->ca_files; s && *s; s++)
		require(**s == '/');
	require(!h->client_key || h->client_cert);
}

static void check(const char *registry, const uint8_t *data, size_t size)
{
	owned(hosts) struct host_list *l = NULL;
	struct err e = ERR_INIT;

	if (hosts_parse("/d", registry, (const char *)data, size, &l, &e) < 0) {
		require(e.kind == ERR_INVALID &&
			strncmp(e.msg, "/d/hosts.toml:", 14) == 0);
		return;
	}
	require(l->n > 0 && l->n <= 2 * (HOSTS_MAX + 1));
	for (size_t i = 0; i < l->n; i++)
		check_host(&l->v[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check("docker.io", data, size);
	check("127.0.0.1:5000", data, size);
	return 0;
}
