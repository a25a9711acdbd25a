// A client and an origin in Go, for the tests: net/http in HTTP/2 and HTTP/1.1, and gRPC. What a client checks it
// checks here, and ends with 1 and a line on stderr if it does not hold.
//
//	clients serve CERT KEY            an origin on two ports of 127.0.0.1, printed as {"http":N,"grpc":N};
//	                                  it ends with its standard input
//	clients http BASE 1|2             what net/http does at the proxy that the environment names
//	clients get URL                   one GET; the status and the body, or the error as a program sees it
//	clients grpc HOST:PORT            the four kinds of calls
//	clients grpc-denied HOST:PORT     a call that is refused: its code and its text
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func check(ok bool, format string, args ...any) {
	if !ok {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	check(err == nil, "%v", err)
	return value
}

func serve(cert, key string) {
	ports := map[string]int{"http": serveHTTP(cert, key), "grpc": serveGRPC(cert, key)}
	check(json.NewEncoder(os.Stdout).Encode(ports) == nil, "no standard output")
	io.Copy(io.Discard, os.Stdin)
}

func main() {
	args := append(os.Args[1:], "", "", "")
	switch args[0] {
	case "serve":
		serve(args[1], args[2])
	case "http":
		clientHTTP(args[1], args[2] == "2")
	case "get":
		get(args[1])
	case "grpc":
		clientGRPC(args[1])
	case "grpc-denied":
		deniedGRPC(args[1])
	default:
		check(false, "what is %q?", args[0])
	}
}
