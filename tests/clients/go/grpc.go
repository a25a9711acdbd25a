package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// /package.Service/{Unary,Server,Client,Both,Fails,Secret}, of bytes; described by hand, so that nothing need be
// generated.

func text(s string) *wrapperspb.BytesValue { return wrapperspb.Bytes([]byte(s)) }

func unary(_ any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	in := new(wrapperspb.BytesValue)
	if err := read(in); err != nil {
		return nil, err
	}
	grpc.SetTrailer(ctx, metadata.Pairs("x-sum", fmt.Sprint(len(in.Value)), "x-raw-bin", "\x00\xff"))
	return text("unary " + string(in.Value)), nil
}

func fails(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	return nil, status.Error(codes.NotFound, "there is none: 100% sure, ä")
}

func toClient(_ any, s grpc.ServerStream) error {
	if err := s.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
		return err
	}
	for i := 0; i < 100; i++ {
		if err := s.SendMsg(wrapperspb.Bytes(make([]byte, i*1000))); err != nil {
			return err
		}
	}
	return nil
}

func fromClient(_ any, s grpc.ServerStream) error {
	for n := 0; ; {
		in := new(wrapperspb.BytesValue)
		if err := s.RecvMsg(in); err == io.EOF {
			return s.SendMsg(text(fmt.Sprint(n)))
		} else if err != nil {
			return err
		}
		n += len(in.Value)
	}
}

func bothWays(_ any, s grpc.ServerStream) error {
	for {
		in := new(wrapperspb.BytesValue)
		if err := s.RecvMsg(in); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.SendMsg(text("re " + string(in.Value))); err != nil {
			return err
		}
	}
}

var service = grpc.ServiceDesc{
	ServiceName: "package.Service",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Unary", Handler: unary}, {MethodName: "Secret", Handler: unary}, {MethodName: "Fails", Handler: fails}},
	Streams: []grpc.StreamDesc{{StreamName: "Server", Handler: toClient, ServerStreams: true},
		{StreamName: "Client", Handler: fromClient, ClientStreams: true},
		{StreamName: "Both", Handler: bothWays, ServerStreams: true, ClientStreams: true}},
}

func serveGRPC(cert, key string) int {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	server := grpc.NewServer(grpc.Creds(must(credentials.NewServerTLSFromFile(cert, key))))
	server.RegisterService(&service, struct{}{})
	go server.Serve(listener)
	return listener.Addr().(*net.TCPAddr).Port
}

// The roots are SSL_CERT_FILE's, the proxy HTTPS_PROXY's.
func dial(address string) (*grpc.ClientConn, context.Context, func()) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	return must(grpc.Dial(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{})))), ctx, cancel
}

func call(ctx context.Context, c *grpc.ClientConn, method, in string, options ...grpc.CallOption) (string, error) {
	out := new(wrapperspb.BytesValue)
	err := c.Invoke(ctx, method, text(in), out, options...)
	return string(out.Value), err
}

func stream(ctx context.Context, c *grpc.ClientConn, i int) grpc.ClientStream {
	return must(c.NewStream(ctx, &service.Streams[i], "/package.Service/"+service.Streams[i].StreamName))
}

func send(s grpc.ClientStream, in []byte) {
	err := s.SendMsg(wrapperspb.Bytes(in))
	check(err == nil, "send: %v", err)
}

func receive(s grpc.ClientStream) []byte {
	out := new(wrapperspb.BytesValue)
	err := s.RecvMsg(out)
	check(err == nil, "receive: %v", err)
	return out.Value
}

func clientGRPC(address string) {
	c, ctx, cancel := dial(address)
	defer cancel()
	var trailer metadata.MD
	big := string(make([]byte, 100_000))
	out, err := call(ctx, c, "/package.Service/Unary", big, grpc.Trailer(&trailer))
	check(err == nil && out == "unary "+big, "unary: %v", err)
	check(fmt.Sprint(trailer["x-sum"], trailer["x-raw-bin"]) == "[100000] [\x00\xff]", "trailers: %q", trailer)

	s := stream(ctx, c, 0)
	send(s, nil)
	check(s.CloseSend() == nil, "close")
	for i := 0; i < 100; i++ {
		got := receive(s)
		check(len(got) == i*1000, "message %d has %d bytes", i, len(got))
	}
	check(s.RecvMsg(new(wrapperspb.BytesValue)) == io.EOF, "no end")

	s = stream(ctx, c, 1)
	for i := 0; i < 40; i++ {
		send(s, make([]byte, 50_000))
	}
	check(s.CloseSend() == nil, "close")
	check(string(receive(s)) == "2000000", "client stream")

	s = stream(ctx, c, 2)
	for i := 0; i < 20; i++ { // each is answered before the next is sent
		send(s, []byte(fmt.Sprint(i)))
		got := string(receive(s))
		check(got == fmt.Sprintf("re %d", i), "both ways: %q", got)
	}
	check(s.CloseSend() == nil && s.RecvMsg(new(wrapperspb.BytesValue)) == io.EOF, "no end")

	_, err = call(ctx, c, "/package.Service/Fails", "")
	check(status.Code(err) == codes.NotFound && status.Convert(err).Message() == "there is none: 100% sure, ä", "the origin's status: %v", err)
	fmt.Println("well")
}

// Of a method that a rule denies; and the connection goes on.
func deniedGRPC(address string) {
	c, ctx, cancel := dial(address)
	defer cancel()
	_, err := call(ctx, c, "/package.Service/Secret", "x")
	fmt.Println(status.Code(err), status.Convert(err).Message())
	s, err := c.NewStream(ctx, &service.Streams[2], "/other.Service/Both")
	check(err == nil, "%v", err)
	s.SendMsg(text("x"))
	err = s.RecvMsg(new(wrapperspb.BytesValue))
	fmt.Println(status.Code(err), status.Convert(err).Message())
	out, err := call(ctx, c, "/package.Service/Unary", "x")
	fmt.Println(status.Code(err), out)
}
