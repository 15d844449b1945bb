package conformance

import "reflect"

// Need is something a case needs before it can run.
type Need string

// The needs. Each but the No… ones is a claim in [Capabilities].
const (
	NeedFencing     Need = "Fencing"
	NeedStoredHolds Need = "StoredHolds"
	NeedNotified    Need = "Notified"
	NeedFair        Need = "Fair"
	NeedAdmin       Need = "Admin"
	NeedScripts     Need = "Scripts"

	NeedConstruct Need = "Construct"
	NeedInspect   Need = "Inspect"
	NeedBreak     Need = "Break"
	NeedPlant     Need = "Plant"
	NeedFaults    Need = "Faults"
	NeedServers   Need = "Servers"
	NeedProcesses Need = "Processes"
	NeedDrivers   Need = "Drivers"
	NeedWired     Need = "Wired"

	NoFencing     Need = "no Fencing"
	NoStoredHolds Need = "no StoredHolds"
)

// Claims says whether c lets a case with need n run.
func (c Capabilities) Claims(n Need) bool {
	switch n {
	case NeedFencing:
		return c.Fencing
	case NeedStoredHolds:
		return c.StoredHolds
	case NeedNotified:
		return c.Notified
	case NeedFair:
		return c.Fair
	case NeedAdmin:
		return c.Admin
	case NeedScripts:
		return c.Scripts
	case NeedConstruct:
		return c.Construct
	case NeedInspect:
		return c.Inspect
	case NeedBreak:
		return c.Break
	case NeedPlant:
		return c.Plant
	case NeedFaults:
		return c.Faults
	case NeedServers:
		return c.Servers
	case NeedProcesses:
		return c.Processes
	case NeedDrivers:
		return c.Drivers
	case NeedWired:
		return c.Wired
	case NoFencing:
		return !c.Fencing
	case NoStoredHolds:
		return !c.StoredHolds
	}
	return false
}

// lacks names the upgrade that h would have to be for n and is not, or "".
func lacks(h Harness, n Need) string {
	is := func(name string, ok bool) string {
		if ok {
			return ""
		}
		return name
	}
	switch n {
	case NeedConstruct:
		return is(has[Constructor](h))
	case NeedInspect:
		return is(has[Inspector](h))
	case NeedBreak:
		return is(has[Breaker](h))
	case NeedPlant:
		return is(has[Planter](h))
	case NeedFaults, NeedScripts:
		return is(has[Faults](h))
	case NeedServers:
		return is(has[ServerFaults](h))
	case NeedProcesses:
		return is(has[ChildMaker](h))
	case NeedDrivers:
		return is(has[DriverMaker](h))
	case NeedWired:
		return is(has[Wired](h))
	}
	return ""
}

// has says whether h is an I, and how that is called.
func has[I any](h Harness) (name string, ok bool) {
	_, ok = upgrade[I](h)
	return reflect.TypeFor[I]().Name(), ok
}
