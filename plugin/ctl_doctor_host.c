/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor's look at the machine: FUSE and its limits, and the file system
 * that the state lies on.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include "base/fs.h"
#include "base/io.h"
#include "plugin/ctl_doctor.h"
#include "plugin/ctl_text.h"
#include "verity/probe.h"

#define SYSCTL_DIR "/proc/sys/fs/fuse/"

/* Of linux/magic.h; those that cannot hold upper directories of overlays. */
static const struct {
	unsigned long magic;
	const char *name;
} unfit[] = {
	{ 0x794c7630, "overlay" }, { 0x6969, "nfs" },    { 0xff534d42, "cifs" },
	{ 0x65735546, "fuse" },    { 0x01021997, "9p" },
};

/* ---- FUSE ---- */

/* Only when the daemon did not tell: what it tells was tried. */
static void check_fuse(struct doctor *d)
{
	owned(fd) int fd = -1;

	if (d->status)
		return;
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		doctor_ok(d, "kernel.fuse", "/dev/fuse can be opened");
	else
		doctor_add(
			d,
			&(struct finding){
				FINDING_PROBLEM, "kernel.fuse",
				"no image is mounted lazily, all are unpacked as by overlayfs",
				"modprobe fuse    # and as root" },
			"/dev/fuse cannot be opened: %s", strerror(errno));
}

/* -1: this kernel has no such setting. */
static long long sysctl(const char *name)
{
	owned(mem) char *text = NULL;
	char path[128], *end;
	long long n;

	(void)snprintf(path, sizeof(path), SYSCTL_DIR "%s", name);
	if (read_file_at(AT_FDCWD, path, 64, &text, NULL) < 0)
		return -1;
	n = strtoll(text, &end, 10);
	return end > text ? n : -1;
}

/* A limit on how long a request may take ends the connection, and with it
 * every container; a read may have to wait for its registry. */
static void check_timeout(struct doctor *d, const char *name)
{
	long long s = sysctl(name);
	char fix[160], check[64];

	(void)snprintf(check, sizeof(check), "fuse.%s", name);
	if (s > 0) {
		(void)snprintf(fix, sizeof(fix),
			       "sysctl -w fs.fuse.%s=0\n"
			       "fs.fuse.%s = 0    # in a file of /etc/sysctl.d",
			       name, name);
		doctor_add(
			d,
			&(struct finding){
				FINDING_PROBLEM, check,
				"a read that waits longer for its registry makes the kernel end the view, and with it every container that uses it",
				fix },
			"fs.fuse.%s is %lld seconds", name, s);
	} else {
		doctor_ok(d, check, "fs.fuse.%s is %s", name,
			  s == 0 ? "0" : "unknown to this kernel");
	}
}

/* The view asks for reads of 1 MiB. */
#define PAGES_WANTED 256

static void check_pages(struct doctor *d)
{
	long long n = sysctl("max_pages_limit");

	if (n >= 0 && n < PAGES_WANTED)
		doctor_add(d,
			   &(struct finding){
				   FINDING_WARN, "fuse.max_pages_limit",
				   "large reads are cut into more requests",
				   "sysctl -w fs.fuse.max_pages_limit=256\n"
				   "systemctl restart verity-snapshotter" },
			   "fs.fuse.max_pages_limit is %lld pages", n);
	else
		doctor_ok(d, "fuse.max_pages_limit",
			  "reads of 1 MiB are allowed");
}

/* ---- the state's file system ---- */

static const char *unfit_name(int fd)
{
	struct statfs sf;

	if (fstatfs(fd, &sf) < 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(unfit); i++)
		if ((unsigned long)sf.f_type == unfit[i].magic)
			return unfit[i].name;
	return NULL;
}

