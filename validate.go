package locker

// Validate returns nil if l takes a lock of key with opts, and else an error that matches [ErrInvalid].
// It is for a package that is given a Locker and options long before its first Lock. It sends no
// command and makes no event. If l neither is a [Client] nor wraps one, Validate does not know the
// defaults and the prefix of l, and checks key and opts without them.
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
