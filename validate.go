package locker

// Validate is nil if l takes a lock of key with opts, and else an error that matches
// [ErrInvalid]: for a package that is given a Locker and options long before its first
// Lock. It sends no command and is no event. Of a Locker that neither is nor wraps a [Client]
// it checks key and opts without that Locker's own defaults and prefix.
func Validate(l Locker, key string, opts ...LockOption) error {
	if l == nil {
		return invalid("the Locker is nil")
	}
	set := defaultSettings()
	full := "?" + key // a prefix that is not known
	if e, ok := ClientOf(l); ok {
		set, full = e.set, e.set.prefix+key
	}
	if _, err := set.forCall(opts); err != nil {
		return err
	}
	return checkKey(key, full)
}
