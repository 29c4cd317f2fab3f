// A server on net/http that gives the work of each request, 2 ms of waiting for a device, to workers over a channel. What is wrong: there
// are two workers, too few for the rate, so that requests wait in the channel. In LOG: when both were busy and a request waited.
package main

import (
	"net/http"
	"sync/atomic"
	"time"
)

var (
	jobs    = make(chan chan string, 1024)
	waiting atomic.Int64
)

func worker() {
	for done := range jobs {
		begin := nanotime()
		time.Sleep(2 * time.Millisecond)
		if waiting.Add(-1) >= 2 {
			logStretch(begin, nanotime())
		}
		done <- "ok\n"
	}
}

func main() {
	for range 2 {
		go worker()
	}
	serve(func(w http.ResponseWriter, r *http.Request) {
		done := make(chan string, 1)
		waiting.Add(1)
		jobs <- done
		w.Write([]byte(<-done))
	})
}
