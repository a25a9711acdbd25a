package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type peer struct {
	IP        string            `json:"ip"`
	Namespace string            `json:"namespace"` // "": outside of the cluster
	Labels    map[string]string `json:"labels"`
}

type question struct {
	From     peer            `json:"from"`
	To       peer            `json:"to"`
	Port     int32           `json:"port"`
	Protocol corev1.Protocol `json:"protocol"`
}

func selects(s *metav1.LabelSelector, set map[string]string) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set)), err
}

// The block itself, and its exceptions within it, which admission asks for as well.
func inBlock(b *networkingv1.IPBlock, ip netip.Addr) (bool, error) {
	cidr, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return false, err
	}
	in := cidr.Contains(ip)
	for _, text := range b.Except {
		except, err := netip.ParsePrefix(text)
		if err != nil {
			return false, err
		}
		if except != except.Masked() || except.Bits() <= cidr.Bits() || !cidr.Contains(except.Addr()) {
			return false, fmt.Errorf("%s is no proper part of %s", except, cidr)
		}
		in = in && !except.Contains(ip)
	}
	return in, nil
}

func isPeer(p networkingv1.NetworkPolicyPeer, home string, who peer) (bool, error) {
	if p.IPBlock != nil {
		ip, err := netip.ParseAddr(who.IP)
		if err != nil {
			return false, err
		}
		return inBlock(p.IPBlock, ip)
	}
	namespace := who.Namespace == home
	if p.NamespaceSelector != nil {
		var err error
		namespace, err = selects(p.NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": who.Namespace})
		if err != nil {
			return false, err
		}
	}
	if who.Namespace == "" || !namespace || p.PodSelector == nil {
		return who.Namespace != "" && namespace, nil
	}
	return selects(p.PodSelector, who.Labels)
}

func isPort(ports []networkingv1.NetworkPolicyPort, q question) (bool, error) {
	for _, p := range ports {
		if p.Port != nil && p.Port.Type == intstr.String {
			return false, fmt.Errorf("a port by its name: %s", p.Port.StrVal)
		}
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if protocol != q.Protocol {
			continue
		}
		if p.Port == nil || q.Port == p.Port.IntVal ||
			(p.EndPort != nil && q.Port > p.Port.IntVal && q.Port <= *p.EndPort) {
			return true, nil
		}
	}
	return len(ports) == 0, nil
}

func isRule(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, home string, who peer,
	q question) (bool, error) {
	port, err := isPort(ports, q)
	if err != nil || !port {
		return false, err
	}
	for _, p := range peers {
		is, err := isPeer(p, home, who)
		if err != nil || is {
			return is, err
		}
	}
	return len(peers) == 0, nil
}

// Whom no policy selects for a direction is free in it; else one rule of one of them must admit it.
func isAllowed(all []*networkingv1.NetworkPolicy, direction networkingv1.PolicyType, q question) (bool, error) {
	self, other := q.From, q.To
	if direction == networkingv1.PolicyTypeIngress {
		self, other = q.To, q.From
	}
	isolated := false
	for _, policy := range all {
		selected, err := selects(&policy.Spec.PodSelector, self.Labels)
		if err != nil {
			return false, err
		}
		if !selected || policy.Namespace != self.Namespace {
			continue
		}
		for _, t := range policy.Spec.PolicyTypes {
			isolated = isolated || t == direction
		}
		var is bool
		for _, r := range policy.Spec.Ingress {
			if direction == networkingv1.PolicyTypeIngress && !is {
				is, err = isRule(r.From, r.Ports, policy.Namespace, other, q)
			}
		}
		for _, r := range policy.Spec.Egress {
			if direction == networkingv1.PolicyTypeEgress && !is && err == nil {
				is, err = isRule(r.To, r.Ports, policy.Namespace, other, q)
			}
		}
		if is || err != nil {
			return is, err
		}
	}
	return !isolated, nil
}

// As the types of NetworkPolicy document it, on what they and their selectors hold.
func reach(files []string) error {
	objects, err := readObjects(files)
	if err != nil {
		return err
	}
	var policies []*networkingv1.NetworkPolicy
	for _, object := range objects {
		if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
			policies = append(policies, policy)
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		out, err := isAllowed(policies, networkingv1.PolicyTypeEgress, q)
		if err != nil {
			return err
		}
		in, err := isAllowed(policies, networkingv1.PolicyTypeIngress, q)
		if err != nil {
			return err
		}
		fmt.Println(out && in)
	}
	return lines.Err()
}
