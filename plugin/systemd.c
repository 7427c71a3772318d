/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service manager's side of the daemon; see systemd.h. A failure to tell
 * it something is not ours to handle: it has timeouts of its own.
 */
#include "plugin/systemd.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-daemon.h>
#include <systemd/sd-journal.h>

#include "base/log.h"

#define FIELDS_MAX 24
#define FIELDS_BYTES 2048

/* ---- journal ---- */

struct entry {
	struct iovec iov[FIELDS_MAX];
	int n;
	char text[FIELDS_BYTES];
	size_t len;
};

/* Appends "@name=@value", with @prefix and @name in upper case. Fields that
 * do not fit are left out; MESSAGE has them anyway. */
static void add_field(struct entry *en, const char *prefix, const char *name,
		      size_t name_len, const char *value, size_t value_len)
{
	size_t prefix_len = strlen(prefix);
	size_t need = prefix_len + name_len + 1 + value_len;
	char *p = en->text + en->len;

	if (en->n == FIELDS_MAX || need > sizeof(en->text) - en->len)
		return;
	memcpy(p, prefix, prefix_len);
	for (size_t i = 0; i < name_len; i++)
		p[prefix_len + i] = (char)toupper((unsigned char)name[i]);
	p[prefix_len + name_len] = '=';
	memcpy(p + prefix_len + name_len + 1, value, value_len);
	en->iov[en->n++] = (struct iovec){ .iov_base = p, .iov_len = need };
	en->len += need;
}

/* "sentence: key=value key='two words'": the pairs. */
static void add_pairs(struct entry *en, const char *msg)
{
	const char *p = strstr(msg, ": ");

	for (p = p ? p + 1 : ""; *p == ' ';) {
		const char *name = ++p, *value;
		size_t name_len, len;

		while (islower((unsigned char)*p) || *p == '_')
			p++;
		name_len = (size_t)(p - name);
		if (name_len == 0 || *p != '=')
			return;
		value = ++p;
		if (*value == '\'') {
			/* A quote may stand inside: the one that closes has a
			 * blank or the end behind it. */
			for (p = ++value;
			     *p && (*p != '\'' || (p[1] && p[1] != ' ')); p++)
				;
			len = (size_t)(p - value);
			p += *p == '\'';
		} else {
			len = strcspn(value, " ");
			p += len;
		}
		add_field(en, "VS_", name, name_len, value, len);
	}
}

/* syslog's numbers: err, warning, info, debug */
static const char *const priority[] = { "3", "4", "6", "7" };

/* One write: the stream is the journal's as well, and knows "<N>". */
static void to_stream(enum log_level level, const char *msg)
{
	char line[FIELDS_BYTES];
	int n = snprintf(line, sizeof(line), "<%s>%s\n", priority[level], msg);

	if (n > 0 && (size_t)n < sizeof(line))
		(void)!write(STDERR_FILENO, line, (size_t)n);
}

static void to_journal(enum log_level level, const char *msg)
{
	static const char ident[] = "verity-snapshotter";
	struct entry en = { .n = 0, .len = 0 };

	add_field(&en, "", "message", 7, msg, strlen(msg));
	add_field(&en, "", "priority", 8, priority[level], 1);
	add_field(&en, "", "syslog_identifier", 17, ident, sizeof(ident) - 1);
	add_pairs(&en, msg);
	if (sd_journal_sendv(en.iov, en.n) < 0)
		to_stream(level, msg);
}

static bool journal_is_on;

void systemd_log_last_lines(void)
{
	if (journal_is_on)
		log_set_sink(to_stream);
}

void systemd_log_to_journal(void)
{
	const char *env = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;
	char *end;

	if (!env || fstat(STDERR_FILENO, &st) < 0)
		return;
	/* Set for the service, but stderr may have been redirected since. */
	errno = 0;
	dev = strtoull(env, &end, 10);
	if (errno || *end != ':')
		return;
	ino = strtoull(end + 1, &end, 10);
	if (errno || *end || dev != st.st_dev || ino != st.st_ino)
		return;
	journal_is_on = true;
	log_set_sink(to_journal);
}

/* ---- sockets ---- */

int systemd_take_socket(int *ret_fd, struct err *e)
{
	int n = sd_listen_fds(1);

	if (n < 0)
		return err_sys(e, n, "read LISTEN_FDS");
	for (int i = 1; i < n; i++) {
		log_warn("more than one socket passed, closed: fd=%d",
			 SD_LISTEN_FDS_START + i);
		(void)close(SD_LISTEN_FDS_START + i);
	}
	if (n > 0 && sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, 1,
				       NULL, 0) <= 0) {
		(void)close(SD_LISTEN_FDS_START);
		return err_set(e, ERR_INVALID,
			       "the file descriptor passed in is no listening "
			       "unix stream socket");
	}
	if (n == 0) {
		*ret_fd = -1;
		return 0;
	}
	/* Shared with the service manager, who only polls it. */
	if (fcntl(SD_LISTEN_FDS_START, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(e, -errno, "set O_NONBLOCK");
	*ret_fd = SD_LISTEN_FDS_START;
	return 0;
}

/* ---- readiness ---- */

void systemd_ready(sd_event *ev, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	int r;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	r = sd_event_set_watchdog(ev, true);
	if (r < 0)
		log_warn("watchdog not served: err='%s'", strerror(-r));
	(void)sd_notifyf(0, "READY=1\nSTATUS=%s", text);
}

void systemd_stopping(const char *why)
{
	(void)sd_notifyf(0, "STOPPING=1\nSTATUS=stopping: %s", why);
}
