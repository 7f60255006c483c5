package chaostest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// smallBytes is the free space that a disk has which is going to be full.
const smallBytes = 96 << 20

// moved moves the data of a process that is down to a small disk of its own, for as long as the cluster is there.
func (f *doing) moved(name string) error {
	dir := f.data[name]
	if f.small[dir] {
		return nil
	}
	aside := dir + "-moved"
	if err := os.Rename(dir, aside); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var used int64
	if err := filepath.WalkDir(aside, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		used += info.Size() + 4096
		return err
	}); err != nil {
		return err
	}
	if err := mountSmall(dir, used+smallBytes); err != nil {
		return err
	}
	f.small[dir] = true
	if err := os.CopyFS(dir, os.DirFS(aside)); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// filled fills the disk of a replica for a while.
func (f *doing) filled(name string) error {
	f.say("%s moves to a small disk", name)
	if err := f.kill(name); err != nil {
		return err
	}
	if err := f.moved(name); err != nil {
		return err
	}
	if err := f.launch(name); err != nil {
		return err
	}
	if err := f.rest(); err != nil {
		return err
	}
	return f.fill(name)
}

// fill takes all space of a small disk for a while.
func (f *doing) fill(name string) error {
	filler := filepath.Join(f.data[name], "filler")
	w, err := os.Create(filler)
	if err != nil {
		return err
	}
	defer w.Close()
	n := int64(0)
	for block := make([]byte, 1<<20); len(block) > 0; {
		k, err := w.Write(block)
		n += int64(k)
		if err != nil {
			block = block[:len(block)/2] // the last bytes, too
		}
	}
	f.say("%d MiB fill it", n>>20)
	f.hold(time.Second, 6*time.Second)
	return os.Remove(filler)
}

// fullMaster lets a replica on a small disk lead, and fills that.
func fullMaster(f *doing) error {
	m := f.member()
	group := f.groupOf[m]
	id, err := strconv.Atoi(strings.TrimPrefix(m, group))
	if err != nil {
		return err
	}
	f.say("%s moves to a small disk and leads", m)
	if err := f.kill(m); err != nil {
		return err
	}
	if err := f.moved(m); err != nil {
		return err
	}
	if err := f.launch(m); err != nil {
		return err
	}
	if err := f.rest(); err != nil {
		return err
	}
	if err := f.command("cluster", "elect", group, "--to", strconv.Itoa(id)); err != nil {
		return err
	}
	if !f.watch.await(group, 10*time.Second, func(s *controllerv1.Shard) bool { return int(s.GetMaster()) == id && s.GetLive() }) {
		return fmt.Errorf("%s does not lead", m)
	}
	return f.fill(m)
}

// release unmounts all small disks, and leaves copies.
func (p *place) release() (err error) {
	for dir := range p.small {
		err = errors.Join(err, os.CopyFS(dir+"-small", os.DirFS(dir)), unmountSmall(dir))
	}
	clear(p.small)
	return err
}
