#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""judge.py INDEXTOOL WORKDIR TREE...: builds each tree (see tree.py) and has it
judged by our own reader, by fsck.erofs and by the kernel that mounts it."""

import ctypes
import os
import shutil
import stat
import subprocess
import sys

import tree

BLOCK = 4096
libc = ctypes.CDLL(None, use_errno=True)


class Judge:
    def __init__(self, tool, work, spec):
        self.tool, self.spec, self.errors = tool, spec, 0
        self.dir = os.path.join(work, 'tree')
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir + '/mnt')
        self.index = self.dir + '/index'
        self.device = self.dir + '/device'
        self.tree = tree.make(spec)
        self.children = self.tree.finish()
        self.listed = {}

    def differ(self, path, what, got, want):
        self.errors += 1
        if self.errors <= 20:
            print(f'DIFF {self.spec}: {path!r} {what}: {got!r}, not {want!r}')

    def same(self, path, what, got, want):
        if got != want:
            self.differ(path, what, got, want)

    def build(self):
        r = subprocess.run([self.tool, 'build', self.dir], timeout=120,
                           input=bytes(self.tree.out), capture_output=True)
        if r.returncode:
            sys.exit(f'{self.spec}: {r.stderr.decode()}')
        self.built = r.stdout.decode().strip()

    def fsck(self):
        open(self.dir + '/empty', 'w').close()
        r = subprocess.run(['fsck.erofs', '--device=' + self.dir + '/empty',
                            self.index], capture_output=True, timeout=120)
        # a wrong checksum is an error on stderr and status 0
        if r.returncode or r.stderr:
            self.differ(b'', 'fsck.erofs', (r.returncode, r.stderr), (0, b''))

    def reader(self):
        """What fuse/index says, against the model."""
        r = subprocess.run([self.tool, 'list', self.index], timeout=120,
                           capture_output=True)
        if r.returncode or r.stderr:
            sys.exit(f'{self.spec}: {r.stderr.decode()}')
        inos = {}
        for line in r.stdout.decode().split('\n')[:-1]:
            words = line.split(' ')
            path = bytes.fromhex(words[0])
            nid, ino = int(words[1]), int(words[2])
            target = b''
            rest = words[12:]
            if rest[:1] == ['->']:
                target = bytes.fromhex(rest[1])
                rest = rest[2:]
            xattrs = dict(map(bytes.fromhex, x.split('=')) for x in rest)
            n = self.tree.paths.get(path)
            self.listed[path] = (nid, int(words[11]))
            inos.setdefault(ino, nid)
            self.same(path, 'one nid an ordinal', inos[ino], nid)
            if not n:
                self.differ(path, 'exists', True, False)
                continue
            got = (int(words[3], 8), int(words[4]), int(words[5]),
                   int(words[6]), int(words[9]) * 10**9 + int(words[10]),
                   target, xattrs)
            self.same(path, 'reader', got, (n.mode, n.uid, n.gid, n.nlink,
                                            n.mtime_ns, n.target, n.xattrs))
            if not stat.S_ISDIR(n.mode):
                self.same(path, 'reader size', int(words[7]), n.size)
        self.same(b'', 'paths', len(self.listed), len(self.tree.paths))
        self.same(b'', 'ordinals', sorted(inos), list(range(1, len(inos) + 1)))

    def fill_device(self):
        """A sparse device with known bytes at both ends of every file."""
        size = BLOCK
        with open(self.device, 'wb') as f:
            for path, (nid, addr) in self.listed.items():
                n = self.tree.paths[path]
                if stat.S_ISREG(n.mode) and n.size:
                    f.seek(addr)
                    f.write(self.mark(nid)[:n.size])
                    if n.size > 8:
                        f.seek(addr + n.size - 1)
                        f.write(b'$')
                    size = max(size, addr + n.size)
            f.truncate((size + BLOCK - 1) // BLOCK * BLOCK)

    @staticmethod
    def mark(nid):
        return b'%08x' % nid

    def mount(self):
        # mount(8) would slip in a loop device
        mnt = self.dir + '/mnt'
        if libc.mount(self.index.encode(), mnt.encode(), b'erofs', 1,
                      b'device=' + self.device.encode()):
            err = ctypes.get_errno()
            sys.exit(f'{self.spec}: mount: {os.strerror(err)}')
        try:
            for path, n in self.tree.paths.items():
                self.kernel(os.fsencode(mnt), path, n)
        finally:
            if libc.umount2(mnt.encode(), 0):
                sys.exit(f'{self.spec}: cannot unmount')

    def kernel(self, mnt, path, n):
        """What the kernel says of one path, against the model."""
        full = mnt + b'/' + path if path else mnt
        if len(full) > 4000:
            return
        try:
            st = os.lstat(full)
        except OSError as e:
            self.differ(path, 'lstat', e.strerror, 'success')
            return
        self.same(path, 'kernel',
                  (st.st_mode, st.st_uid, st.st_gid, st.st_nlink,
                   st.st_mtime_ns, st.st_ino),
                  (n.mode, n.uid, n.gid, n.nlink, n.mtime_ns,
                   self.listed[path][0]))
        names = [os.fsencode(x) for x in
                 os.listxattr(full, follow_symlinks=False)]
        self.same(path, 'kernel xattrs', {
            x: os.getxattr(full, x, follow_symlinks=False) for x in names},
            n.xattrs)
        if stat.S_ISDIR(n.mode):
            # in the order of the index, which is that of the names
            self.same(path, 'kernel readdir', os.listdir(full),
                      sorted(self.children[path]))
        elif stat.S_ISLNK(n.mode):
            self.same(path, 'kernel readlink', os.readlink(full), n.target)
        elif stat.S_ISREG(n.mode):
            self.same(path, 'kernel size', st.st_size, n.size)
            self.contents(full, path, n)
        else:
            self.same(path, 'kernel rdev',
                      (os.major(st.st_rdev), os.minor(st.st_rdev)), n.rdev)

    def contents(self, full, path, n):
        want = self.mark(self.listed[path][0])[:n.size]
        with open(full, 'rb') as f:
            self.same(path, 'contents', f.read(8), want)
            if n.size > 8:
                f.seek(n.size - 1)
                self.same(path, 'last byte', f.read(2), b'$')


def main():
    tool, work, *specs = sys.argv[1:]
    failed = 0
    os.environ['ASAN_OPTIONS'] = 'detect_leaks=1'
    for spec in specs:
        j = Judge(tool, work, spec)
        j.build()
        j.reader()
        j.fsck()
        j.fill_device()
        j.mount()
        print(f'{spec}: {len(j.tree.paths)} paths, {j.errors} differences; '
              f'{j.built}')
        failed += j.errors
    return failed != 0


sys.exit(main())
