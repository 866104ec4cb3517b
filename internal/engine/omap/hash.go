package omap

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// level says which node a key can start. It is a function of the key's bytes alone.
type level uint8

const (
	inChunk     level = iota // starts neither a chunk nor a page
	startsChunk              // starts a chunk; 1 key in 16
	startsPage               // starts a page and its first chunk; 1 key in 512
)

// A change of any of these constants changes every chunk boundary or every hash. Replicas of different versions would then
// send their proxies everything once. TestGolden detects such a change.
const (
	chunkMask = 1<<4 - 1
	pageMask  = 1<<9 - 1

	// The first byte of each hash input differs between levels, so that a page of one chunk has another hash than that chunk.
	chunkTag = 1
	pageTag  = 2
	topTag   = 3
)

// levelOf returns the level of a key, given its bytes.
func levelOf(key []byte) level {
	switch h := mix(key); {
	case h&chunkMask != 0:
		return inChunk
	case h&pageMask != 0:
		return startsChunk
	default:
		return startsPage
	}
}

// mix is a fixed 64-bit hash that processes one word at a time. Each step is a bijection of the state, so no input word can
// erase the effect of the words before it. The final steps spread every bit over the low bits, which levelOf tests.
func mix(b []byte) uint64 {
	const (
		k0 = 0x9e3779b97f4a7c15
		k1 = 0xbf58476d1ce4e5b9
		k2 = 0x94d049bb133111eb
	)
	h := uint64(len(b)) * k0 // the length distinguishes a short last word from one that ends in zero bytes
	for ; len(b) >= 8; b = b[8:] {
		h = bits.RotateLeft64(h^binary.LittleEndian.Uint64(b)*k1, 29) * k2
	}
	var last uint64
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	h = bits.RotateLeft64(h^last*k1, 29) * k2
	h = (h ^ h>>30) * k1
	h = (h ^ h>>27) * k2
	return h ^ h>>31
}

// sum128 returns the same hash as Sum of one part, without its allocation.
func sum128(b []byte) Hash {
	full := sha256.Sum256(b)
	return Hash(full[:16])
}

// appendEntry appends an entry's contribution to the hash of its chunk: the length of the key, the key, and the hash of the
// value. The length makes the concatenation of entries unambiguous.
func appendEntry[K Key[K], V Value](b []byte, e *entry[K, V]) []byte {
	at := len(b)
	b = e.key.AppendTo(append(b, 0, 0, 0, 0))
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	h := e.val.ContentHash()
	return append(b, h[:]...)
}
