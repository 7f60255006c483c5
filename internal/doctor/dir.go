package doctor

import (
	"slices"
	"time"
)

// What is judged too much of a disk.
const (
	syncSlow   = 20 * time.Millisecond
	syncStuck  = 500 * time.Millisecond
	freeLittle = 1 << 30 // bytes
)

var dirChecks = []check{
	{"data-directory", "the directory, its format and its owner", directory},
	{"data-lock", "whether a process has the directory", locked},
	{"data-space", "free space of its file system", dirSpace},
	{"data-sync", "small writes with fdatasync, tried in the directory", dirSync},
	{"data-damage", "the newest records of the log, the checkpoints", damage},
	{"data-checkpoint", "log behind the newest checkpoint", dirCheckpoint},
	{"data-leftovers", "files that belong to nothing", leftovers},
}

// readable tells whether a check has a directory to look at.
func readable(p *Picture, f *Finding) bool {
	if p.Dir.Error != "" {
		f.unknown("", "the directory cannot be read")
		return false
	}
	return true
}

func directory(p *Picture, f *Finding) {
	d := p.Dir
	if d.Error != "" {
		f.fail("name the --data-dir of a broker, or of dev", "%s", d.Error)
		return
	}
	if d.Refused != "" {
		f.fail("start the release that made it, or a later one", "this release does not take it: %s", d.Refused)
	}
	if d.Owner != nil && d.User != nil && *d.Owner != *d.User && *d.User != 0 {
		f.fail("run the broker and this command as the owner, or give it to the user that runs the broker (chown -R)", "it belongs to user %d, this is user %d", *d.Owner, *d.User)
	}
}

func locked(p *Picture, f *Finding) {
	if readable(p, f) && p.Dir.Locked && (p.Server == nil || p.Server.Reach != Reached) {
		f.warn("if that is the running broker, all is well: ask it with --server and --http; a second one cannot start here, end the first or take another directory", "a process has it")
	}
}

func dirSpace(p *Picture, f *Finding) {
	d := p.Dir
	if d.Total == 0 {
		f.unknown("", "the file system does not tell")
		return
	}
	const do = "free space or make the file system larger"
	used := 1 - float64(d.Free)/float64(d.Total)
	switch {
	case d.Free < freeLittle && used > diskUsed:
		f.fail(do, "%.0f %% full, %d MiB are free", 100*used, d.Free>>20)
	case used > diskUsed:
		f.warn(do, "%.0f %% full, %d MiB are free", 100*used, d.Free>>20)
	}
}

func dirSync(p *Picture, f *Finding) {
	if len(p.Dir.Syncs) == 0 {
		f.unknown("run it as the user of the broker, on a directory that can be written", "no write could be tried")
		return
	}
	sorted := slices.Sorted(slices.Values(p.Dir.Syncs))
	mid := sorted[len(sorted)/2]
	const do = "use a disk with fast fdatasync (a local SSD with power-loss protection): every answer under --flush sync waits for one"
	switch {
	case mid > syncStuck:
		f.fail(do, "half of %d writes with fdatasync took longer than %s", len(sorted), mid.Round(time.Millisecond))
	case mid > syncSlow:
		f.warn(do, "half of %d writes with fdatasync took longer than %s", len(sorted), mid.Round(time.Millisecond))
	}
}

func damage(p *Picture, f *Finding) {
	if !readable(p, f) {
		return
	}
	if !p.Dir.Checked {
		f.unknown("stop the broker first, then run `perigee debug check`", "it was not read: a process has it, or its format is not known")
		return
	}
	for _, d := range p.Dir.Damage {
		f.fail("keep a copy of the directory; `perigee debug check` reads all of it and says what is damaged", "%s", d)
	}
}

func dirCheckpoint(p *Picture, f *Finding) {
	if !readable(p, f) {
		return
	}
	d := p.Dir
	if !d.Checked {
		f.unknown("", "it was not read")
		return
	}
	if behind := d.LogEnd - max(0, d.Checkpoint); behind > checkpointFar {
		f.warn("the next start reads all of it; look in the broker's log for checkpoints that failed", "%.1f GiB of log are behind the newest checkpoint", float64(behind)/(1<<30))
	}
}

func leftovers(p *Picture, f *Finding) {
	switch {
	case !readable(p, f):
	case !p.Dir.Checked:
		f.unknown("", "it was not read")
	case len(p.Dir.Leftovers) > 0:
		f.warn("see what they are; Perigee does not use them, they may be moved away", "%s", some(p.Dir.Leftovers))
	}
}
