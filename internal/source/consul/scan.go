package consul

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
)

// Lists of a Consul with many services have megabytes, and only a few members of each item matter. So they are scanned, and not decoded whole.

// scanner scans an answer.
type scanner struct{ *jsontext.Decoder }

func scan(body []byte) scanner {
	return scanner{jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
}

// open reads the beginning of an object or list. It reports false for null.
func (s scanner) open(kind jsontext.Kind) (bool, error) {
	t, err := s.ReadToken()
	if err == nil && t.Kind() != kind && t.Kind() != jsontext.KindNull {
		err = fmt.Errorf("there is %v instead of %v", t.Kind(), kind)
	}
	return err == nil && t.Kind() == kind, err
}

// object reads an object. take must read the value of each member; its name comes in quotes and is valid until then.
func (s scanner) object(take func(name []byte) error) error {
	ok, err := s.open(jsontext.KindBeginObject)
	for ok && err == nil && s.PeekKind() == jsontext.KindString {
		var name jsontext.Value
		if name, err = s.ReadValue(); err == nil {
			err = take(name)
		}
	}
	if ok && err == nil {
		_, err = s.ReadToken()
	}
	return err
}

// list reads a list. take must read each element.
func (s scanner) list(take func() error) error {
	ok, err := s.open(jsontext.KindBeginArray)
	for ok && err == nil && s.PeekKind() != jsontext.KindEndArray {
		err = take()
	}
	if ok && err == nil {
		_, err = s.ReadToken()
	}
	return err
}

// text reads a text into a buffer. Any other value is empty.
func (s scanner) text(into []byte) ([]byte, error) {
	v, err := s.ReadValue()
	if err != nil || v.Kind() != jsontext.KindString {
		return into[:0], err
	}
	return jsontext.AppendUnquote(into[:0], v)
}

// raw reads a value into a buffer, as it is written.
func (s scanner) raw(into []byte) ([]byte, error) {
	v, err := s.ReadValue()
	return append(into[:0], v...), err
}

// hash is a checksum of texts.
func hash(texts ...[]byte) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for _, text := range texts {
		for _, c := range text {
			h = (h ^ uint64(c)) * prime
		}
		h *= prime // as by a byte 0
	}
	return h
}
