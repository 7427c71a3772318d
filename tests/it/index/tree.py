# SPDX-License-Identifier: Apache-2.0
"""Trees to build indexes from: what goes in (a stream of events for indextool)
and what must come out (a model made here, independent of the builder)."""

import os
import random
import stat
import struct

DIR, REG, LNK, HARD, CHR, BLK, FIFO, SOCK = range(8)
MODE = {DIR: stat.S_IFDIR, REG: stat.S_IFREG, LNK: stat.S_IFLNK,
        CHR: stat.S_IFCHR, BLK: stat.S_IFBLK, FIFO: stat.S_IFIFO,
        SOCK: stat.S_IFSOCK}


class Node:
    """One inode as it must appear."""

    def __init__(self, kind, mode=0o755, uid=0, gid=0, mtime=0, nsec=0, size=0,
                 rdev=(0, 0), target=b'', xattrs=None):
        self.mode = MODE[kind] | (0o777 if kind == LNK else mode & 0o7777)
        self.uid, self.gid = uid, gid
        # An unpack takes times before 1970 for 1970.
        self.mtime_ns = mtime * 10**9 + nsec if mtime >= 0 else 0
        self.size = size if kind == REG else len(target)
        self.rdev = rdev if kind in (CHR, BLK) else (0, 0)
        self.target = target
        self.xattrs = dict(xattrs or {})
        self.nlink = 0


