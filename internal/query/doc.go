// Package query is the incremental kernel: memoised pure functions over the rows of package store, and the one place in
// the tree that caches, invalidates, compares or decides what changed.
//
// A query is a function of a key; a cell is its result for one key. The Reader is a query's only handle on the world and
// records each thing it reads. Queries have a rank, the order of their definition, and read lower ranks only. After a
// commit the lowest rank with work runs first, so when a cell runs, everything below it is settled at the commit's
// revision: each cell runs at most once per commit (again only if it had to wait for a collection), reads one revision,
// and no cycle can exist. A cell runs only if something it read really changed; an equal result stops there.
//
// Each, GroupBy and DefineLayers are the primitives for lists: a collection has one cell per element and holds their
// outputs in one ordered map, so that a change of one element costs one element; layers are read key by key. A plain query
// over thousands of things would cost thousands at every change: one that reads more than ReadLimit has a fault.
//
// Cells exist because a root observes them, directly or through others, and are freed some time after the last reader
// is gone. What a complete root needs is recomputed by Commit before it returns (lane 0); the first computation of a
// new root runs in slices (lane 1) between commits and never delays them. A root is published only when nothing it
// needs is waiting, so it never shows a mixture of revisions.
//
// A cell that panics keeps its last good value; without one it is absent. A query that guards access denies instead (Guard).
// What the cell had read until then are its reads, so that it runs again when they change. That, and every broken rule of
// this package, is a Fault of the cell: it is told once when it comes and once when it goes (TakeFaults). A graph of tests
// is strict: there a broken rule is a panic.
//
// The naive reader evaluates the same functions from the rows alone: no memo, no recording, index groups by scanning.
// Tests hold the graph against it after random histories; "why not" and "plan" can use it too.
//
// One goroutine, the owner, calls Commit, Slice, Observe and everything else. While it runs a batch of cells it may use
// further goroutines of its own; none outlives the call. The package imports store and omap, nothing else.
package query
