// A server on net/http with a large heap that allocates much in every request. What is wrong: the collector runs again and again, and
// makes requests assist it. The log stays empty: GODEBUG=gctrace=1 says on stderr when it collected.
package main

import "net/http"

type node struct {
	left, right *node
	load        [4]uint64
}

func grow(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: grow(depth - 1), right: grow(depth - 1)}
}

var kept, sink any

//go:noinline
func makeAnswer() {
	made := make([]*node, 0, 1024)
	for i := range uint64(1024) {
		made = append(made, &node{load: [4]uint64{i}})
	}
	sink = made
}

func main() {
	kept = grow(19)
	serve(func(w http.ResponseWriter, r *http.Request) {
		makeAnswer()
		w.Write([]byte("ok\n"))
	})
}
