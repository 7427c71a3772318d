/* SPDX-License-Identifier: Apache-2.0 */
/*
 * URLs; see url.h. A thin layer over curl's URL interface that narrows it to
 * what a registry may send us to.
 */
#include "snapshotter/url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

DEFINE_OWNED(curlu, CURLU *, curl_url_cleanup)
DEFINE_OWNED(curlstr, char *, curl_free)

void url_release(struct url *u)
{
	free(u->text);
	memset(u, 0, sizeof(*u));
}

/* Space and control characters never belong into a request line or header. */
static bool is_plain(const char *s)
{
	size_t n = strnlen(s, URL_MAX_LEN + 1);

	if (n == 0 || n > URL_MAX_LEN)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || *s == 0x7f)
			return false;
	return true;
}

static int map_code(CURLUcode c)
{
	return c == CURLUE_OUT_OF_MEMORY ? -ENOMEM : -EINVAL;
}

/* A part that must be there, copied to @buf. */
static int get_part(CURLU *u, CURLUPart what, unsigned flags, char *buf,
		    size_t size)
{
	owned(curlstr) char *s = NULL;
	CURLUcode c = curl_url_get(u, what, &s, flags);
	size_t n;

	if (c != CURLUE_OK)
		return map_code(c);
	n = strlen(s);
	if (n == 0 || n >= size)
		return -EINVAL;
	for (size_t i = 0; i <= n; i++)
		buf[i] = (char)tolower((unsigned char)s[i]);
	return 0;
}

static int check_no_user(CURLU *u)
{
	owned(curlstr) char *user = NULL;
	owned(curlstr) char *password = NULL;

	/* Credentials come from the configuration, never from a redirect. */
	if (curl_url_get(u, CURLUPART_USER, &user, 0) != CURLUE_NO_USER ||
	    curl_url_get(u, CURLUPART_PASSWORD, &password, 0) !=
		    CURLUE_NO_PASSWORD)
		return -EINVAL;
	return 0;
}

int url_parse(const char *base, const char *s, struct url *ret)
{
	owned(curlu) CURLU *u = curl_url();
	owned(curlstr) char *text = NULL;
	struct url out = { 0 };
	char scheme[8], port[8];
	CURLUcode c = CURLUE_OK;
	int r;

	if (!u)
		return -ENOMEM;
	if (!is_plain(s))
		return -EINVAL;
	if (base)
		c = curl_url_set(u, CURLUPART_URL, base, 0);
	if (c == CURLUE_OK)
		c = curl_url_set(u, CURLUPART_URL, s, 0);
	if (c == CURLUE_OK)
		c = curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0);
	if (c != CURLUE_OK)
		return map_code(c);
	r = get_part(u, CURLUPART_SCHEME, 0, scheme, sizeof(scheme));
	if (r < 0)
		return r;
	out.https = strcmp(scheme, "https") == 0;
	if (!out.https && strcmp(scheme, "http") != 0)
		return -EINVAL;
	r = check_no_user(u);
	if (r == 0)
		r = get_part(u, CURLUPART_HOST, 0, out.host, sizeof(out.host));
	if (r == 0)
		r = get_part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, port,
			     sizeof(port));
	if (r < 0)
		return r;
	out.port = (uint16_t)strtoul(port, NULL, 10);
	c = curl_url_get(u, CURLUPART_URL, &text, 0);
	if (c != CURLUE_OK)
		return map_code(c);
	if (!is_plain(text))
		return -EINVAL;
	out.text = strdup(text);
	if (!out.text)
		return -ENOMEM;
	url_release(ret);
	*ret = out;
	return 0;
}

bool url_same_origin(const struct url *a, const struct url *b)
{
	return a->https == b->https && a->port == b->port &&
	       strcmp(a->host, b->host) == 0;
}

void url_add_encoded(struct buf *b, const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if (isalnum(c) || (c && strchr("-._~:/", c)))
			(void)buf_add(b, &c, 1);
		else
			(void)buf_addf(b, "%%%02X", c);
	}
}

bool host_is_loopback(const char *host)
{
	size_t n = strlen(host);
	char bare[64];
	struct in6_addr v6;
	struct in_addr v4;

	if (strcasecmp(host, "localhost") == 0)
		return true;
	if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
		host++;
		n -= 2;
	}
	if (n >= sizeof(bare))
		return false;
	memcpy(bare, host, n);
	bare[n] = '\0';
	if (inet_pton(AF_INET, bare, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, bare, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}
