/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines; see log.h. Owns the level and the sink, and nothing else. */
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "io.h"

#define LINE_MAX_BYTES 1024
#define LIMIT_MS 5000

static _Atomic(enum log_level) cur_level = LOG_LEVEL_INFO;
static _Atomic(log_sink_fn) cur_sink;

static const char *const level_names[] = { "error", "warn", "info", "debug" };

void log_set_level(enum log_level level)
{
	atomic_store(&cur_level, level);
}

enum log_level log_get_level(void)
{
	return atomic_load_explicit(&cur_level, memory_order_relaxed);
}

void log_set_sink(log_sink_fn sink)
{
	atomic_store(&cur_sink, sink);
}

int log_level_parse(const char *s, enum log_level *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(level_names); i++) {
		if (!strcmp(s, level_names[i])) {
			*ret = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

static void emit_stderr(enum log_level level, const char *msg)
{
	char line[LINE_MAX_BYTES + 64];
	struct timespec ts;
	struct tm tm;
	int n;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	(void)gmtime_r(&ts.tv_sec, &tm);
	n = snprintf(line, sizeof(line),
		     "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s\n",
		     tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
		     tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000000,
		     level_names[level], msg);
	if (n > 0)
		(void)!write(STDERR_FILENO, line,
			     (size_t)n < sizeof(line) ? (size_t)n
						      : sizeof(line) - 1);
}

printf_like(2, 0) static void log_va(enum log_level level, const char *fmt,
				     va_list ap)
{
	log_sink_fn sink = atomic_load(&cur_sink);
	char msg[LINE_MAX_BYTES];
	int saved = errno;

	(void)vsnprintf(msg, sizeof(msg), fmt, ap);
	for (char *p = msg; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	if (sink)
		sink(level, msg);
	else
		emit_stderr(level, msg);
	errno = saved;
}

void log_at(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	if (level > log_get_level())
		return;
	va_start(ap, fmt);
	log_va(level, fmt, ap);
	va_end(ap);
}

void log_limited(struct log_limit *l, enum log_level level, const char *fmt,
		 ...)
{
	uint64_t now = now_ms();
	uint64_t next = __atomic_load_n(&l->next_ms, __ATOMIC_RELAXED);
	unsigned dropped;
	va_list ap;

	if (level > log_get_level())
		return;
	if (now < next || !__atomic_compare_exchange_n(
				  &l->next_ms, &next, now + LIMIT_MS, false,
				  __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
		__atomic_fetch_add(&l->n_dropped, 1, __ATOMIC_RELAXED);
		return;
	}
	dropped = __atomic_exchange_n(&l->n_dropped, 0, __ATOMIC_RELAXED);
	va_start(ap, fmt);
	log_va(level, fmt, ap);
	va_end(ap);
	if (dropped)
		log_at(level, "similar lines left out: count=%u", dropped);
}
