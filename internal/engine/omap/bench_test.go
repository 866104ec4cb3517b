package omap

import (
	"fmt"
	"testing"
)

func nameAt(i int) Name {
	return Name(fmt.Sprintf("outbound|8080||service-%05d.namespace-%02d.svc.cluster.local", i, i%20))
}

func filled(n int) Map[Name, val] {
	changes := make([]Change[Name, val], n)
	for i := range changes {
		changes[i] = Put(nameAt(i), valOf(i))
	}
	return With(Map[Name, val]{}, changes...)
}

func BenchmarkChangeOne(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, i := filled(n), 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				m = With(m, Put(nameAt(i*7919%n), valOf(-i)))
			}
		})
	}
}

func BenchmarkInsertAndDeleteOne(b *testing.B) {
	const n = 10_000
	m, i := filled(n), 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		k := nameAt(i*7919%n) + "x"
		m = With(With(m, Put(k, valOf(i))), Del[Name, val](k))
	}
}

func BenchmarkUnchanged(b *testing.B) {
	m := filled(10_000)
	c := Put(nameAt(5000), valOf(5000))
	b.ReportAllocs()
	for b.Loop() {
		m = With(m, c)
	}
}

func BenchmarkDiffOne(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := filled(n)
			o := With(m, Put(nameAt(n/2), valOf(-1)))
			b.ReportAllocs()
			for b.Loop() {
				for range Diff(m, o) {
				}
			}
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	const n = 10_000
	ordered, shuffled := make([]Change[Name, val], n), make([]Change[Name, val], n)
	for i := range n {
		ordered[i] = Put(nameAt(i), valOf(i))
		shuffled[i*7919%n] = ordered[i]
	}
	for _, c := range []struct {
		name    string
		changes []Change[Name, val]
	}{{"ordered", ordered}, {"shuffled", shuffled}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				With(Map[Name, val]{}, c.changes...)
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	const n = 10_000
	m := filled(n)
	keys := make([]Name, n)
	for i := range keys {
		keys[i] = nameAt(i * 7919 % n)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		m.Get(keys[i%n])
		i++
	}
}
