// A server on net/http that asks a backend for each request and answers without it after 8 ms: a select on the answer and a timer. What is
// wrong: the backend (backend.go) takes 12 ms for some answers. In LOG: the calls that ran into the time-out.
package main

import (
	"io"
	"net/http"
	"time"
)

var client = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func ask() string {
	answer, err := client.Get("http://127.0.0.1:7100/")
	if err != nil {
		return "no answer\n"
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

func main() {
	serve(func(w http.ResponseWriter, r *http.Request) {
		begin := nanotime()
		answer := make(chan string, 1)
		go func() { answer <- ask() }()
		select {
		case body := <-answer:
			w.Write([]byte(body))
		case <-time.After(8 * time.Millisecond):
			logStretch(begin, nanotime())
			w.Write([]byte("late\n"))
		}
	})
}
