-- The state of verity-snapshotter: names and relations, never bytes.
-- This is schema 1; later ones are migrations beside it in store.c.

-- Exactly one row.
CREATE TABLE meta (
	one INTEGER PRIMARY KEY CHECK (one = 1),
	uuid TEXT NOT NULL,
	-- of the folders and files beside the database
	format INTEGER NOT NULL,
	-- the next layer number; never given out twice
	next_seq INTEGER NOT NULL
) STRICT;

-- A lazy layer whose files are durable in layer/<seq>.
CREATE TABLE layer (
	seq INTEGER PRIMARY KEY,
	blob BLOB NOT NULL CHECK (length(blob) = 32),
	toc BLOB NOT NULL CHECK (length(toc) = 32),
	format INTEGER NOT NULL,
	writer INTEGER NOT NULL,
	-- '' unless directories that the layer only implies took their
	-- attributes from the parents
	parent_chain TEXT NOT NULL,
	size INTEGER NOT NULL CHECK (size >= 0),
	index_digest BLOB NOT NULL CHECK (length(index_digest) = 32),
	map_digest BLOB NOT NULL CHECK (length(map_digest) = 32),
	diff_id BLOB CHECK (length(diff_id) = 32),
	-- of its first use; what a proof is held against
	chain_id TEXT NOT NULL,
	image TEXT NOT NULL,
	payload INTEGER NOT NULL,
	usage INTEGER NOT NULL,
	n_inodes INTEGER NOT NULL,
	ino_base INTEGER NOT NULL,
	-- the layer does not name its root directory
	-- 0 not yet, 1 proven, 2 failed
	proof INTEGER NOT NULL DEFAULT 0 CHECK (proof IN (0, 1, 2)),
	-- quarantined, or its index is lost: serves old snapshots only
	bad INTEGER NOT NULL DEFAULT 0 CHECK (bad IN (0, 1)),
	created INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX layer_key ON layer (blob, toc, format, writer, parent_chain)
	WHERE bad = 0;

CREATE TABLE snapshot (
	-- names s/<id>; AUTOINCREMENT: never given out twice
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	-- the request's snapshotter: each sees only its own rows
	sn TEXT NOT NULL,
	name TEXT NOT NULL,
	parent INTEGER REFERENCES snapshot (id) ON DELETE RESTRICT,
	-- 1 view, 2 active, 3 committed, as in the protocol
	kind INTEGER NOT NULL CHECK (kind IN (1, 2, 3)),
	-- nanoseconds since 1970
	created INTEGER NOT NULL,
	updated INTEGER NOT NULL,
	size INTEGER NOT NULL DEFAULT 0,
	inodes INTEGER NOT NULL DEFAULT 0,
	-- lazy: its layer, and no folder s/<id>
	seq INTEGER REFERENCES layer (seq) ON DELETE RESTRICT,
	-- the label containerd.io/snapshot.ref of a committed row
	ref TEXT CHECK (ref IS NULL OR kind = 3),
	UNIQUE (sn, name)
) STRICT;

CREATE INDEX snapshot_parent ON snapshot (parent);
CREATE INDEX snapshot_seq ON snapshot (seq) WHERE seq IS NOT NULL;
-- containerd takes the first row that it finds: let there be one.
CREATE UNIQUE INDEX snapshot_ref ON snapshot (sn, ifnull(parent, 0), ref)
	WHERE ref IS NOT NULL;

CREATE TABLE label (
	snapshot INTEGER NOT NULL REFERENCES snapshot (id) ON DELETE CASCADE,
	key TEXT NOT NULL,
	value TEXT NOT NULL CHECK (value <> ''),
	PRIMARY KEY (snapshot, key)
) STRICT, WITHOUT ROWID;

-- The query that follows each lazy hit asks for this label.
CREATE INDEX label_ref ON label (value)
	WHERE key = 'containerd.io/snapshot.ref';

-- Which layers use the body of a large file: decides what is alive.
CREATE TABLE body_ref (
	ckey BLOB NOT NULL CHECK (length(ckey) = 32),
	seq INTEGER NOT NULL REFERENCES layer (seq) ON DELETE CASCADE,
	PRIMARY KEY (ckey, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX body_ref_seq ON body_ref (seq);

-- Which repositories ("host/repo") have a blob.
CREATE TABLE source (
	blob BLOB NOT NULL CHECK (length(blob) = 32),
	name TEXT NOT NULL,
	PRIMARY KEY (blob, name)
) STRICT, WITHOUT ROWID;
