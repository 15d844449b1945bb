package conformance

import (
	"fmt"
	"iter"
	"reflect"
)

// upgrades has the interface that a harness has to implement for a claim: by the field of [Capabilities], which a
// case names in its Needs. A claim without an entry is the strategy's.
var upgrades = map[string]func(h Harness) (name string, ok bool){
	"Construct": has[Constructor],
	"Inspect":   has[Inspector],
	"Break":     has[Breaker],
	"Plant":     has[Planter],
	"Faults":    has[Faults],
	"Scripts":   has[Faults],
	"Servers":   has[ServerFaults],
	"Processes": has[ChildMaker],
	"Drivers":   has[DriverMaker],
	"Wired":     has[Wired],
}

// has reports whether h is an I, and how that is called.
func has[I any](h Harness) (name string, ok bool) {
	_, ok = upgrade[I](h)
	return reflect.TypeFor[I]().Name(), ok
}

// lacks names the upgrade that h would have to be for a claim and is not, or "".
func lacks(h Harness, field string) string {
	if is, ok := upgrades[field]; ok {
		if name, ok := is(h); !ok {
			return name
		}
	}
	return ""
}

// claims goes through the claims that c makes, by their fields.
func claims(c Capabilities) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i, v := 0, reflect.ValueOf(c); i < v.NumField(); i++ {
			if f := v.Field(i); f.Kind() == reflect.Bool && f.Bool() && !yield(v.Type().Field(i).Name) {
				return
			}
		}
	}
}

// unmet says which claim h does not make without which c does not run, or makes with which c
// does not run, or "".
func (c Case) unmet(h Harness) string {
	claimed := reflect.ValueOf(h.Capabilities())
	for field := range claims(c.Needs) {
		if claimed.FieldByName(field).Bool() {
			continue
		}
		if up := lacks(h, field); up != "" {
			return fmt.Sprintf("the harness is no %s", up)
		}
		return fmt.Sprintf("needs %s, which is not claimed", field)
	}
	for field := range claims(c.Without) {
		if claimed.FieldByName(field).Bool() {
			return fmt.Sprintf("for strategies without %s, which is claimed", field)
		}
	}
	return ""
}

// upgraded returns c with the claims that h can show.
func (c Capabilities) upgraded(h Harness) Capabilities {
	for field, is := range upgrades {
		_, ok := is(h)
		reflect.ValueOf(&c).Elem().FieldByName(field).SetBool(ok)
	}
	return c
}

// upgrade is h as an I, or what h is made of.
func upgrade[I any](h Harness) (i I, ok bool) {
	if of, is := h.(*ofDriver); is {
		if i, ok = of.DriverHarness.(I); ok {
			return i, true
		}
	}
	i, ok = h.(I)
	return i, ok
}

// must returns an upgrade that a case's needs have made certain.
func must[I any](h Harness) I {
	i, _ := upgrade[I](h)
	return i
}
