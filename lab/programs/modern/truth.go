// What the Go programs of this folder share: the log of what took long, and the start. In: PROGRAM PORT LOG MODE. Out: `ready` on stdout; in
// LOG a line for each interval, its begin and its end in CLOCK_MONOTONIC ns.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	_ "unsafe"
)

// The runtime's monotonic clock, which is CLOCK_MONOTONIC.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

var truth *os.File

func logStretch(begin, end int64) {
	fmt.Fprintf(truth, "%d %d\n", begin, end)
}

// Opens the log and listens; PORT and LOG are the first two arguments.
func begin() net.Listener {
	var err error
	if truth, err = os.OpenFile(os.Args[2], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp4", ":"+os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	return l
}

func serve(handler func(http.ResponseWriter, *http.Request)) {
	l := begin()
	if err := http.Serve(l, http.HandlerFunc(handler)); err != nil {
		panic(err)
	}
}
