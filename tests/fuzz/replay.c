/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target once on each file of its arguments; folders are walked.
 * For compilers without libFuzzer, and so that `make check` replays corpora.
 * Fails when there was nothing to run.
 */
#include <fcntl.h>
#include <fts.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

#define INPUT_MAX (64u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
	owned(mem) char *text = NULL;
	uint8_t *exact;
	size_t len;
	int r = read_file_at(AT_FDCWD, path, INPUT_MAX, &text, &len);

	if (r < 0) {
		(void)fprintf(stderr, "replay: %s: %s\n", path, strerror(-r));
		return r;
	}
	/* Without the terminator, so that a sanitizer sees a read behind the
	 * end. */
	exact = malloc(len ? len : 1);
	if (!exact)
		return -ENOMEM;
	memcpy(exact, text, len);
	(void)LLVMFuzzerTestOneInput(exact, len);
	free(exact);
	return 0;
}

int main(int argc, char **argv)
{
	FTS *fts =
		argc > 1 ? fts_open(argv + 1, FTS_PHYSICAL | FTS_NOCHDIR, NULL)
			 : NULL;
	unsigned n = 0, n_failed = 0;
	FTSENT *f;

	if (!fts) {
		(void)fprintf(stderr, "usage: %s FILE|FOLDER...\n", argv[0]);
		return 2;
	}
	while ((f = fts_read(fts))) {
		if (f->fts_info == FTS_F) {
			n++;
			if (run_file(f->fts_accpath) < 0)
				n_failed++;
		} else if (f->fts_info == FTS_ERR || f->fts_info == FTS_NS ||
			   f->fts_info == FTS_DNR) {
			(void)fprintf(stderr, "replay: %s: %s\n", f->fts_path,
				      strerror(f->fts_errno));
			n_failed++;
		}
	}
	(void)fts_close(fts);
	(void)printf("%u inputs\n", n);
	return n == 0 || n_failed ? 1 : 0;
}