class Tree:
    """Events and model grow together."""

    def __init__(self):
        self.out = bytearray()
        self.paths = {b'': Node(DIR)}  # path -> Node
        self.named = set()

    def _imply(self, path):
        while b'/' in path:
            path = path.rsplit(b'/', 1)[0]
            self.paths.setdefault(path, Node(DIR))

    def emit(self, kind, path, mode=0o755, uid=0, gid=0, mtime=0, nsec=0,
             size=0, rdev=(0, 0), target=b'', xattrs=None):
        xattrs = xattrs or {}
        self.out += struct.pack('<BBIqqqIQIIHHH', 0, kind, mode, uid, gid,
                                mtime, nsec, size, *rdev, len(path),
                                len(target), len(xattrs))
        self.out += path + target
        for name, value in xattrs.items():
            self.out += struct.pack('<HI', len(name), len(value)) + name + value

    def add(self, kind, path, **kw):
        self.emit(kind, path, **kw)
        path = path.strip(b'/')
        self._imply(path)
        # containerd's unpack ignores what a layer says of its root.
        if path:
            self.paths[path] = Node(kind, **kw)

    def link(self, path, target):
        # An unpack gives an inode the attributes that its last name brings.
        n = self.paths[target]
        self.emit(HARD, path, target=target, mode=n.mode & 0o7777, uid=n.uid, gid=n.gid,
                  mtime=n.mtime_ns // 10**9, nsec=n.mtime_ns % 10**9)
        self._imply(path)
        self.paths[path] = self.paths[target]

    def whiteout(self, directory, name):
        self.emit(REG, os.path.join(directory, b'.wh.' + name), mode=0o644)
        path = os.path.join(directory, name)
        self._imply(path)
        self.paths[path] = Node(CHR, mode=0)

    def opaque(self, directory):
        self.emit(REG, directory + b'/.wh..wh..opq')
        self._imply(directory + b'/x')
        self.paths[directory].xattrs[b'trusted.overlay.opaque'] = b'y'

    def finish(self):
        """Fills in link counts; path -> names of its entries."""
        children = {p: [] for p, n in self.paths.items()
                    if stat.S_ISDIR(n.mode)}
        for n in self.paths.values():
            n.nlink = 2 if stat.S_ISDIR(n.mode) else 0
        for p, n in self.paths.items():
            if not p:
                continue
            head, _, tail = p.rpartition(b'/')
            children[head].append(tail)
            if stat.S_ISDIR(n.mode):
                self.paths[head].nlink += 1
            else:
                n.nlink += 1
        return children


def acl(*entries):
    return struct.pack('<I', 2) + b''.join(
        struct.pack('<HHI', *e) for e in entries)


ANY = 0xffffffff
ACL = acl((1, 6, ANY), (2, 4, 1000), (4, 4, ANY), (16, 6, ANY), (32, 4, ANY))
CAPABILITY = struct.pack('<IIIII', 0x02000001, 0x2000, 0, 0, 0)


def edge():
    """One of each thing, and the sizes around each limit."""
    t = Tree()
    for size in (0, 1, 511, 4095, 4096, 4097, 8192, 131071, 131072, 131073,
                 1 << 20, (1 << 30) + 1, 1 << 40, (1 << 40) + 1):
        t.add(REG, b'size/%d' % size, size=size, mode=0o640, mtime=size & 0xffff)
    for n in (1, 2, 31, 32, 63, 100, 2000, 3968, 4000, 4031, 4032, 4033, 4095):
        t.add(LNK, b'link/%d' % n, target=(b'/target' * 600)[:n])
        t.add(LNK, b'link/x%d' % n, target=(b'x/y' * 1500)[:n],
              xattrs={b'security.selinux': b'label' * 7})
    for n in (0, 1, 2, 3, 4, 5, 100, 4000, 4095, 4096, 5000, 65535):
        value = bytes(i * 13 & 255 for i in range(n))
        t.add(REG, b'xattr/f%d' % n, size=n, xattrs={b'user.value': value})
        t.add(DIR, b'xattr/d%d' % n, xattrs={b'user.value': value})
        t.add(FIFO, b'xattr/p%d' % n, xattrs={b'security.x': value})
    t.add(REG, b'xattr/many', xattrs={b'user.%d' % i: b'v' * i
                                      for i in range(128)})
    t.add(REG, b'xattr/names', xattrs={
        b'user.' + b'n' * 250: b'1', b'user.n': b'2', b'security.' + b's' * 246: b'3'})
    t.add(REG, b'xattr/acl', mode=0o664, xattrs={b'system.posix_acl_access': ACL})
    t.add(DIR, b'xattr/acldir', mode=0o664,  # what the list says, as an unpack makes it
          xattrs={b'system.posix_acl_access': ACL,
                  b'system.posix_acl_default': ACL})
    t.add(REG, b'xattr/cap', mode=0o755, size=10,
          xattrs={b'security.capability': CAPABILITY})
    for name in (b'!', b'-a', b'+', b'#.', b'...', b'.a', b'..b', b'\x01', b'\x7f',
                 b'\xff\xfe', b'a\nb', b' ', b'\xe2\x82\xac', b'n' * 255,
                 b'n' * 254, b'%s', b'\\', b'"'):
        t.add(REG, b'names/' + name, size=3)
    for n in range(0, 130):  # directories of every size around a block
        for i in range(n):
            t.add(REG, b'dirs/d%03d/%032d' % (n, i))
        if not n:
            t.add(DIR, b'dirs/d000')
    t.add(DIR, b'/'.join([b'deep'] * 800))
    t.add(CHR, b'dev/null', mode=0o666, rdev=(1, 3))
    t.add(CHR, b'dev/max', mode=0o600, rdev=(4095, 0xfffff))
    t.add(CHR, b'dev/minor', mode=0o600, rdev=(8, 0x12345))
    t.add(BLK, b'dev/sda', mode=0o660, gid=6, rdev=(8, 1))
    t.add(FIFO, b'dev/fifo', mode=0o622)
    t.add(SOCK, b'dev/socket', mode=0o777)
    t.add(REG, b'times/past', mtime=-1, nsec=999999999)
    t.add(REG, b'times/epoch', mtime=0)
    t.add(REG, b'times/2038', mtime=1 << 31, nsec=1)
    t.add(REG, b'times/far', mtime=1 << 33)
    t.add(REG, b'owner', uid=0xfffffffe, gid=0xfffffffe, mode=0o6755, size=5)
    t.add(DIR, b'sticky', mode=0o1777, uid=3, gid=4, mtime=5)
    t.add(REG, b'z/linked', size=4097, mode=0o4755)
    t.link(b'a/first', b'z/linked')
    t.link(b'z/again', b'z/linked')
    t.link(b'a/symlink', b'link/100')
    t.link(b'a/device', b'dev/null')
    t.whiteout(b'size', b'gone')
    t.opaque(b'opaque')
    t.add(DIR, b'', mode=0o711, uid=1, gid=2, mtime=3, nsec=4)
    return t


def empty():
    return Tree()


def bigroot():
    """A root that does not fit beside the superblock, whatever it has."""
    t = Tree()
    for i in range(40):
        t.add(REG, b'%0200d' % i, size=i)
    t.add(DIR, b'', mode=0o755,
          xattrs={b'user.a': b'x' * 3000, b'user.b': b'y' * 60000,
                  b'system.posix_acl_default': ACL})
    return t


def nearroot(n):
    """The root's tail ends just before, at and behind the end of block 0."""
    t = Tree()
    t.add(REG, b'r' * 255)
    t.add(DIR, b'', xattrs={b'user.a': b'x' * n})
    return t


def random_tree(seed):
    r = random.Random(seed)
    t = Tree()
    dirs, files = [b''], []
    for i in range(3000):
        d = r.choice(dirs[-40:])
        name = bytes(r.choice(b'abcdefgh.-_~ \xc3\xbf') for _ in
                     range(r.choice((1, 3, 8, 8, 8, 40, 200))))
        path = d + b'/' + name if d else name
        if name in (b'.', b'..') or path in t.paths or \
                name.startswith(b'.wh.') or len(path) > 3000:
            continue
        kw = {'mode': r.randrange(0o10000), 'uid': r.choice((0, 1000, 1 << 31)),
              'gid': r.choice((0, 5)), 'mtime': r.randrange(1 << 32),
              'nsec': r.randrange(10**9)}
        if r.random() < .2:
            kw['xattrs'] = {b'security.%d' % k: r.randbytes(r.choice((0, 5, 900)))
                            for k in range(r.randrange(1, 4))}
        kind = r.choices((DIR, REG, LNK, HARD, FIFO, CHR),
                         (20, 60, 8, 8, 2, 2))[0]
        if kind == HARD:
            if files:
                t.link(path, r.choice(files))
            continue
        if kind == REG:
            kw['size'] = r.choice((0, 1, 700, 4096, 5000, 70000, 200000))
        if kind == LNK:
            kw['target'] = r.randbytes(r.choice((1, 20, 300, 4000))).replace(
                b'\0', b'0')
        if kind == CHR:
            kw['rdev'] = (r.randrange(1, 4096), r.randrange(1 << 20))
        t.add(kind, path, **kw)
        if kind == DIR:
            dirs.append(path)
        else:
            files.append(path)
    return t


def many(n_files, n_flat):
    t = Tree()
    for i in range(n_files):
        t.add(REG, b'app/module-%02d/part-%02d/file-%07d.js' %
              (i // 20 % 50, i // 1000 % 50, i), size=i * 7919 % 60000,
              mode=0o644, mtime=1700000000 + i)
    for i in range(n_flat):
        t.add(REG, b'flat/entry-%06d.json' % i)
    return t


def real(top):
    """What an image brings: a directory of this machine."""
    t = Tree()
    inodes = {}
    top = os.fsencode(top)
    for root, dirs, names in os.walk(top):
        for name in dirs + names:
            full = os.path.join(root, name)
            st = os.lstat(full)
            path = os.path.relpath(full, top)
            kw = {'mode': stat.S_IMODE(st.st_mode), 'uid': st.st_uid,
                  'gid': st.st_gid, 'mtime': st.st_mtime_ns // 10**9,
                  'nsec': st.st_mtime_ns % 10**9}
            if st.st_nlink > 1 and not stat.S_ISDIR(st.st_mode):
                if st.st_ino in inodes:
                    t.link(path, inodes[st.st_ino])
                    continue
                inodes[st.st_ino] = path
            if stat.S_ISDIR(st.st_mode):
                t.add(DIR, path, **kw)
            elif stat.S_ISREG(st.st_mode):
                t.add(REG, path, size=st.st_size, **kw)
            elif stat.S_ISLNK(st.st_mode):
                t.add(LNK, path, target=os.readlink(full), **kw)
    return t


def make(spec):
    """"edge", "random:7", "many:50000:100000", "real:/etc" ..."""
    name, *args = spec.split(':')
    if name == 'real':
        return real(args[0])
    if name == 'random':
        return random_tree(int(args[0]))
    return {'edge': edge, 'empty': empty, 'bigroot': bigroot,
            'nearroot': nearroot, 'many': many}[name](*map(int, args))
