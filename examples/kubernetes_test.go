// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// An object is one of kubernetes.yaml, or a part of one.
type object map[string]any

// at returns the value at a path such as "spec.template", or nil.
func (o object) at(path string) any {
	var v any = map[string]any(o)
	for name := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func (o object) part(path string) object { m, _ := o.at(path).(map[string]any); return m }

func (o object) parts(path string) (list []object) {
	values, _ := o.at(path).([]any)
	for _, v := range values {
		list = append(list, v.(map[string]any))
	}
	return list
}

func kubernetes(t *testing.T) (list []object) {
	d := yaml.NewDecoder(strings.NewReader(deployFile(t, "kubernetes.yaml")))
	for {
		var o map[string]any
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		list = append(list, o)
	}
}

// TestKubernetes checks what kubectl would not: that selectors select, ports are there, and no container lacks its probes, its
// resources or a part of the restricted pod security standard.
func TestKubernetes(t *testing.T) {
	objects := kubernetes(t)
	pods := map[string]object{} // the templates by their label app
	kinds := map[string]int{}
	for _, o := range objects {
		kinds[o.at("kind").(string)]++
		if template := o.part("spec.template"); template != nil {
			app := template.at("metadata.labels.app").(string)
			require.Equal(t, app, o.at("spec.selector.matchLabels.app"))
			pods[app] = template.part("spec")
		}
	}
	require.Equal(t, map[string]int{"Secret": 1, "Service": 2, "StatefulSet": 1, "Deployment": 1, "PodDisruptionBudget": 1, "NetworkPolicy": 2}, kinds)
	require.Len(t, pods, 2)
	portOf := func(app any) any {
		require.Contains(t, pods, app)
		return pods[app.(string)].parts("containers")[0].parts("ports")[0]["containerPort"]
	}
	for _, o := range objects {
		switch o["kind"] {
		case "Service":
			require.Equal(t, portOf(o.at("spec.selector.app")), o.parts("spec.ports")[0]["targetPort"])
		case "PodDisruptionBudget":
			require.Equal(t, 1, o.at("spec.minAvailable"))
			portOf(o.at("spec.selector.matchLabels.app"))
		case "NetworkPolicy":
			app := o.at("spec.podSelector.matchLabels.app")
			require.Equal(t, portOf(app), o.parts("spec.ingress")[0].parts("ports")[0]["port"])
			for _, rule := range o.parts("spec.egress") {
				for _, to := range rule.parts("to") {
					require.Equal(t, portOf(to.at("podSelector.matchLabels.app")), rule.parts("ports")[0]["port"])
				}
			}
			require.Equal(t, []any{"Ingress", "Egress"}, o.at("spec.policyTypes"))
		}
	}
	for app, pod := range pods {
		require.Equal(t, true, pod.at("securityContext.runAsNonRoot"), app)
		require.Equal(t, "RuntimeDefault", pod.at("securityContext.seccompProfile.type"), app)
		require.Equal(t, false, pod["automountServiceAccountToken"], app)
		require.Greater(t, pod["terminationGracePeriodSeconds"], 10, "longer than the server's grace")
		for _, c := range pod.parts("containers") {
			require.Equal(t, false, c.at("securityContext.allowPrivilegeEscalation"), app)
			require.Equal(t, true, c.at("securityContext.readOnlyRootFilesystem"), app)
			require.Equal(t, []any{"ALL"}, c.at("securityContext.capabilities.drop"), app)
			require.NotEmpty(t, c.at("resources.requests.memory"), app)
			require.NotEmpty(t, c.at("resources.limits.memory"), app)
			live, ready := c.part("livenessProbe"), c.part("readinessProbe")
			require.NotEmpty(t, live, app)
			require.NotEmpty(t, ready, app)
			require.NotEqual(t, live, ready, app)
			for _, probe := range []object{live, ready} {
				require.NotEqual(t, "/metrics", probe.at("httpGet.path"), "a scrape is no probe")
			}
		}
	}
}
