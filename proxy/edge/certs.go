package edge

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// certificates hands out the port's certificate. One from files is read again, at most every few
// seconds, when a connection comes in: content decides, not the time of the file.
type certificates struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	mu       sync.Mutex
	current  *tls.Certificate
	cert     []byte // content of the files that current was made of
	key      []byte
	looked   time.Time
	reported string // failure logged last
}

// certificateAge is how long the files are not looked at again.
const certificateAge = 10 * time.Second

func newCertificates(o Options) (*certificates, error) {
	c := &certificates{certFile: o.CertFile, keyFile: o.KeyFile, log: o.Log, now: time.Now}
	if (c.certFile == "") != (c.keyFile == "") {
		return nil, mqerr.New(mqerr.Invalid, "a TLS certificate needs both a certificate file and a key file")
	}
	if c.certFile != "" {
		c.looked = c.now()
		return c, c.load()
	}
	var err error
	c.current, err = selfSigned(o.Hosts, c.now())
	return c, err
}

func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.get(), nil
		},
	}
}

// get returns the certificate. Files that cannot be used leave the one before in place.
func (c *certificates) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); c.certFile != "" && now.Sub(c.looked) >= certificateAge {
		c.looked = now
		c.report(c.load())
	}
	return c.current
}

func (c *certificates) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != c.reported {
		c.log.LogAttrs(context.Background(), slog.LevelError, "certificate not usable, the one before stays; mend the files of --tls-cert and --tls-key, they are read again within seconds", slog.Any("error", err))
	}
	c.reported = text
}

// load reads the files and takes them if they have changed.
func (c *certificates) load() error {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return fmt.Errorf("TLS certificate: %w", err)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Errorf("TLS key: %w", err)
	}
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("TLS certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	c.current, c.cert, c.key = &pair, cert, key
	return nil
}

// selfSigned makes a certificate that lives in memory only. It is enough for clients that do not
// check, and those are most.
func selfSigned(hosts []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "perigee", Organization: []string{"Perigee self-signed"}},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(10, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},

		BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if h != "" {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
