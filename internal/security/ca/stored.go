package ca

import (
	"context"
	"fmt"
	"time"
)

// look is the longest time between two reads of a store. A keeper notices after that time that the stored root is lost. A replica that
// starts before the root is written back makes another one.
const look = 30 * time.Second

// known is the self-signed authority as the store had it when it was last read.
type known struct {
	is        Kept
	authority *Authority
	at        time.Time
	// made is true if this keeper made the authority, because the store had none.
	made bool
}

// stored returns the self-signed authority, and when to look at the store again. The first keeper makes the authority. A keeper that knows
// the authority never makes another one: if the store has lost it, the keeper writes it back.
func (k *Keeper) stored(ctx context.Context, now time.Time) (*Authority, time.Time, error) {
	again := now.Add(min(k.s.Check, look))
	var c choice
	kept, err := k.s.Store.Update(ctx, func(data map[string][]byte, damage error) (_ map[string][]byte, err error) {
		if c, err = k.choose(data, damage, now); err != nil {
			return nil, err
		}
		next, changed, due, err := k.s.Roots.Step(c.is, now)
		if due.Before(again) {
			again = due
		}
		if err != nil || !changed && !c.made && c.lost == "" {
			return nil, err
		}
		return next.Data(), nil
	})
	if err != nil && c.lost != "" {
		err = fmt.Errorf("the stored root of the mesh %s, and cannot be written back: %w; this control plane signs with the root until it ends", c.lost, err)
	}
	if err != nil {
		return nil, now.Add(pause), err
	}
	is, err := parseKept(kept)
	if err != nil {
		return nil, now.Add(pause), err
	}
	a, err := NewAuthority(is.Material(), now)
	if err != nil {
		return nil, now.Add(pause), err
	}
	if c.lost != "" {
		k.s.Log.Warn("the root of the mesh was written back", "authority", a.String(), "the_stored_root", c.lost)
	}
	k.known = &known{is: is, authority: a, at: now, made: c.made || k.known != nil && k.known.made && a.cert.Equal(k.known.authority.cert)}
	return a, again, nil
}

// choice is the content that the store shall have.
type choice struct {
	is Kept
	// lost is the defect of the store if the keeper must write its own authority back; else empty. made is true if is was made just now,
	// because there was no authority.
	lost string
	made bool
}

// choose decides between the authority in the store and the one that the keeper knows.
func (k *Keeper) choose(data map[string][]byte, damage error, now time.Time) (choice, error) {
	is, found := Kept{}, data != nil || damage != nil
	if damage == nil && found {
		is, damage = parseKept(data)
	}
	own := k.known
	if own != nil && !now.Before(own.authority.cert.NotAfter) {
		own = nil // it signs nothing any more
	}
	switch {
	case own == nil && damage != nil:
		return choice{}, fmt.Errorf("%w; restore it, or remove it to begin with a new root, which no running proxy trusts", damage)
	case own == nil && !found:
		is, err := k.s.Roots.First(now)
		return choice{is: is, made: true}, err
	case own == nil:
		return choice{is: is}, nil
	case !found:
		return choice{is: own.is, lost: "is gone"}, nil
	}
	var a *Authority
	if damage == nil {
		a, damage = k.becomes(is, now)
	}
	switch {
	case damage != nil:
		return choice{is: own.is, lost: fmt.Sprintf("cannot be used: %v", damage)}, nil
	case a.follows(own.authority, now) == nil || k.givesWay(own, a, now):
		return choice{is: is}, nil
	}
	return choice{is: own.is, lost: fmt.Sprintf("was replaced by an authority that no proxy trusts, %s", a)}, nil
}

// becomes returns the authority that follows from the stored content.
func (k *Keeper) becomes(is Kept, now time.Time) (*Authority, error) {
	next, _, _, err := k.s.Roots.Step(is, now)
	if err != nil {
		return nil, err
	}
	return NewAuthority(next.Material(), now)
}

// givesWay reports whether a keeper takes an authority of the store that its own proxies do not trust. It does if it has not read the store
// for so long that other replicas may have changed the root twice, or if it made its own while the store had lost an older one.
func (k *Keeper) givesWay(own *known, a *Authority, now time.Time) bool {
	return now.Sub(own.at) > k.s.Roots.Spread/2 || own.made && a.cert.NotBefore.Before(own.authority.cert.NotBefore)
}
