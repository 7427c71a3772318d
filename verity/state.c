/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of state files; see state.h. Owns the offsets and the checksum.
 * It knows nothing of when a bit may be set: that is for the owner of the file.
 */
#include "verity/state.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "verity/leaves.h"

#define MAGIC "VSSTATE"
#define FORMAT_VERSION 1

/* Offsets in the header sector. Bytes not named are zero. */
enum {
	OFF_MAGIC = 0, /* 8 bytes with NUL */
	OFF_VERSION = 8, /* le32 */
	OFF_KIND = 12, /* le32 */
	OFF_SIZE = 16, /* le64 */
	OFF_N_EXTENTS = 24, /* le32 */
	OFF_PHASE = 28, /* one byte */
	OFF_FROZEN = 29, /* one byte */
	OFF_CKEY = 32, /* 32 bytes */
	OFF_BOOT = 64, /* STATE_BOOT_LEN bytes, NUL padded */
	OFF_SEAL = 104, /* 32 bytes */
	OFF_CRC = STATE_SECTOR - 4, /* le32, of all before it */
};

static uint32_t crc_table[256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void fill_crc_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
		crc_table[i] = crc;
	}
}

uint32_t crc32c(const void *p, size_t len)
{
	const uint8_t *b = p;
	uint32_t crc = UINT32_MAX;

	(void)pthread_once(&crc_once, fill_crc_table);
	while (len--)
		crc = crc >> 8 ^ crc_table[(crc ^ *b++) & 0xff];
	return ~crc;
}

uint64_t state_file_size(const struct state_header *h)
{
	return state_leaves_off(h->n_extents) +
	       leaves_count(h->size) * DIGEST_LEN;
}

void state_encode(const struct state_header *h, uint8_t out[STATE_SECTOR])
{
	memset(out, 0, STATE_SECTOR);
	memcpy(out + OFF_MAGIC, MAGIC, sizeof(MAGIC));
	put_le32(out + OFF_VERSION, FORMAT_VERSION);
	put_le32(out + OFF_KIND, h->kind);
	put_le64(out + OFF_SIZE, h->size);
	put_le32(out + OFF_N_EXTENTS, h->n_extents);
	out[OFF_PHASE] = (uint8_t)h->phase;
	out[OFF_FROZEN] = h->frozen;
	memcpy(out + OFF_CKEY, h->ckey.b, DIGEST_LEN);
	memcpy(out + OFF_BOOT, h->boot, strnlen(h->boot, STATE_BOOT_LEN));
	memcpy(out + OFF_SEAL, h->seal.b, DIGEST_LEN);
	put_le32(out + OFF_CRC, crc32c(out, OFF_CRC));
}

/* What the checksum cannot promise: a state file written by something else. */
static bool header_is_sane(const struct state_header *h, uint32_t kind)
{
	if (h->size > STATE_SIZE_MAX || h->phase > STATE_BAD)
		return false;
	if (digest_is_zero(&h->seal) != (h->phase != STATE_SEALED))
		return false;
	if (kind == STATE_VFILE)
		return h->n_extents == 0 && digest_is_zero(&h->ckey);
	if (kind != STATE_PACK && kind != STATE_FILE)
		return false;
	if (h->n_extents == 0 || h->n_extents > h->size)
		return false;
	return digest_is_zero(&h->ckey) == (kind == STATE_PACK);
}

int state_decode(const void *p, size_t len, struct state_header *ret)
{
	const uint8_t *b = p;
	struct state_header h = { 0 };
	uint32_t kind;

	if (len < STATE_SECTOR || memcmp(b + OFF_MAGIC, MAGIC, sizeof(MAGIC)) ||
	    get_le32(b + OFF_VERSION) != FORMAT_VERSION || b[OFF_FROZEN] > 1 ||
	    get_le32(b + OFF_CRC) != crc32c(b, OFF_CRC))
		return -EUCLEAN;
	kind = get_le32(b + OFF_KIND);
	h.size = get_le64(b + OFF_SIZE);
	h.n_extents = get_le32(b + OFF_N_EXTENTS);
	h.phase = b[OFF_PHASE];
	h.frozen = b[OFF_FROZEN];
	memcpy(h.ckey.b, b + OFF_CKEY, DIGEST_LEN);
	memcpy(h.boot, b + OFF_BOOT, STATE_BOOT_LEN);
	memcpy(h.seal.b, b + OFF_SEAL, DIGEST_LEN);
	if (!header_is_sane(&h, kind))
		return -EUCLEAN;
	h.kind = kind;
	*ret = h;
	return 0;
}

static int temporary_name(const char *name, char tmp[NAME_MAX + 1])
{
	int n = snprintf(tmp, NAME_MAX + 1, "%s.tmp", name);

	return n > NAME_MAX ? -ENAMETOOLONG : 0;
}

