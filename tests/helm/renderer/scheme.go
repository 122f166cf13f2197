// Package scheme stands for k8s.io/client-go/kubernetes/scheme, which registers the types of every API
// of Kubernetes. Compiling those takes a third of the time of a build, and rendering a chart needs only
// the names of the APIs. The rule of `helm lint` that looks for deprecated APIs finds nothing here.
package scheme

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

var (
	Scheme         = runtime.NewScheme()
	Codecs         = serializer.NewCodecFactory(Scheme)
	ParameterCodec = runtime.NewParameterCodec(Scheme)
	AddToScheme    = func(*runtime.Scheme) error { return nil }
)

// versions are those that Helm shows to charts as .Capabilities.APIVersions (test_cluster.py compares).
var versions = map[string][]string{
	"":                             {"v1"},
	"admissionregistration.k8s.io": {"v1", "v1alpha1", "v1beta1"},
	"apps":                         {"v1", "v1beta1", "v1beta2"},
	"authentication.k8s.io":        {"v1", "v1alpha1", "v1beta1"},
	"authorization.k8s.io":         {"v1", "v1beta1"},
	"autoscaling":                  {"v1", "v2"},
	"batch":                        {"v1", "v1beta1"},
	"certificates.k8s.io":          {"v1", "v1alpha1", "v1beta1"},
	"coordination.k8s.io":          {"v1", "v1alpha2", "v1beta1"},
	"discovery.k8s.io":             {"v1", "v1beta1"},
	"events.k8s.io":                {"v1", "v1beta1"},
	"extensions":                   {"v1beta1"},
	"flowcontrol.apiserver.k8s.io": {"v1", "v1beta1", "v1beta2", "v1beta3"},
	"internal.apiserver.k8s.io":    {"v1alpha1"},
	"lifecycle.k8s.io":             {"v1alpha1"},
	"networking.k8s.io":            {"v1", "v1beta1"},
	"node.k8s.io":                  {"v1", "v1alpha1", "v1beta1"},
	"policy":                       {"v1", "v1beta1"},
	"rbac.authorization.k8s.io":    {"v1", "v1alpha1", "v1beta1"},
	"resource.k8s.io":              {"v1", "v1alpha3", "v1beta1", "v1beta2"},
	"scheduling.k8s.io":            {"v1", "v1alpha3", "v1beta1"},
	"storage.k8s.io":               {"v1", "v1alpha1", "v1beta1"},
	"storagemigration.k8s.io":      {"v1", "v1beta1"},
}

func init() {
	for group, names := range versions {
		for _, name := range names {
			v1.AddToGroupVersion(Scheme, schema.GroupVersion{Group: group, Version: name})
		}
	}
}
