package nds

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
)

func sample() []Entry {
	return []Entry{
		{Host: "web.shop.svc.cluster.local", Addresses: []string{"10.0.0.1", "fd00::1"}, Registry: Kubernetes, ShortName: "web", Namespace: "shop"},
		{Host: "*.example.com", Addresses: []string{"240.240.0.1"}, Registry: "External"},
		{Host: "none.example.com"},
	}
}

func encode(list ...Entry) (b []byte) {
	for _, e := range list {
		b = e.Append(b)
	}
	return b
}

func decode(t *testing.T, b []byte) (list []Entry) {
	t.Helper()
	if err := Decode(b, func(e Entry) { list = append(list, e) }); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestRoundTrip: decoding an encoded table returns its entries, and concatenated tables are one table.
func TestRoundTrip(t *testing.T) {
	if got := decode(t, encode(sample()...)); !reflect.DeepEqual(got, sample()) {
		t.Errorf("%+v", got)
	}
}

// TestMessage: the encoded table is the protobuf encoding of the message NameTable.
func TestMessage(t *testing.T) {
	m, err := Message(encode(sample()[:2]...))
	if err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"web.shop.svc.cluster.local"`, `"shortname"`, `"fd00::1"`, `"*.example.com"`, `"registry"`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}

func TestNotUTF8(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it was encoded")
		}
	}()
	Entry{Host: "\xff"}.Append(nil)
}

// FuzzDecode: no input makes Decode panic, and entries that it decodes stay the same when they are encoded and decoded again.
func FuzzDecode(f *testing.F) {
	f.Add(encode(sample()...))
	f.Add([]byte{0x0a, 0x02, 0x12, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		var list []Entry
		if Decode(b, func(e Entry) { list = append(list, e) }) != nil {
			return
		}
		valid := !slices.ContainsFunc(list, func(e Entry) bool {
			_, err := Message(encodeQuietly(e))
			return err != nil
		})
		if valid && len(list) > 0 && !reflect.DeepEqual(decode(t, encode(list...)), list) {
			t.Errorf("%+v changes", list)
		}
	})
}

// encodeQuietly encodes an entry; text that is not UTF-8 makes something that is no table.
func encodeQuietly(e Entry) (b []byte) {
	defer func() {
		if recover() != nil {
			b = []byte{0xff}
		}
	}()
	return e.Append(nil)
}
