package edge

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePair writes a fresh self-signed pair and returns the certificate's bytes.
func writePair(t *testing.T, certFile, keyFile string) []byte {
	t.Helper()
	pair, err := selfSigned(nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		keyFile:  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pair.Certificate[0]
}

func TestCertificateFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	first := writePair(t, certFile, keyFile)
	var log bytes.Buffer
	c, err := newCertificates(Options{CertFile: certFile, KeyFile: keyFile, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c.now = func() time.Time { return now }
	presented := func() []byte {
		got, err := c.config().GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Certificate[0]
	}
	second := writePair(t, certFile, keyFile)
	if !bytes.Equal(presented(), first) {
		t.Error("files were read again at once")
	}
	now = now.Add(certificateAge)
	if !bytes.Equal(presented(), second) {
		t.Error("changed files were not read")
	}
	if err := os.WriteFile(keyFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(certificateAge)
		if !bytes.Equal(presented(), second) {
			t.Error("a broken pair replaced a good one")
		}
	}
	if n := strings.Count(log.String(), "certificate not usable"); n != 1 {
		t.Errorf("a broken pair was reported %d times: %s", n, log.String())
	}
	third := writePair(t, certFile, keyFile)
	now = now.Add(certificateAge)
	if !bytes.Equal(presented(), third) {
		t.Error("repaired files were not read")
	}
}

func TestCertificateOptions(t *testing.T) {
	for _, o := range []Options{{CertFile: "a"}, {KeyFile: "a"}, {CertFile: "missing", KeyFile: "missing"}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
