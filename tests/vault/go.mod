module stile.test/vault

go 1.25

require (
	github.com/hashicorp/go-hclog v1.6.3
	github.com/hashicorp/vault v1.21.4
	github.com/hashicorp/vault-plugin-secrets-kv v0.25.0
	github.com/hashicorp/vault/sdk v0.21.0
)

// What vault v1.21.4 is built with is its own folder sdk/, which goes by this version better than by the one it names.
replace github.com/hashicorp/vault/sdk => github.com/hashicorp/vault/sdk v0.20.0
