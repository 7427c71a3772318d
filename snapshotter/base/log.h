/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging: a constant sentence, then key=value pairs.
 *
 *	log_warn("layer falls back: layer=%s reason='%s'", digest, e.msg);
 *
 * One write(2) a line to stderr in logfmt, or to the sink that plugin/systemd
 * installs for the journal. Values with spaces go in single quotes. Never log
 * credentials, tokens, or the query string of a blob URL. Safe in any thread;
 * allocates nothing; preserves errno.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdint.h>

#include "cleanup.h"

enum log_level {
	LOG_LEVEL_ERR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG
};

/* @msg: one line without newline, valid only during the call */
typedef void (*log_sink_fn)(enum log_level level, const char *msg);

void log_set_level(enum log_level level);
enum log_level log_get_level(void);
void log_set_sink(log_sink_fn sink);

/* log_level_parse() - "error" | "warn" | "info" | "debug"; -EINVAL otherwise */
int log_level_parse(const char *s, enum log_level *ret) must_check;

printf_like(2, 3) void log_at(enum log_level level, const char *fmt, ...);

#define log_err(...) log_at(LOG_LEVEL_ERR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                        \
	do {                                                  \
		if (log_get_level() >= LOG_LEVEL_DEBUG)       \
			log_at(LOG_LEVEL_DEBUG, __VA_ARGS__); \
	} while (0)

/*
 * log_limited() - for faults that repeat themselves
 * @key: what they are about: a host, a layer; NULL: nothing in particular
 *
 * One line for the same @fmt and @key each LOG_LIMIT_MS, and less often, down to
 * one each LOG_LIMIT_MAX_MS, as long as there is no pause. A line that speaks
 * for others, too, ends with suppressed=N. Some hundred pairs are remembered;
 * beyond that the one that may speak soonest is forgotten. Never blocks.
 */
#define LOG_LIMIT_MS 5000
#define LOG_LIMIT_MAX_MS 320000
printf_like(3, 4) void log_limited(enum log_level level, const char *key,
				   const char *fmt, ...);

/* The clock of log_limited() for tests; NULL: now_ms(). Forgets all pairs. */
void log_set_clock(uint64_t (*clock)(void));

#endif
