/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session of the layers view: mount, INIT, the threads that read the
 * device, and the end of it all. Requests go to libfuse for decoding, except
 * those that it would only make slower or wrong (see take_ourselves()).
 *
 * Several threads read one and the same fd: an fd cloned for each would end the
 * requests in flight on it when this process dies.
 */
#include "fuse/view.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fault.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "fuse/buffers.h"
#include "fuse/init.h"
#include "fuse/mount.h"
#include "fuse/node.h"
#include "fuse/notify.h"
#include "fuse/opens.h"
#include "fuse/ops.h"
#include "fuse/passthrough.h"
#include "fuse/read.h"

#define DEFAULT_THREADS 4
#define DEFAULT_TIMEOUT_S 60
#define DEFAULT_MAX_PARKED 2048
/* The source has the same deadline and better reasons, so it is first. */
#define GRACE_MS 5000
#define MAX_THREADS 32
#define STACK_BYTES (256 * 1024)
/* One for each of two processors that check and copy, one that is waited for.
 * Idle memory is what speaks against more. */
#define N_REPLY_BUFFERS 3
/* More open files than that are ENFILE; memory is used for those there were. */
#define OPEN_SLOTS (1u << 20)

/* Interrupts the read(2) of a thread that shall end. */
#define WAKE_SIGNAL (SIGRTMIN + 2)

struct reader {
	struct view *view;
	pthread_t thread;
	void *mem; /* request, then scratch; locked */
};

struct view {
	struct view_opts opts;
	char *mountpoint;
	struct mount_dev dev;
	int fd; /* owned by se */
	struct fuse_session *se;
	struct ops_ctx ctx;
	struct source_set sources;
	struct buffers *buffers;
	struct opens *opens;
	struct notifier *notifier;
	struct init_record init;
	_Atomic uint64_t n_requests;
	atomic_bool mounted, stopping;
	unsigned n_readers;
	struct reader *readers;
	struct lock lock; /* guards n_running */
	struct cond ended;
	unsigned n_running;
};

#define READER_BYTES (INIT_REQUEST_BYTES + OPS_SCRATCH_BYTES)

static void reply_bare(struct view *v, uint64_t unique, int error)
{
	struct abi_out_header h = {
		.len = sizeof(h),
		.error = -error,
		.unique = unique,
	};

	/* ENOENT: not wanted any more; ENODEV: the end, seen by read(2). */
	if (write(v->fd, &h, sizeof(h)) < 0)
		log_debug("reply refused: err='%m'");
}

/* A remount cannot be kept from making the mount writable. libfuse would say
 * ENOSYS, for which programs are less prepared. */
static bool writes(uint32_t opcode)
{
	switch (opcode) {
	case ABI_SETATTR:
	case ABI_SYMLINK:
	case ABI_MKNOD:
	case ABI_MKDIR:
	case ABI_UNLINK:
	case ABI_RMDIR:
	case ABI_RENAME:
	case ABI_LINK:
	case ABI_WRITE:
	case ABI_SETXATTR:
	case ABI_REMOVEXATTR:
	case ABI_CREATE:
	case ABI_FALLOCATE:
	case ABI_RENAME2:
	case ABI_COPY_FILE_RANGE:
	case ABI_TMPFILE:
	case ABI_COPY_FILE_RANGE_64:
		return true;
	default:
		return false;
	}
}

/* true: the request needs no handler */
static bool take_ourselves(struct view *v, const struct abi_in_header *h,
			   size_t len)
{
	switch (h->opcode) {
	case ABI_FORGET:
	case ABI_BATCH_FORGET:
		return true; /* see node.h; there is no reply */
	case ABI_INTERRUPT: {
		struct abi_interrupt_in in;

		if (len >= sizeof(*h) + sizeof(in)) {
			memcpy(&in, h + 1, sizeof(in));
			reads_interrupt(v->ctx.reads, in.unique);
		}
		return true;
	}
	default:
		if (!writes(h->opcode))
			return false;
		reply_bare(v, h->unique, EROFS);
		return true;
	}
}

