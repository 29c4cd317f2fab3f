// A server on net/http with nothing wrong: each request makes a short page. For scenarios in which nothing, or the machine, is the cause.
package main

import (
	"fmt"
	"net/http"
)

func main() {
	serve(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s\n", r.URL.Path)
	})
}
