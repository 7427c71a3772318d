#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages of files in the page cache: of a file's own mapping, which for a file
that is passed through is not the one that its readers use.

    cachestat.py FILE...   prints the sum; exit code 2: the kernel cannot say
"""
import ctypes
import errno
import os
import sys

NR_CACHESTAT = 451


def pages(fd):
    """Of an open file. OSError ENOSYS before Linux 6.5."""
    span = (ctypes.c_uint64 * 2)(0, 0)  # to the end
    out = (ctypes.c_uint64 * 5)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(NR_CACHESTAT, fd, span, out, 0) < 0:
        raise OSError(ctypes.get_errno(), "cachestat")
    return out[0]


def main(paths):
    total = 0
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            total += pages(fd)
        except OSError as e:
            if e.errno != errno.ENOSYS:
                raise
            return 2
        finally:
            os.close(fd)
    print(total)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
