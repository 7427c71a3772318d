/* SPDX-License-Identifier: Apache-2.0 */
/* Error reporting; see err.h. Formats into the caller's struct only. */
#include "err.h"

#include <stdarg.h>
#include <string.h>

int err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return -1;
	e->kind = kind;
	e->sys = 0;
	va_start(ap, fmt);
	(void)vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	return -1;
}

int err_sys(struct err *e, int neg_errno, const char *fmt, ...)
{
	char text[64];
	va_list ap;
	size_t n;

	if (!e)
		return -1;
	e->sys = neg_errno < 0 ? -neg_errno : neg_errno;
	e->kind = e->sys == ENOSPC || e->sys == EDQUOT ? ERR_NO_SPACE
						       : ERR_INTERNAL;
	va_start(ap, fmt);
	(void)vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	n = strlen(e->msg);
	(void)snprintf(e->msg + n, sizeof(e->msg) - n, ": %s",
		       strerror_r(e->sys, text, sizeof(text)));
	return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char old[sizeof(e->msg)];
	va_list ap;
	size_t n;

	if (!e)
		return -1;
	memcpy(old, e->msg, sizeof(old));
	va_start(ap, fmt);
	(void)vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	n = strlen(e->msg);
	(void)snprintf(e->msg + n, sizeof(e->msg) - n, ": %s", old);
	return -1;
}

const char *err_kind_name(enum err_kind kind)
{
	static const char *const names[] = {
		[ERR_NONE] = "none",
		[ERR_INVALID] = "invalid",
		[ERR_NOT_FOUND] = "not-found",
		[ERR_EXISTS] = "exists",
		[ERR_PRECONDITION] = "precondition",
		[ERR_CORRUPT] = "corrupt",
		[ERR_UNAVAILABLE] = "unavailable",
		[ERR_DENIED] = "denied",
		[ERR_UNSUPPORTED] = "unsupported",
		[ERR_NO_SPACE] = "no-space",
		[ERR_CANCELLED] = "cancelled",
		[ERR_INTERNAL] = "internal",
	};

	return (size_t)kind < ARRAY_LEN(names) ? names[kind] : "unknown";
}

int err_errno(const struct err *e)
{
	if (e->sys)
		return -e->sys;
	switch (e->kind) {
	case ERR_NONE:
		return 0;
	case ERR_INVALID:
		return -EINVAL;
	case ERR_NO_SPACE:
		return -ENOSPC;
	case ERR_UNSUPPORTED:
		return -EOPNOTSUPP;
	case ERR_CANCELLED:
		return -ECANCELED;
	case ERR_UNAVAILABLE:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}
