package commitlog

// lock is a mutex for what is held while the disk works. It is a channel, so that a simulated clock goes on while somebody waits for it.
type lock struct{ taken chan struct{} }

func newLock() lock { return lock{make(chan struct{}, 1)} }

// Lock waits until nobody holds the lock, and takes it.
func (l *lock) Lock() { l.taken <- struct{}{} }

// Unlock lets it go.
func (l *lock) Unlock() { <-l.taken }

// TryLock takes it if nobody holds it.
func (l *lock) TryLock() bool {
	select {
	case l.taken <- struct{}{}:
		return true
	default:
		return false
	}
}
