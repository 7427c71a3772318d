/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: the layers view over directories.
 *
 *	viewserve [-t THREADS] [-T SECONDS] [-w BITS] [-p MAX] MOUNTPOINT SEQ=DIR...
 *
 * Says "ready" when it is mounted, then takes one command a line from stdin and
 * answers each with one line:
 *	stats      counters as key=value
 *	waits      how many reads of slow files the source knows of
 *	arrive     let the bytes of files named slow* arrive; says how many waited
 *	withhold   they are absent again
 *	pass, nopass   the kernel may, or may not, read all files without us
 *	recheck    some file may have got a successor
 *	gone SEQ   the layer has been removed
 *	detach PATH   view_detach_dead()
 *	quit       close the view and end; end of file does the same
 */
#include "fuse/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "tests/lib/fakelayer.h"

static void say_stats(struct view *v)
{
	struct view_stats st;

	view_stats(v, &st);
	printf("minor=%u flags=%" PRIx64 " requests=%" PRIu64 " reads=%" PRIu64
	       " parked_total=%" PRIu64 " parked=%u open=%u mounted=%d "
	       "locked=%" PRIu64 " passthrough=%u healed=%u backing=%u "
	       "passthrough_total=%" PRIu64 " error=%d\n",
	       st.proto_minor, st.init_flags, st.n_requests, st.n_reads,
	       st.n_parked_total, st.n_parked, st.n_open, st.mounted,
	       st.locked_bytes, st.n_passthrough, st.n_healed, st.n_backing,
	       st.n_passthrough_total, st.passthrough_error);
}

static void each_arrive(struct fake_set *fs, bool arrived)
{
	unsigned n = 0;

	for (unsigned i = 0; i < fs->n; i++) {
		struct fake_layer *l = fs->layers[i];

		if (arrived) {
			n += fake_arrive(l);
		} else {
			lock_take(&l->lock);
			l->arrived = false;
			lock_drop(&l->lock);
		}
	}
	printf("ok %u\n", n);
}

static void each_pass(struct fake_set *fs, bool pass)
{
	for (unsigned i = 0; i < fs->n; i++) {
		struct fake_layer *l = fs->layers[i];

		lock_take(&l->lock);
		l->pass = pass;
		lock_drop(&l->lock);
	}
	printf("ok\n");
}

static void gone(struct fake_set *fs, struct view *v, uint32_t seq)
{
	for (unsigned i = 0; i < fs->n; i++)
		if (fs->layers[i]->src.seq == seq)
			atomic_store(&fs->layers[i]->gone, true);
	view_forget_layer(v, seq);
	printf("ok\n");
}

/* false: quit */
static bool command(struct fake_set *fs, struct view *v, char *line)
{
	char *arg = strchr(line, ' ');
	unsigned n = 0;

	if (arg)
		*arg++ = '\0';
	if (!strcmp(line, "quit"))
		return false;
	if (!strcmp(line, "stats")) {
		say_stats(v);
	} else if (!strcmp(line, "waits")) {
		for (unsigned i = 0; i < fs->n; i++)
			n += fs->layers[i]->n_waits;
		printf("%u\n", n);
	} else if (!strcmp(line, "arrive")) {
		each_arrive(fs, true);
	} else if (!strcmp(line, "withhold")) {
		each_arrive(fs, false);
	} else if (!strcmp(line, "pass")) {
		each_pass(fs, true);
	} else if (!strcmp(line, "nopass")) {
		each_pass(fs, false);
	} else if (!strcmp(line, "recheck")) {
		view_recheck_files(v);
		printf("ok\n");
	} else if (!strcmp(line, "gone") && arg) {
		gone(fs, v, (uint32_t)strtoul(arg, NULL, 10));
	} else if (!strcmp(line, "detach") && arg) {
		printf("%d\n", view_detach_dead(arg));
	} else {
		printf("what?\n");
	}
	return true;
}

static int usage(void)
{
	(void)fputs("usage: viewserve [-t THREADS] [-T SECONDS] [-w BITS] "
		    "[-p MAX] MOUNTPOINT SEQ=DIR...\n",
		    stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct fake_set fs = { 0 };
	struct view_opts o = { .sources = fake_sources(&fs) };
	struct view *v = NULL;
	uint32_t ino_base = 1;
	char line[512];
	int c, r;

	while ((c = getopt(argc, argv, "t:T:w:p:")) > 0) {
		unsigned long n = c == '?' ? 0 : strtoul(optarg, NULL, 0);

		if (c == 't')
			o.n_threads = (unsigned)n;
		else if (c == 'T')
			o.read_timeout_s = (unsigned)n;
		else if (c == 'w')
			o.without = (unsigned)n;
		else if (c == 'p')
			o.max_parked = (unsigned)n;
		else
			return usage();
	}
	if (optind == argc)
		return usage();
	o.mountpoint = argv[optind++];
	for (; optind < argc; optind++) {
		char *dir = strchr(argv[optind], '=');

		if (!dir)
			return usage();
		struct fake_layer *l = fake_set_add(
			&fs, dir + 1, (uint32_t)strtoul(argv[optind], NULL, 10),
			ino_base);
		ino_base += l->n_files;
	}
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	r = view_open(&o, &v);
	if (r < 0) {
		(void)fprintf(stderr, "view_open: %s\n", strerror(-r));
		fake_set_free(&fs);
		return 1;
	}
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (!command(&fs, v, line))
			break;
	}
	view_close(v);
	printf("closed\n");
	fake_set_free(&fs);
	return 0;
}
