/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Challenges and tokens; see auth.h. Takes apart what registries and token
 * servers say, and forms what they are told; knows neither files nor network.
 */
#include "snapshotter/auth.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include <json-c/json.h>
#include <openssl/evp.h>

#include "snapshotter/auth_json.h"
#include "snapshotter/url.h"

#define EXPIRES_DEFAULT_S 60
#define EXPIRES_MAX_S (7 * 24 * 3600)
#define TOKEN_MAX (32 * 1024)

void secret_free(char *s)
{
	if (!s)
		return;
	explicit_bzero(s, strlen(s));
	free(s);
}

void auth_cred_release(struct auth_cred *c)
{
	free(c->user);
	secret_free(c->secret);
	memset(c, 0, sizeof(*c));
}

/* ---- WWW-Authenticate ---- */

/* RFC 9110 section 5.6.2 */
static bool is_tchar(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static size_t skip_blank(const char *s)
{
	return strspn(s, " \t");
}

/*
 * "abc==" behind a scheme, up to a comma or the end: its length. 0: parameters
 * follow instead.
 */
static size_t token68_len(const char *s)
{
	size_t n = 0;

	while (isalnum((unsigned char)s[n]) || (s[n] && strchr("-._~+/", s[n])))
		n++;
	if (n == 0)
		return 0;
	n += strspn(s + n, "=");
	s += n;
	s += skip_blank(s);
	return *s == '\0' || *s == ',' ? n : 0;
}

/* A token or quoted string at *@s. -1: neither, or longer than @size. */
static int take_value(const char **s, char *out, size_t size)
{
	const char *p = *s;
	bool quoted = *p == '"';
	size_t n = 0;

	p += quoted;
	for (; quoted ? *p != '"' : is_tchar(*p); p++) {
		if (quoted && *p == '\\')
			p++;
		if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
			return -1; /* the end of the string as well */
		if (n + 1 >= size)
			return -1;
		out[n++] = *p;
	}
	if (!quoted && n == 0)
		return -1;
	out[n] = '\0';
	*s = p + quoted;
	return 0;
}

static int take_param(const char **s, const char *name, size_t name_len,
		      struct auth_challenge *ch)
{
	static const struct {
		const char *name;
		size_t off, size;
	} known[] = {
#define FIELD(f) { #f, offsetof(struct auth_challenge, f), sizeof(ch->f) }
		FIELD(realm),
		FIELD(service),
		FIELD(scope),
#undef FIELD
	};
	char other[1024];

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (strlen(known[i].name) == name_len &&
		    strncasecmp(known[i].name, name, name_len) == 0)
			return take_value(s, (char *)ch + known[i].off,
					  known[i].size);
	return take_value(s, other, sizeof(other));
}

static enum auth_scheme scheme_of(const char *name, size_t len)
{
	if (len == 6 && strncasecmp(name, "bearer", 6) == 0)
		return AUTH_BEARER;
	if (len == 5 && strncasecmp(name, "basic", 5) == 0)
		return AUTH_BASIC;
	return AUTH_NONE;
}

/* One element of the list: a scheme, or a parameter of the one before. */
static int take_element(const char **s, bool *have_scheme,
			struct auth_challenge *cur, struct auth_challenge *best)
{
	const char *name = *s, *p = name;
	size_t len;

	while (is_tchar(*p))
		p++;
	len = (size_t)(p - name);
	if (len == 0)
		return -1;
	if (p[skip_blank(p)] == '=') {
		p += skip_blank(p) + 1;
		p += skip_blank(p);
		if (!*have_scheme || take_param(&p, name, len, cur) < 0)
			return -1;
		*s = p;
		return 0;
	}
	if (*p && *p != ' ' && *p != '\t' && *p != ',')
		return -1;
	if (cur->scheme > best->scheme)
		*best = *cur;
	memset(cur, 0, sizeof(*cur));
	cur->scheme = scheme_of(name, len);
	*have_scheme = true;
	p += skip_blank(p);
	p += token68_len(p);
	*s = p;
	return 0;
}

int auth_challenge_parse(const char *s, struct auth_challenge *ret,
			 struct err *e)
{
	struct auth_challenge cur = { 0 }, best = { 0 };
	bool have_scheme = false;

	for (;;) {
		s += strspn(s, " \t,");
		if (!*s)
			break;
		if (take_element(&s, &have_scheme, &cur, &best) < 0)
			return err_set(e, ERR_INVALID,
				       "malformed WWW-Authenticate header");
	}
	if (cur.scheme > best.scheme)
		best = cur;
	if (best.scheme == AUTH_NONE)
		return err_set(e, ERR_UNSUPPORTED,
			       "neither Basic nor Bearer authentication");
	if (best.scheme == AUTH_BEARER && !best.realm[0])
		return err_set(e, ERR_INVALID,
			       "Bearer challenge without a realm");
	*ret = best;
	return 0;
}

/* ---- what we send ---- */

int auth_basic(const struct auth_cred *c, char **ret)
{
	static const char prefix[] = "Basic ";
	struct buf plain = { 0 };
	size_t n;
	char *out;

	(void)buf_addf(&plain, "%s:%s", c->user, c->secret);
	if (plain.failed)
		return -ENOMEM;
	n = 4 * ((plain.len + 2) / 3) + 1;
	out = malloc(sizeof(prefix) - 1 + n);
	if (out) {
		memcpy(out, prefix, sizeof(prefix) - 1);
		(void)EVP_EncodeBlock((unsigned char *)out + sizeof(prefix) - 1,
				      plain.p, (int)plain.len);
		*ret = out;
	}
	explicit_bzero(plain.p, plain.len);
	buf_release(&plain);
	return out ? 0 : -ENOMEM;
}

static void add_pair(struct buf *b, const char *sep, const char *name,
		     const char *value, size_t len)
{
	(void)buf_addf(b, "%s%s=", sep, name);
	url_add_encoded(b, value, len);
}

/* Hands out the string of @b. */
static int finish_text(struct buf *b, char **ret)
{
	if (b->failed) {
		buf_release(b);
		return -ENOMEM;
	}
	*ret = (char *)b->p;
	return 0;
}

int auth_token_url(const struct auth_challenge *ch, const char *scope,
		   char **ret)
{
	const char *s = ch->scope[0] ? ch->scope : scope;
	const char *sep = strchr(ch->realm, '?') ? "&" : "?";
	struct buf b = { 0 };

	(void)buf_adds(&b, ch->realm);
	if (ch->service[0]) {
		add_pair(&b, sep, "service", ch->service, strlen(ch->service));
		sep = "&";
	}
	for (s += strspn(s, " "); *s; s += strspn(s, " ")) {
		size_t n = strcspn(s, " ");

		add_pair(&b, sep, "scope", s, n);
		sep = "&";
		s += n;
	}
	return finish_text(&b, ret);
}

int auth_token_form(const struct auth_challenge *ch, const char *scope,
		    const struct auth_cred *c, char **ret)
{
	const char *s = ch->scope[0] ? ch->scope : scope;
	struct buf b = { 0 };

	(void)buf_adds(&b, "grant_type=refresh_token"
			   "&client_id=verity-snapshotter");
	add_pair(&b, "&", "service", ch->service, strlen(ch->service));
	add_pair(&b, "&", "scope", s, strlen(s));
	add_pair(&b, "&", "refresh_token", c->secret, strlen(c->secret));
	return finish_text(&b, ret);
}

/* ---- what a token server answers ---- */

/* RFC 6750: b64token; wider here, but nothing that ends a header line. */
static bool is_token(const char *s)
{
	size_t n = strlen(s);

	if (n == 0 || n > TOKEN_MAX)
		return false;
	for (; *s; s++)
		if (*s <= ' ' || *s == 0x7f)
			return false;
	return true;
}

int auth_token_parse(const char *json, size_t len, struct auth_token *ret,
		     struct err *e)
{
	owned(json) struct json_object *o = NULL;
	const char *token;
	struct json_object *n;
	int64_t expires = 0;

	if (auth_json_parse(json, len, &o, e) < 0)
		return -1;
	token = auth_json_string(o, "token");
	if (!token || !*token)
		token = auth_json_string(o, "access_token");
	if (!token || !is_token(token))
		return err_set(e, ERR_INVALID, "no token in the answer");
	if (json_object_object_get_ex(o, "expires_in", &n))
		expires = json_object_get_int64(n);
	if (expires <= 0)
		expires = EXPIRES_DEFAULT_S;
	if (expires > EXPIRES_MAX_S)
		expires = EXPIRES_MAX_S;
	ret->token = strdup(token);
	if (!ret->token)
		return err_set(e, ERR_INTERNAL, "out of memory");
	ret->expires_s = (unsigned)expires;
	return 0;
}
