# A real Vault for tests/integration/test_vault.py, in build/vault/. Some nine minutes of processor time, so by hand alone;
# the tests that ask it are skipped where it was not built.
VAULT_DIR = build/vault

.PHONY: vault
vault: $(VAULT_DIR)/vault
	STILE=$(abspath $(BUILD)/stile) $(PYTHON) -m pytest -q -p no:cacheprovider tests/integration/test_vault.py -k real_one

$(VAULT_DIR)/vault: tests/vault/main.go tests/vault/go.mod
	@mkdir -p $(@D)
	cp $^ $(@D)/
	cd $(@D) && go build -mod=mod -ldflags '-s -w' -o vault .
