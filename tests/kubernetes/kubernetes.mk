# docker/kubernetes/*.yaml out of the chart and docker/kubernetes/values/, by Helm's own engine.
KUBERNETES := docker/kubernetes
KUBERNETES_TOOL := $(BUILD)/clients/kubernetes/kubernetes

.PHONY: manifests
manifests:
	@sh tests/install-deps.sh kubernetes
	@for name in gateway sandbox sidecar; do \
		case $$name in sandbox) only=example.yaml,runtimeclass.yaml ;; *) only= ;; esac; \
		{ echo "# Of chart/ with values/$$name.yaml: change those, then \`make manifests\`."; \
			ONLY=$$only $(KUBERNETES_TOOL) render $(KUBERNETES)/chart stile stile \
				$(KUBERNETES)/values/$$name.yaml; } >$(KUBERNETES)/$$name.yaml.new && \
		mv $(KUBERNETES)/$$name.yaml.new $(KUBERNETES)/$$name.yaml || exit 1; \
	done