/* Bytes of one request, 0: try again, -errno: the session has ended. */
static ssize_t next_request(struct view *v, void *p)
{
	ssize_t n = read(v->fd, p, INIT_REQUEST_BYTES);

	if (n >= (ssize_t)sizeof(struct abi_in_header))
		return n;
	if (n >= 0)
		return -EIO;
	/* ENOENT: the request was taken back while being read */
	if (errno == EINTR || errno == EAGAIN || errno == ENOENT)
		return 0;
	return -errno;
}

static void read_requests(struct reader *rd)
{
	struct view *v = rd->view;
	const struct abi_in_header *h = rd->mem;
	ssize_t n = 0;

	ops_call.scratch = (char *)rd->mem + INIT_REQUEST_BYTES;
	while (!atomic_load(&v->stopping)) {
		ops_call.n_interrupts = reads_n_interrupts(v->ctx.reads);
		n = next_request(v, rd->mem);
		if (n < 0)
			break;
		if (n == 0)
			continue;
		atomic_fetch_add_explicit(&v->n_requests, 1,
					  memory_order_relaxed);
		if (take_ourselves(v, h, (size_t)n))
			continue;
		ops_call.unique = h->unique;
		struct fuse_buf fb = { .size = (size_t)n, .mem = rd->mem };

		fuse_session_process_buf(v->se, &fb);
	}
	if (n < 0) {
		atomic_store(&v->mounted, false);
		log_debug("view session ended: r=%zd", n);
	}
}

static void *reader_main(void *arg)
{
	struct reader *rd = arg;
	struct view *v = rd->view;
	char name[16];
	sigset_t wake;

	(void)snprintf(name, sizeof(name), "vs-view-%u",
		       (unsigned)(rd - v->readers));
	(void)pthread_setname_np(pthread_self(), name);
	(void)sigemptyset(&wake);
	(void)sigaddset(&wake, WAKE_SIGNAL);
	(void)pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
	read_requests(rd);
	lock_take(&v->lock);
	v->n_running--;
	cond_signal(&v->ended);
	lock_drop(&v->lock);
	return NULL;
}

static void wake_handler(int sig)
{
	(void)sig; /* read(2) returns EINTR, which is all */
}

static int start_readers(struct view *v)
{
	struct sigaction sa = { .sa_handler = wake_handler };
	pthread_attr_t attr;
	sigset_t all, old;
	int r = 0;

	if (sigaction(WAKE_SIGNAL, &sa, NULL) < 0)
		return -errno;
	if (pthread_attr_init(&attr) != 0)
		return -ENOMEM;
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	while (r == 0 && v->n_readers < v->opts.n_threads) {
		struct reader *rd = &v->readers[v->n_readers];

		rd->view = v;
		r = locked_alloc(READER_BYTES, &rd->mem);
		if (r < 0)
			break;
		lock_take(&v->lock);
		v->n_running++;
		lock_drop(&v->lock);
		r = -pthread_create(&rd->thread, &attr, reader_main, rd);
		if (r == 0) {
			v->n_readers++;
			continue;
		}
		locked_free(rd->mem, READER_BYTES);
		lock_take(&v->lock);
		v->n_running--;
		lock_drop(&v->lock);
	}
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	return r;
}

/*
 * A signal that comes before read(2) is lost, so it is sent until all have
 * ended. The mount may live on below containers: nothing but us wakes the
 * threads then.
 */
static void stop_readers(struct view *v)
{
	atomic_store(&v->stopping, true);
	lock_take(&v->lock);
	while (v->n_running) {
		for (unsigned i = 0; i < v->n_readers; i++)
			(void)pthread_kill(v->readers[i].thread, WAKE_SIGNAL);
		(void)cond_wait_until(&v->ended, &v->lock, now_ms() + 5);
	}
	lock_drop(&v->lock);
	for (unsigned i = 0; i < v->n_readers; i++) {
		(void)pthread_join(v->readers[i].thread, NULL);
		locked_free(v->readers[i].mem, READER_BYTES);
	}
	v->n_readers = 0;
}

/*
 * The first request of a new mount is there when mount(2) returns. libfuse sees
 * it first, so that it is ready for the next one, which can come as soon as the
 * kernel has our answer.
 */
