/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a body the kernel may read without us: the file of one that is
 * sealed, since the kernel verifies it then, and where the configuration has it
 * so, of one that is merely complete.
 */
#include <fcntl.h>
#include <unistd.h>

#include "snapshotter/body_priv.h"

static unsigned generation(struct body *b)
{
	return atomic_load(&b->generation) + atomic_load(&b->n_replaced);
}

static bool may_pass(struct body *b, bool unsealed, struct digest *ret_seal)
{
	switch (body_get_state(b)) {
	case BODY_SEALED:
		lock_take(&b->bs->lock);
		*ret_seal = b->seal;
		lock_drop(&b->bs->lock);
		return !digest_is_zero(ret_seal);
	case BODY_COMPLETE:
		memset(ret_seal, 0, sizeof(*ret_seal));
		return unsealed;
	default:
		return false;
	}
}

int body_backing_fd(struct body *b, bool unsealed)
{
	unsigned before = generation(b);
	owned(fd) int fd = -1;
	struct digest seal;

	if (!may_pass(b, unsealed, &seal))
		return -EAGAIN;
	fd = body_open_file(b, "", O_RDONLY);
	if (fd < 0)
		return fd;
	/* Whatever has the name by now. */
	if (!digest_is_zero(&seal) && !body_fd_is_sealed(fd, &seal))
		return -EAGAIN;
	/* It may have been found damaged between the look and the opening. */
	return generation(b) == before ? take_fd(&fd) : -EAGAIN;
}
