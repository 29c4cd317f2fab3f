// A server in Go with a large heap that allocates in every request, so that its collector runs again and again. 128 bytes in, the
// same 128 bytes out. In: PROGRAM PORT LOG MODE; the log stays empty: GODEBUG=gctrace=1 says on stderr when it collected.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

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

var kept *node
var sink []*node

//go:noinline
func handle(n uint64) {
	made := make([]*node, 0, 256)
	for i := uint64(0); i < 256; i++ {
		made = append(made, &node{load: [4]uint64{n, i}})
	}
	sink = made
}

func serve(c net.Conn) {
	defer c.Close()
	bytes := make([]byte, 128)
	for n := uint64(0); ; n++ {
		if _, err := io.ReadFull(c, bytes); err != nil {
			return
		}
		handle(n)
		if _, err := c.Write(bytes); err != nil {
			return
		}
	}
}

func main() {
	kept = grow(17)
	l, err := net.Listen("tcp4", ":"+os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go serve(c)
	}
}
