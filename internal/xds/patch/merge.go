package patch

import (
	"errors"
	"fmt"
	"strings"

	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/pilotmesh/pilot/internal/xds/merge"
)

// merger merges the value of a patch into a message, as package merge does.
type merger struct {
	replaceLists bool
}

func (m merger) merge(dst, src proto.Message) { merge.Message(dst, src, m.replaceLists) }

// errOtherType means that a patch configures another extension than the one that it selects.
var errOtherType = errors.New("is of another type")

// config merges the configuration of an extension. Both are of one type, as messages or as trees.
func (m merger) config(dst, src *anypb.Any) (*anypb.Any, error) {
	if dst == nil || src == nil {
		if src == nil {
			return dst, nil
		}
		return proto.Clone(src).(*anypb.Any), nil
	}
	if is, want := typeOf(dst), typeOf(src); is != want {
		return nil, fmt.Errorf("the configuration %w: the value has a %s, and the selected extension a %s", errOtherType, want, is)
	}
	if dst.GetTypeUrl() != src.GetTypeUrl() || isTree(dst) {
		return m.trees(dst, src)
	}
	to, err := dst.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("decode the configuration of the selected extension: %w", err)
	}
	from, err := src.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("decode the configuration in the value: %w", err)
	}
	m.merge(to, from)
	return pack(to)
}

// trees merges configuration that is a tree of JSON.
func (m merger) trees(dst, src *anypb.Any) (*anypb.Any, error) {
	var to, from xdsv3.TypedStruct
	if err := dst.UnmarshalTo(&to); err != nil {
		return nil, fmt.Errorf("the configuration cannot be merged: %w", err)
	}
	if err := src.UnmarshalTo(&from); err != nil {
		return nil, fmt.Errorf("the configuration cannot be merged: %w", err)
	}
	if to.Value == nil {
		to.Value = &structpb.Struct{}
	}
	m.tree(to.GetValue(), from.GetValue())
	return pack(&to)
}

func (m merger) tree(dst, src *structpb.Struct) {
	if dst.Fields == nil {
		dst.Fields = map[string]*structpb.Value{}
	}
	for key, v := range src.GetFields() {
		was := dst.Fields[key]
		switch {
		case was.GetStructValue() != nil && v.GetStructValue() != nil:
			m.tree(was.GetStructValue(), v.GetStructValue())
		case was.GetListValue() != nil && v.GetListValue() != nil && !m.replaceLists:
			was.GetListValue().Values = append(was.GetListValue().Values, v.GetListValue().GetValues()...)
		default:
			dst.Fields[key] = v
		}
	}
}

func isTree(a *anypb.Any) bool { return a.MessageName() == "xds.type.v3.TypedStruct" }

// typeOf is the type of the message in an Any, or of the tree in it.
func typeOf(a *anypb.Any) string {
	var tree xdsv3.TypedStruct
	if isTree(a) && a.UnmarshalTo(&tree) == nil {
		return tree.GetTypeUrl()[strings.LastIndexByte(tree.GetTypeUrl(), '/')+1:]
	}
	return string(a.MessageName())
}

func pack(m proto.Message) (*anypb.Any, error) {
	out := &anypb.Any{}
	if err := anypb.MarshalFrom(out, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("encode the merged configuration: %w", err)
	}
	return out, nil
}
