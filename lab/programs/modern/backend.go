// A server on net/http that other servers ask. What is wrong: one answer in 50 takes 12 ms. In LOG: from when such a question was there
// until it was answered.
package main

import (
	"net/http"
	"sync/atomic"
	"time"
)

var requests atomic.Uint64

func main() {
	serve(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%50 == 7 {
			begin := nanotime()
			time.Sleep(12 * time.Millisecond)
			logStretch(begin, nanotime())
		}
		w.Write([]byte("ok\n"))
	})
}
