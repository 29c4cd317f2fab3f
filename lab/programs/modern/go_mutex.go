// A server on net/http whose requests read a table behind a sync.Mutex. What is wrong: one request in 250 refreshes the table from
// elsewhere, which takes 8 ms of waiting, with the mutex held; the goroutines of other requests wait for it meanwhile. In LOG: when the
// mutex was held so long.
package main

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

var (
	mutex    sync.Mutex
	table    = map[string]string{"a": "ok\n"}
	requests atomic.Uint64
)

//go:noinline
func refreshTable() {
	begin := nanotime()
	time.Sleep(8 * time.Millisecond)
	logStretch(begin, nanotime())
}

func main() {
	serve(func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		if requests.Add(1)%250 == 7 {
			refreshTable()
		}
		value := table["a"]
		mutex.Unlock()
		w.Write([]byte(value))
	})
}
