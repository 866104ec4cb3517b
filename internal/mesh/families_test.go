package mesh

import "testing"

func TestFamiliesOf(t *testing.T) {
	for _, c := range []struct {
		addresses []string
		want      Families
	}{
		{nil, OnlyIPv4},
		{[]string{"10.0.0.1"}, OnlyIPv4},
		{[]string{"::ffff:10.0.0.1"}, OnlyIPv4},
		{[]string{"10.0.0.1", "fe80::1", "::1", "a name"}, OnlyIPv4},
		{[]string{"fd00::1"}, OnlyIPv6},
		{[]string{"fd00::1", "10.0.0.1"}, BothFamilies},
	} {
		got := FamiliesOf(c.addresses)
		if got != c.want {
			t.Errorf("%v: %v, want %v", c.addresses, got, c.want)
		}
	}
	for _, f := range []Families{OnlyIPv4, OnlyIPv6, BothFamilies, DualStack} {
		if four, six := f.Has("10.0.0.1"), f.Has("fd00::1"); four != (f != OnlyIPv6) || six != (f != OnlyIPv4) || f.Has("a name") {
			t.Errorf("%v has IPv4 %t, IPv6 %t", f, four, six)
		}
	}
}

func TestOther(t *testing.T) {
	for _, c := range []struct {
		address string
		list    []string
		want    string
	}{
		{"10.0.0.1", nil, ""},
		{"10.0.0.1", []string{"10.0.0.2", "fd00::1", "fd00::2"}, "fd00::1"},
		{"fd00::1", []string{"fd00::1", "10.0.0.1"}, "10.0.0.1"},
		{"10.0.0.1", []string{"fe80::1", "::ffff:10.0.0.2", "a name"}, ""},
		{"a name", []string{"fd00::1"}, ""},
	} {
		if got := Other(c.address, c.list...); got != c.want {
			t.Errorf("%s among %v: %q, want %q", c.address, c.list, got, c.want)
		}
	}
}
