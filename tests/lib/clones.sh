# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A node with many layers, in seconds: one that is complete, many times over.
# Source it behind lib.sh.

# clone_layers LAYERS SNAPSHOTS: the largest layer there is LAYERS times, as
# seq 1000, 1001, ..., each with its own row and folder, and so many snapshots
# above them in turns. The daemon is stopped.
clone_layers() {
	local seq i
	seq=$(sqlite3 "$ROOT/state.db" 'SELECT seq FROM layer ORDER BY payload DESC LIMIT 1')
	sqlite3 "$ROOT/state.db" <<-Q
		CREATE TEMP TABLE t AS WITH RECURSIVE i(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM i WHERE x + 1 < $1) SELECT x FROM i;
		INSERT INTO layer SELECT 1000 + t.x, randomblob(32), toc, format, writer, parent_chain, size, index_digest, map_digest, diff_id, chain_id, image, payload, usage, n_inodes, ino_base, proof, bad, created FROM layer, t WHERE seq = $seq;
		INSERT INTO body_ref SELECT ckey, 1000 + t.x FROM body_ref, t WHERE seq = $seq;
		CREATE TEMP TABLE s AS WITH RECURSIVE i(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM i WHERE x + 1 < $2) SELECT x FROM i;
		INSERT INTO snapshot (sn, name, kind, created, updated, size, inodes, seq) SELECT 'verity', 'many-' || x, 3, 1, 1, 1, 1, 1000 + x % $1 FROM s;
		UPDATE meta SET next_seq = 1000 + $1;
	Q
	for ((i = 1000; i < 1000 + $1; i++)); do cp -al "$ROOT/layer/$seq" "$ROOT/layer/$i"; done
}
