/* SPDX-License-Identifier: Apache-2.0 */
/* A helper process from its first step to its role; see helper.h. */
#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <linux/ioprio.h>

#include "base/log.h"
#include "verity/cgroup.h"
#include "verity/helper_priv.h"
#include "verity/scrubber.h"
#include "verity/sealer.h"

#define NICE 10

static const struct role {
	const char *name;
	int (*serve)(int sock, uint64_t memory);
} roles[] = {
	{ SEALER_ROLE, sealer_serve },
	{ SCRUBBER_ROLE, scrub_serve },
};

static const struct role *parse(const char *spec, uint64_t *ret_memory)
{
	const char *colon = strchr(spec, ':');
	char *end;

	if (!colon || !isdigit((unsigned char)colon[1]))
		return NULL;
	errno = 0;
	*ret_memory = strtoull(colon + 1, &end, 10);
	if (errno || *end)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(roles); i++)
		if (strlen(roles[i].name) == (size_t)(colon - spec) &&
		    !strncmp(roles[i].name, spec, (size_t)(colon - spec)))
			return &roles[i];
	return NULL;
}

/* Behind everybody else. What is refused is no loss of function. */
static void be_modest(void)
{
	if (setpriority(PRIO_PROCESS, 0, NICE) < 0)
		log_debug("nice refused: errno=%d", errno);
	/* No wrapper in glibc; Linux 2.6.13. */
	if (syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
		    IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0)) < 0)
		log_debug("idle I/O priority refused: errno=%d", errno);
}

static int say_hello(int sock, const char *role, uint64_t memory)
{
	struct helper_hello h = { .m = { HELPER_VERSION, HELPER_HELLO } };
	char name[64];

	(void)snprintf(name, sizeof(name), "verity-%s", role);
	h.cgroup_error =
		-cgroup_enter(name, memory, h.cgroup, sizeof(h.cgroup));
	return send(sock, &h, sizeof(h), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int helper_main(const char *spec)
{
	const struct role *role;
	uint64_t memory;
	int type, r;
	socklen_t len = sizeof(type);

	role = parse(spec, &memory);
	if (!role ||
	    getsockopt(HELPER_FD, SOL_SOCKET, SO_TYPE, &type, &len) < 0) {
		log_err("--helper is for the daemon's own use");
		return 2;
	}
	/* Should the daemon die while we are in a long call; the end of the
	 * socket is what ends us otherwise. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NAME, "vs-helper");
	be_modest();
	r = say_hello(HELPER_FD, role->name, memory);
	if (r == 0)
		r = role->serve(HELPER_FD, memory);
	return r < 0 ? 1 : 0;
}

int helper_receive(int sock, void *m, size_t size, int *ret_fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} u;
	struct iovec v = { m, size };
	struct msghdr msg = { .msg_iov = &v,
			      .msg_iovlen = 1,
			      .msg_control = u.room,
			      .msg_controllen = sizeof(u.room) };
	const struct helper_msg *head = m;
	struct cmsghdr *c;
	int fd = -1;
	ssize_t n;

	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : 0;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	if ((size_t)n < sizeof(*head) || (msg.msg_flags & MSG_TRUNC) ||
	    head->version != HELPER_VERSION) {
		if (fd >= 0)
			(void)close(fd);
		return -EPROTO;
	}
	*ret_fd = fd;
	return (int)n;
}