static void check_abilities(struct doctor *d, int fd)
{
	const char *bad = unfit_name(fd);
	struct probe p;
	int r;

	if (bad) {
		doctor_add(
			d,
			&(struct finding){
				FINDING_PROBLEM, "state.type",
				"containers cannot have their changes there",
				"mount a disk with ext4, xfs or btrfs there, or give the daemon another --root" },
			"'%s' is on a file system of type %s", d->root, bad);
		return;
	}
	r = probe_dir(fd, &p);
	if (r < 0) {
		doctor_add(d,
			   &(struct finding){
				   FINDING_PROBLEM, "state.writable",
				   "nothing can be pulled or changed",
				   "mount it writable; make room on it" },
			   "no file can be made in '%s': %s", d->root,
			   strerror(-r));
		return;
	}
	doctor_ok(d, "state.writable", "files can be made in '%s'", d->root);
	if (p.verity_error == 0)
		doctor_ok(d, "state.verity",
			  "files there can be sealed with fs-verity");
	else
		doctor_add(
			d,
			&(struct finding){
				FINDING_WARN, "state.verity",
				"contents at rest are verified by the daemon at each read, not by the kernel",
				"ext4: tune2fs -O verity DEVICE, on a kernel with CONFIG_FS_VERITY" },
			"files in '%s' cannot be sealed with fs-verity",
			d->root);
	/* The daemon tells, too, but also of --without. */
	if (!d->status && !p.dontcache)
		doctor_add(
			d,
			&(struct finding){
				FINDING_WARN, "kernel.dontcache",
				"downloads pass through the page cache and are dropped behind",
				"ext4 or xfs on Linux 6.14 or newer" },
			"reads there cannot bypass the page cache");
}

/* Shares of a file system that root can still take. */
#define LOW_PERCENT 10
#define FULL_PERCENT 1

static void check_share(struct doctor *d, const char *check, const char *what,
			uint64_t left, uint64_t all)
{
	static const char fix[] =
		"remove images that are not used: nerdctl image prune --all\n"
		"or give the state a larger disk";
	struct finding f = { .level = FINDING_OK, .check = check };
	double percent = all ? (double)left * 100 / (double)all : 100;

	if (percent < LOW_PERCENT) {
		f.level =
			percent < FULL_PERCENT ? FINDING_PROBLEM : FINDING_WARN;
		f.why = "when it is full, images are served without being kept, and containers cannot write";
		f.fix = fix;
	}
	doctor_add(d, &f, "'%s' has %s left, %.0f%%", d->root, what, percent);
}

static void check_room(struct doctor *d, int fd)
{
	struct statvfs sv;
	char text[64], size[32];

	if (fstatvfs(fd, &sv) < 0) {
		doctor_add(d,
			   &(struct finding){ FINDING_UNKNOWN, "state.space",
					      "it may be full", NULL },
			   "the room in '%s' is not known: %s", d->root,
			   strerror(errno));
		return;
	}
	ctl_human_size(size, sizeof(size), (uint64_t)sv.f_bfree * sv.f_frsize);
	check_share(d, "state.space", size, sv.f_bfree, sv.f_blocks);
	/* btrfs has no count of inodes: it makes them. */
	if (sv.f_files == 0)
		return;
	(void)snprintf(text, sizeof(text), "%" PRIu64 " inodes",
		       (uint64_t)sv.f_ffree);
	check_share(d, "state.inodes", text, sv.f_ffree, sv.f_files);
}

static void check_state(struct doctor *d)
{
	owned(fd) int fd = open_dir(AT_FDCWD, d->root);

	if (fd == -ENOENT && !d->status) {
		doctor_add(d,
			   &(struct finding){
				   FINDING_UNKNOWN, "state.type",
				   "the daemon makes it when it starts", NULL },
			   "'%s' is not there", d->root);
		return;
	}
	if (fd < 0) {
		doctor_add(d,
			   &(struct finding){ FINDING_UNKNOWN, "state.type",
					      "its file system is not known",
					      "run this as root" },
			   "'%s' cannot be opened: %s", d->root, strerror(-fd));
		return;
	}
	check_abilities(d, fd);
	check_room(d, fd);
}

void doctor_check_host(struct doctor *d)
{
	check_fuse(d);
	check_timeout(d, "max_request_timeout");
	check_timeout(d, "default_request_timeout");
	check_pages(d);
	check_state(d);
}
