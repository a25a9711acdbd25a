package main

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const size = 3 << 20

// ---- the origin ----

func upload(w http.ResponseWriter, r *http.Request) {
	digest := sha256.New()
	n, err := io.Copy(digest, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, "%s %d %x %d %s", r.Proto, n, digest.Sum(nil), r.ContentLength, r.Trailer.Get("X-Sum"))
}

func trailers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Trailer", "X-Sum")
	io.WriteString(w, "hello")
	w.(http.Flusher).Flush()
	w.Header().Set("X-Sum", "5")
	w.Header().Set(http.TrailerPrefix+"X-Late", "unannounced")
}

// Each line of the request goes back as it comes.
func lines(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	for in := bufio.NewScanner(r.Body); in.Scan(); w.(http.Flusher).Flush() {
		fmt.Fprintf(w, "re %s\n", in.Text())
	}
}

func big(w http.ResponseWriter, r *http.Request) {
	block := []byte(strings.Repeat("stile", 1000))
	for n := 0; n < size; n += len(block) {
		w.Write(block)
	}
}

func serveHTTP(cert, key string) int {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "ok %s %s", r.Proto, r.URL.Path) })
	mux.HandleFunc("/upload", upload)
	mux.HandleFunc("/trailers", trailers)
	mux.HandleFunc("/lines", lines)
	mux.HandleFunc("/big", big)
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("url"), http.StatusFound)
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	server := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}
	go server.ServeTLS(listener, cert, key)
	return listener.Addr().(*net.TCPAddr).Port
}

// ---- the client ----

type client struct {
	http.Client
	base, proto string
}

func newClient(base string, h2 bool) *client {
	transport := http.DefaultTransport.(*http.Transport).Clone() // the proxy of the environment, HTTP/2 if it may be
	proto := "HTTP/2.0"
	if !h2 {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		transport.TLSClientConfig = &tls.Config{NextProtos: []string{"http/1.1"}}
		transport.ForceAttemptHTTP2, proto = false, "HTTP/1.1"
	}
	return &client{http.Client{Transport: transport, Timeout: 60 * time.Second}, base, proto}
}

func (c *client) do(method, path string, body io.Reader) (*http.Response, string) {
	request := must(http.NewRequest(method, c.base+path, body))
	answer := must(c.Do(request))
	defer answer.Body.Close()
	text := string(must(io.ReadAll(answer.Body)))
	check(answer.Proto == c.proto, "%s %s: %s instead of %s", method, path, answer.Proto, c.proto)
	return answer, text
}

func (c *client) plain() {
	answer, text := c.do("GET", "/ok/a", nil)
	check(answer.StatusCode == 200 && strings.HasPrefix(text, "ok HTTP/") && strings.HasSuffix(text, " /ok/a"), "GET: %d %q", answer.StatusCode, text)
	answer, text = c.do("HEAD", "/ok/a", nil)
	check(answer.StatusCode == 200 && text == "", "HEAD: %d %q", answer.StatusCode, text)
	_, text = c.do("GET", "/big", nil)
	check(len(text) >= size, "big: %d", len(text))
	_, text = c.do("GET", "/to?url=/ok/there", nil)
	check(strings.HasSuffix(text, "/ok/there"), "redirect: %q", text)
}

// With a length, and without one and with a trailer.
func (c *client) uploads() {
	data := strings.Repeat("0123456789abcdef", size/16)
	sum := fmt.Sprintf("%d %x", size, sha256.Sum256([]byte(data)))
	_, text := c.do("POST", "/upload", strings.NewReader(data))
	check(strings.Contains(text, sum+fmt.Sprintf(" %d", size)), "POST: %q", text)

	request := must(http.NewRequest("PUT", c.base+"/upload", io.MultiReader(strings.NewReader(data))))
	request.Trailer = http.Header{"X-Sum": {"the end"}}
	answer := must(c.Do(request))
	defer answer.Body.Close()
	text = string(must(io.ReadAll(answer.Body)))
	check(strings.HasSuffix(text, sum+" -1 the end"), "PUT: %q", text)
}

func (c *client) trailers() {
	answer, text := c.do("GET", "/trailers", nil)
	check(text == "hello" && answer.Trailer.Get("X-Sum") == "5", "trailers: %q %v", text, answer.Trailer)
	check(answer.Trailer.Get("X-Late") == "unannounced", "a trailer that was not announced: %v", answer.Trailer)
}

// Each line is answered before the next is sent.
func (c *client) bothWays() {
	in, out := io.Pipe()
	answer := must(c.Do(must(http.NewRequest("POST", c.base+"/lines", in))))
	defer answer.Body.Close()
	reader := bufio.NewReader(answer.Body)
	for i := 0; i < 20; i++ {
		fmt.Fprintf(out, "%d\n", i)
		line := must(reader.ReadString('\n'))
		check(line == fmt.Sprintf("re %d\n", i), "line %d: %q", i, line)
	}
	out.Close()
	check(len(must(io.ReadAll(reader))) == 0, "more lines")
}

func (c *client) atOnce() {
	var all sync.WaitGroup
	for i := 0; i < 50; i++ {
		all.Add(1)
		go func(path string) {
			defer all.Done()
			_, text := c.do("GET", path, nil)
			check(strings.HasSuffix(text, " "+path), "%s: %q", path, text)
		}(fmt.Sprintf("/ok/%d", i))
	}
	all.Wait()
}

func (c *client) cut() {
	answer := must(c.Get(c.base + "/cut"))
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	check(string(got) == "half" && err != nil, "a cut answer: %q %v", got, err)
}

func (c *client) denied() {
	for _, body := range []io.Reader{nil, strings.NewReader("a body"), io.MultiReader(strings.NewReader(strings.Repeat("x", size)))} {
		method := map[bool]string{true: "GET", false: "POST"}[body == nil]
		answer, text := c.do(method, "/no/a", body)
		var said struct{ Error, Reason, Detail, Id string }
		check(json.Unmarshal([]byte(text), &said) == nil, "refusal: %q", text)
		check(answer.StatusCode == 403 && said.Error == "denied" && said.Reason == "denied_by_rule", "refusal: %d %q", answer.StatusCode, text)
		check(strings.Contains(answer.Header.Get("Proxy-Status"), "denied_by_rule"), "Proxy-Status: %v", answer.Header)
		check(strings.Contains(said.Detail, method+" "+c.base+"/no/a"), "detail: %q", said.Detail)
	}
}

func clientHTTP(base string, h2 bool) {
	c := newClient(base, h2)
	c.plain()
	c.uploads()
	c.trailers()
	if h2 {
		c.bothWays()
	}
	c.atOnce()
	c.cut()
	c.denied()
	c.plain()
	fmt.Println("well")
}

func get(url string) {
	answer, err := http.Get(url)
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	defer answer.Body.Close()
	fmt.Println(answer.StatusCode, string(must(io.ReadAll(answer.Body))))
}
