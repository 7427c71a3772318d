/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines; see log.h. Owns the level, the sink, and what was said lately. */
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "io.h"

#define LINE_MAX_BYTES 1024

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

/* ---- what repeats itself ---- */

/* A pair that was logged. Threads may race for one: then a line too many is
 * written, or a count is lost, and nothing worse. */
struct repeat {
	_Atomic uint64_t id; /* of format and key; 0: free */
	_Atomic uint64_t next_ms; /* not before */
	_Atomic uint64_t interval_ms;
	_Atomic unsigned n_suppressed;
};

#define REPEATS 256 /* a power of two */
#define WAYS 8 /* places that a pair may have */

static struct repeat repeats[REPEATS];
static uint64_t (*_Atomic cur_clock)(void);

void log_set_clock(uint64_t (*clock)(void))
{
	atomic_store(&cur_clock, clock);
	for (size_t i = 0; i < REPEATS; i++)
		atomic_store(&repeats[i].id, 0);
}

/* FNV-1a. A format is a constant and has one address. */
static uint64_t pair_id(const char *fmt, const char *key)
{
	uint64_t h = 0xcbf29ce484222325u ^ (uint64_t)(uintptr_t)fmt;

	h *= 0x100000001b3u;
	for (; key && *key; key++)
		h = (h ^ (unsigned char)*key) * 0x100000001b3u;
	h ^= h >> 32;
	return h ? h : 1;
}

static struct repeat *find_repeat(uint64_t id)
{
	struct repeat *victim = NULL;

	for (size_t i = 0; i < WAYS; i++) {
		struct repeat *r = &repeats[(id + i) % REPEATS];
		uint64_t was = atomic_load(&r->id);

		if (was == id)
			return r;
		if (!victim ||
		    (atomic_load(&victim->id) &&
		     (!was || atomic_load(&r->next_ms) <
				      atomic_load(&victim->next_ms))))
			victim = r;
	}
	atomic_store(&victim->id, id);
	atomic_store(&victim->next_ms, 0);
	atomic_store(&victim->interval_ms, LOG_LIMIT_MS);
	atomic_store(&victim->n_suppressed, 0);
	return victim;
}

/* True: speak, also for so many others. */
static bool may_speak(const char *fmt, const char *key, unsigned *ret_others)
{
	uint64_t (*clock)(void) = atomic_load(&cur_clock);
	uint64_t now = clock ? clock() : now_ms();
	struct repeat *r = find_repeat(pair_id(fmt, key));
	uint64_t next = atomic_load(&r->next_ms);
	uint64_t interval = atomic_load(&r->interval_ms);

	/* A pause as long as the interval: what comes now is a new fault. */
	if (now >= next + interval)
		interval = LOG_LIMIT_MS;
	if (now < next || !atomic_compare_exchange_strong(&r->next_ms, &next,
							  now + interval)) {
		atomic_fetch_add(&r->n_suppressed, 1);
		return false;
	}
	interval *= 2;
	atomic_store(&r->interval_ms,
		     interval < LOG_LIMIT_MAX_MS ? interval : LOG_LIMIT_MAX_MS);
	*ret_others = atomic_exchange(&r->n_suppressed, 0);
	return true;
}

void log_limited(enum log_level level, const char *key, const char *fmt, ...)
{
	char msg[LINE_MAX_BYTES];
	int saved = errno;
	unsigned others;
	va_list ap;

	if (level > log_get_level())
		return;
	if (may_speak(fmt, key, &others)) {
		va_start(ap, fmt);
		(void)vsnprintf(msg, sizeof(msg), fmt, ap);
		va_end(ap);
		if (others)
			log_at(level, "%s suppressed=%u", msg, others);
		else
			log_at(level, "%s", msg);
	}
	errno = saved;
}
