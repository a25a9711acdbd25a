package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	psa "k8s.io/pod-security-admission/api"
	psapolicy "k8s.io/pod-security-admission/policy"
)

// Unknown fields, fields given twice and wrong types are errors, as with kubectl's --validate=strict.
func decoder() (runtime.Decoder, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme,
		networkingv1.AddToScheme, nodev1.AddToScheme, policyv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer(), nil
}

func readObjects(files []string) ([]runtime.Object, error) {
	decode, err := decoder()
	if err != nil {
		return nil, err
	}
	var all []runtime.Object
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for i := 1; ; i++ {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if isEmpty(document) {
				continue
			}
			object, _, err := decode.Decode(document, nil, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: document %d: %w", file, i, err)
			}
			all = append(all, object)
		}
	}
	return all, nil
}

func isEmpty(document []byte) bool {
	for _, line := range strings.Split(string(document), "\n") {
		line = strings.TrimSpace(line)
		if line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// The pod that an object makes; nil: none.
func podOf(object runtime.Object) (*metav1.ObjectMeta, *corev1.PodSpec) {
	switch o := object.(type) {
	case *corev1.Pod:
		return &o.ObjectMeta, &o.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec
	}
	return nil, nil
}

type said struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Forbidden []string `json:"forbidden,omitempty"` // by the level `restricted`, as its admission says it
	Object    any      `json:"object"`              // as its type holds it: what it does not know is gone
}

func check(files []string) error {
	objects, err := readObjects(files)
	if err != nil {
		return err
	}
	admission, err := psapolicy.NewEvaluator(psapolicy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	level := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	out := json.NewEncoder(os.Stdout)
	for _, object := range objects {
		meta := object.(metav1.Object)
		s := said{Kind: object.GetObjectKind().GroupVersionKind().Kind, Namespace: meta.GetNamespace(),
			Name: meta.GetName(), Object: object}
		if podMeta, pod := podOf(object); pod != nil {
			for _, result := range admission.EvaluatePod(level, podMeta, pod) {
				if !result.Allowed {
					s.Forbidden = append(s.Forbidden, result.ForbiddenReason+": "+result.ForbiddenDetail)
				}
			}
		}
		if err := out.Encode(s); err != nil {
			return err
		}
	}
	return nil
}