static int answer_init(struct view *v)
{
	_Alignas(8) char buf[INIT_REQUEST_BYTES];
	ssize_t n;
	int r;

	do
		n = next_request(v, buf);
	while (n == 0);
	if (n < 0)
		return (int)n;
	r = init_negotiate(buf, (size_t)n, v->opts.without, &v->init);
	if (r < 0)
		return r;
	struct fuse_buf fb = { .mem = buf };

	fb.size = init_feed(&v->init, buf);
	fuse_session_process_buf(v->se, &fb);
	if (fuse_session_exited(v->se))
		return -EPROTO;
	if (write(v->fd, &v->init.reply, sizeof(v->init.reply)) < 0)
		return -errno;
	return 0;
}

printf_like(2, 0) static void libfuse_log(enum fuse_log_level level,
					  const char *fmt, va_list ap)
{
	char msg[200];
	size_t len;

	(void)level;
	(void)vsnprintf(msg, sizeof(msg), fmt, ap);
	len = strlen(msg);
	if (len && msg[len - 1] == '\n')
		msg[len - 1] = '\0';
	log_debug("libfuse says: text='%s'", msg);
}

/* libfuse gets our fd, as if another program had done the mount: then it never
 * mounts or unmounts by itself. */
static int new_session(struct view *v)
{
	char name[] = "verity-snapshotter", path[32];
	char *argv[] = { name, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	owned(fd) int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	fuse_set_log_func(libfuse_log);
	v->se = fuse_session_new(&args, &ops_table, sizeof(ops_table), &v->ctx);
	fuse_opt_free_args(&args);
	if (!v->se)
		return -ENOMEM;
	(void)snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	if (fuse_session_mount(v->se, path) < 0)
		return -EIO;
	v->fd = take_fd(&fd);
	return 0;
}

static int new_parts(struct view *v)
{
	struct reads_opts ro = {
		.sources = &v->sources,
		.timeout_ms = (v->opts.read_timeout_s ? v->opts.read_timeout_s
						      : DEFAULT_TIMEOUT_S) *
				      UINT64_C(1000) +
			      GRACE_MS,
		.max_parked = v->opts.max_parked ? v->opts.max_parked
						 : DEFAULT_MAX_PARKED,
	};
	int r = buffers_new(N_REPLY_BUFFERS, INIT_READ_BYTES, &v->buffers);

	ro.buffers = v->buffers;
	if (r == 0)
		r = reads_new(&ro, &v->ctx.reads);
	if (r == 0)
		r = opens_new(OPEN_SLOTS, &v->opens);
	if (r == 0)
		r = passthrough_new(v->opens, &v->sources, &v->ctx.passthrough);
	if (r == 0)
		r = new_session(v);
	return r;
}

/* After the threads: nothing of it is in use any more. Closing the device ends
 * the session for whoever still has it mounted. */
static void free_parts(struct view *v)
{
	if (v->se)
		fuse_session_destroy(v->se);
	passthrough_free(v->ctx.passthrough);
	opens_free(v->opens);
	notifier_free(v->notifier);
	reads_free(v->ctx.reads);
	buffers_free(v->buffers);
	cond_release(&v->ended);
	lock_release(&v->lock);
	free(v->readers);
	free(v->mountpoint);
	free(v);
}

static int view_new(const struct view_opts *o, struct view **ret)
{
	struct view *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return -ENOMEM;
	v->opts = *o;
	if (v->opts.n_threads == 0)
		v->opts.n_threads = DEFAULT_THREADS;
	if (v->opts.n_threads > MAX_THREADS)
		v->opts.n_threads = MAX_THREADS;
	v->sources = o->sources;
	v->ctx.sources = &v->sources;
	v->mountpoint = strdup(o->mountpoint);
	v->readers = calloc(v->opts.n_threads, sizeof(v->readers[0]));
	r = cond_init(&v->ended);
	if (r == 0 && v->mountpoint && v->readers) {
		lock_init(&v->lock, RANK_LEAF);
		v->opts.mountpoint = v->mountpoint;
		*ret = v;
		return 0;
	}
	if (r == 0)
		cond_release(&v->ended);
	free(v->readers);
	free(v->mountpoint);
	free(v);
	return r < 0 ? r : -ENOMEM;
}

/* Somebody else may have unmounted it, and mounted other things there. */
static void detach(struct view *v)
{
	int r = mount_detach(v->mountpoint, &v->dev);

	if (r < 0)
		log_debug("view is not detached: path='%s' r=%d", v->mountpoint,
			  r);
}

int view_open(const struct view_opts *o, struct view **ret)
{
	struct view *v = NULL;
	int r = view_new(o, &v);

	if (r < 0)
		return r;
	r = new_parts(v);
	if (r < 0)
		goto undo_parts;
	r = mount_fuse(v->mountpoint, v->fd);
	if (r < 0)
		goto undo_parts;
	r = mount_find(v->mountpoint, &v->dev);
	if (r == 0)
		r = fault_point("view_mounted");
	if (r == 0)
		r = answer_init(v);
	if (r < 0)
		goto undo_mount;
	opens_identify(v->opens, o->store ? o->store : "", v->dev.major,
		       v->dev.minor);
	r = mount_set_readahead(&v->dev, INIT_READ_BYTES / 1024);
	if (r < 0) /* reads are smaller and more, nothing else */
		log_debug("readahead stays as it is: r=%d", r);
	atomic_store(&v->mounted, true);
	r = notifier_new(v->se, v->ctx.reads, &v->notifier);
	if (r < 0)
		goto undo_mount;
	passthrough_start(v->ctx.passthrough, v->fd, v->notifier,
			  init_flags(&v->init) & ABI_PASSTHROUGH);
	r = start_readers(v);
	if (r < 0)
		goto undo_mount;
	*ret = v;
	return 0;
undo_mount:
	detach(v);
	reads_close(v->ctx.reads);
	if (v->notifier)
		notifier_stop(v->notifier);
	stop_readers(v);
undo_parts:
	free_parts(v);
	return r;
}

void view_close(struct view *v)
{
	if (!v)
		return;
	/* keeps libfuse from complaining about replies that come too late */
	fuse_session_exit(v->se);
	reads_close(v->ctx.reads);
	detach(v);
	notifier_stop(v->notifier);
	stop_readers(v);
	free_parts(v);
}

void view_forget_layer(struct view *v, uint32_t seq)
{
	notifier_forget_layer(v->notifier, seq);
}

void view_recheck_files(struct view *v)
{
	passthrough_recheck(v->ctx.passthrough);
}

uint32_t view_n_changeable(struct view *v)
{
	return passthrough_n_changeable(v->ctx.passthrough);
}

uint32_t view_n_healed(struct view *v, uint32_t seq)
{
	owned(mem) struct opens_inode *in = NULL;
	uint32_t n = 0;
	size_t n_all;

	if (opens_inodes(v->opens, OPEN_HEALED, &in, &n_all) < 0)
		return 0;
	for (size_t i = 0; i < n_all; i++)
		n += node_seq(in[i].node) == seq;
	return n;
}

void view_stats(struct view *v, struct view_stats *ret)
{
	struct reads_stats rs;
	struct opens_stats os;

	reads_stats(v->ctx.reads, &rs);
	ret->proto_minor = v->init.reply.out.minor;
	ret->init_flags = init_flags(&v->init);
	ret->n_requests = atomic_load(&v->n_requests);
	ret->n_reads = rs.n_reads;
	ret->n_parked_total = rs.n_parked_total;
	ret->n_parked = rs.n_parked;
	opens_stats(v->opens, &os);
	ret->n_open = os.n_open;
	ret->n_passthrough = os.n_mode[OPEN_PASSTHROUGH];
	ret->n_healed = os.n_mode[OPEN_HEALED];
	ret->n_backing = os.n_backing;
	ret->n_passthrough_total = os.n_passthrough_total;
	ret->passthrough_error = passthrough_error(v->ctx.passthrough);
	ret->mounted = atomic_load(&v->mounted);
	ret->locked_bytes = buffers_bytes(v->buffers) +
			    (uint64_t)v->n_readers * READER_BYTES;
}

uint32_t view_n_parked(struct view *v, uint32_t seq)
{
	return reads_n_parked(v->ctx.reads, seq);
}

const struct init_record *view_init_record(const struct view *v)
{
	return &v->init;
}

int view_detach_dead(const char *mountpoint)
{
	return mount_detach_dead(mountpoint);
}