int state_create(int dirfd, const char *name, const struct state_header *h,
		 int *ret_fd)
{
	char tmp[NAME_MAX + 1];
	owned(fd) int fd = -1;
	int r = temporary_name(name, tmp);

	if (r < 0)
		return r;
	fd = openat(dirfd, tmp,
		    O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = -posix_fallocate(fd, 0, (off_t)state_file_size(h));
	if (r == 0)
		r = state_write_header(fd, h);
	if (r < 0) {
		(void)unlinkat(dirfd, tmp, 0);
		return r;
	}
	*ret_fd = take_fd(&fd);
	return 0;
}

int state_publish(int dirfd, const char *name)
{
	char tmp[NAME_MAX + 1];
	int r = temporary_name(name, tmp);

	if (r < 0)
		return r;
	return renameat(dirfd, tmp, dirfd, name) < 0 ? -errno : 0;
}

int state_unlink(int dirfd, const char *name)
{
	char tmp[NAME_MAX + 1];
	int r = temporary_name(name, tmp);

	if (r < 0)
		return r;
	if (unlinkat(dirfd, tmp, 0) < 0 && errno != ENOENT)
		return -errno;
	if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}

int state_read_header(int fd, struct state_header *ret)
{
	uint8_t sector[STATE_SECTOR];
	int r = pread_full(fd, sector, sizeof(sector), 0);

	if (r == -ENODATA)
		return -EUCLEAN;
	return r < 0 ? r : state_decode(sector, sizeof(sector), ret);
}

int state_write_header(int fd, const struct state_header *h)
{
	uint8_t sector[STATE_SECTOR];

	state_encode(h, sector);
	return pwrite_full(fd, sector, sizeof(sector), 0);
}

/* What lies behind the end of the file reads as zeros. */
static int read_padded(int fd, void *ret, size_t len, uint64_t off)
{
	uint8_t *p = ret;

	while (len) {
		ssize_t got = pread(fd, p, len, (off_t)off);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0) {
			memset(p, 0, len);
			return 0;
		}
		p += got;
		off += (uint64_t)got;
		len -= (size_t)got;
	}
	return 0;
}

static uint64_t bits_off(uint32_t i)
{
	return STATE_BITMAP_OFF + (uint64_t)i * STATE_SECTOR;
}

int state_read_bits(int fd, uint32_t i, uint8_t ret[STATE_SECTOR_BYTES])
{
	static const uint8_t empty[STATE_SECTOR];
	uint8_t sector[STATE_SECTOR];
	int r = read_padded(fd, sector, sizeof(sector), bits_off(i));

	if (r < 0)
		return r;
	memcpy(ret, sector, STATE_SECTOR_BYTES);
	if (!memcmp(sector, empty, sizeof(sector)) ||
	    get_le32(sector + STATE_SECTOR_BYTES) ==
		    crc32c(sector, STATE_SECTOR_BYTES))
		return 0;
	return -EUCLEAN;
}

int state_write_bits(int fd, uint32_t i, const uint8_t bits[STATE_SECTOR_BYTES])
{
	uint8_t sector[STATE_SECTOR];

	memcpy(sector, bits, STATE_SECTOR_BYTES);
	put_le32(sector + STATE_SECTOR_BYTES,
		 crc32c(sector, STATE_SECTOR_BYTES));
	return pwrite_full(fd, sector, sizeof(sector), bits_off(i));
}

int state_read_leaves(int fd, uint32_t n_extents, uint64_t first, size_t n,
		      struct digest *ret)
{
	return read_padded(fd, ret, n * sizeof(*ret),
			   state_leaves_off(n_extents) + first * DIGEST_LEN);
}

int state_write_leaves(int fd, uint32_t n_extents, uint64_t first, size_t n,
		       const struct digest *leaves)
{
	return pwrite_full(fd, leaves, n * sizeof(*leaves),
			   state_leaves_off(n_extents) + first * DIGEST_LEN);
}

void state_boot_id(char ret[STATE_BOOT_LEN + 1])
{
	const char *env = getenv("VS_BOOT_ID");
	owned(mem) char *text = NULL;
	size_t len;

	if (!env) {
		if (read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id",
				 STATE_BOOT_LEN + 1, &text, NULL) == 0)
			env = text;
		else
			env = "";
	}
	len = strcspn(env, "\n");
	if (len > STATE_BOOT_LEN)
		len = STATE_BOOT_LEN;
	memcpy(ret, env, len);
	ret[len] = '\0';
}

bool state_same_boot(const char *a, const char *b)
{
	return a[0] && !strcmp(a, b);
}
