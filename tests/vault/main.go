// A Vault in memory, for the test that asks a real one: TLS with the certificate and key that are named, a port of its
// own, initialised and unsealed. Says {"port", "token", "key"} on stdout and ends with its stdin.
package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/hashicorp/go-hclog"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	"github.com/hashicorp/vault/builtin/credential/approle"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

type registry map[string]logical.Factory

func (r registry) Contains(name string, _ consts.PluginType) bool { return r[name] != nil }
func (r registry) Get(name string, _ consts.PluginType) (func() (interface{}, error), bool) {
	f, ok := r[name]
	return func() (interface{}, error) { return f, nil }, ok
}
func (r registry) Keys(consts.PluginType) []string { return nil }
func (r registry) DeprecationStatus(name string, _ consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, r[name] != nil
}
func (r registry) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return v
}

func main() {
	pair := must(tls.LoadX509KeyPair(os.Args[1], os.Args[2]))
	logger := hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn})
	engines := registry{"kv": kv.Factory, "leased": vault.LeasedPassthroughBackendFactory}
	methods := registry{"approle": approle.Factory}
	all := registry{"kv": kv.Factory, "leased": vault.LeasedPassthroughBackendFactory, "approle": approle.Factory}
	core := must(vault.NewCore(&vault.CoreConfig{
		Physical:           must(inmem.NewInmem(nil, logger)),
		Logger:             logger,
		DisableMlock:       true,
		LogicalBackends:    engines,
		CredentialBackends: methods,
		BuiltinRegistry:    all,
	}))
	made := must(core.Initialize(context.Background(), &vault.InitParams{
		BarrierConfig:  &vault.SealConfig{SecretShares: 1, SecretThreshold: 1},
		RecoveryConfig: &vault.SealConfig{},
	}))
	must(core.Unseal(made.SecretShares[0]))
	listener := must(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}}))
	server := &http.Server{Handler: vaulthttp.Handler.Handler(&vault.HandlerProperties{
		Core: core, ListenerConfig: &configutil.Listener{}})}
	go server.Serve(listener)
	var port int
	fmt.Sscanf(listener.Addr().String(), "127.0.0.1:%d", &port)
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"port": port, "token": made.RootToken, "key": base64.StdEncoding.EncodeToString(made.SecretShares[0])})
	io.Copy(io.Discard, os.Stdin)
}
