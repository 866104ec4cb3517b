// Package query is an incremental computation kernel: memoised pure functions over the rows of package store. It is the only
// package of the project that caches results, invalidates them, compares them or determines changes.
//
// A query is a function of a key. A cell is the remembered result of one query for one key. The function reads rows, index
// groups and other queries through its Reader, which records each read; the query has no other input. Queries are ranked by
// the order of their definitions, and a query may read only queries of lower rank, so cycles cannot exist. After a commit the
// cells of the lowest rank that has work run first. When a cell runs, everything that it can read is therefore up to date, so
// a cell runs at most once per commit and reads rows of one revision. (It runs again in the same commit only if it had to
// stop because a collection was not built yet.) A cell runs only if something that it read has changed. If its new result
// equals the old one, the cells that read it do not run.
//
// Each, GroupBy and DefineLayers define lists. A collection has one cell per element and keeps the outputs of all elements in
// one ordered map, so a change of one element costs one element. Layers are read key by key. A plain query over thousands of
// keys would run in full at every change; a cell that reads more than readLimit things is therefore reported as a Fault, and one that
// reads more than failLimit things ends there as if it had panicked.
//
// A cell exists while a root observes it, directly or through other cells; it is freed some time after its last reader is
// gone. Commit recomputes everything that complete roots need before it returns (laneUpdate). The first computation of a new
// root runs between commits in calls of Slice, so that it does not delay commits (laneBuild). The observer of a root is called
// only when nothing that the root needs is waiting to run, so it never sees results of different revisions.
//
// A cell that panics keeps its last good value; if it has none, its result is absent. The result of a query that guards
// access is then to deny (see Guard). The reads that were recorded before the panic remain, so that the cell runs again when
// one of them changes. A panic, and every violation of a rule of this package, is a Fault of the cell. TakeFaults reports each
// fault once when it appears and once when it is resolved. Tests use strict graphs, in which a violation panics.
//
// The naive reader (Graph.Naive) evaluates the same functions from the rows alone: it remembers nothing, records nothing, and
// finds index groups by scanning. Tests compare the incremental results with the naive ones after random sequences of changes.
//
// The compiler translates each method of a generic type once for each combination of types. Cells have some 240 of them, so code
// here depends on types only where it must: base, runner and userSet depend on none, assembly on the outputs, and cells and memo on
// both. Methods of generic types must not have the names of methods that generic code calls on interfaces (Get, Len, Size): the
// linker keeps every method of such a name.
//
// Goroutines: one goroutine, the owner, calls Commit, Slice, Observe and all other methods. While it runs a large batch of
// cells it uses further goroutines, which all end before the call returns.
package query
