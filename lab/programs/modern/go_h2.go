// A server on net/http that speaks HTTP/2: MODE h2c in the clear with prior knowledge, MODE tls in TLS by ALPN, with a certificate of its
// own. What is wrong: one request in 50 waits for 6 ms before it answers, and others that came later on the same connection are answered
// before it. In LOG: these waits.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

var requests atomic.Uint64

func handle(w http.ResponseWriter, r *http.Request) {
	if requests.Add(1)%50 == 7 {
		begin := nanotime()
		time.Sleep(6 * time.Millisecond)
		logStretch(begin, nanotime())
	}
	w.Write([]byte("ok\n"))
}

func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	about := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &about, &about, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func main() {
	server := http.Server{Handler: http.HandlerFunc(handle), Protocols: new(http.Protocols)}
	if os.Args[3] == "h2c" {
		server.Protocols.SetUnencryptedHTTP2(true)
		panic(server.Serve(begin()))
	}
	server.Protocols.SetHTTP2(true)
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate()}}
	panic(server.ServeTLS(begin(), "", ""))
}
