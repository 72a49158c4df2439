package app

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/stageset/stageset/admission/certs"
	"github.com/stageset/stageset/policies/builtin"
	"github.com/stageset/stageset/process"
)

// maxNameLength leaves room for "-admission" in the name of a Service.
const maxNameLength = 53

// minRenewBefore is far longer than the settling of a new certificate.
const minRenewBefore = 30 * time.Second

// Options are the flags of stageset-admission.
type Options struct {
	// Name is the release's name; the names of all objects that the program uses begin with it.
	Name string
	// Namespace is the one that the program runs in, with its Secret and Lease.
	Namespace string
	// Kubeconfig is the path of a kubeconfig file; empty means the ServiceAccount of the Pod.
	Kubeconfig string
	// Policies say how the built-in policies are set.
	Policies builtin.Flags
	// Watch are the namespaces whose StageSets are audited.
	Watch process.Watch

	// WebhookHost and WebhookPort are where the webhooks are served; an empty host is every address.
	WebhookHost string
	WebhookPort int
	// CertDNSNames are the names that the API server reaches the webhooks by.
	CertDNSNames []string
	// CertProvider is who makes the certificate, CertDir where the files of certs.ProviderFiles are.
	CertProvider string
	CertDir      string
	// CertLifetime is how long the certificates of certs.ProviderSecret last.
	CertLifetime certs.Lifetime
	// MaxInFlight is how many requests are evaluated at a time.
	MaxInFlight int
	// DrainDelay is how long requests are still served after readiness is gone.
	DrainDelay time.Duration

	// HealthProbeBindAddress and MetricsBindAddress are where probes and metrics are served; "0" serves none.
	HealthProbeBindAddress string
	MetricsBindAddress     string
	// LeaderElect lets one replica of several write the caBundle; without it, each does.
	LeaderElect bool
	// Debug is where profiles are served.
	Debug process.Debug
	// Logging is how the program logs.
	Logging process.Logging
	// Tracing is whether traces are sent.
	Tracing process.Tracing
}

// AddFlags adds a flag for every option, with its default.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Name, "name", "stageset",
		"Name of the release. The certificate's Secret is NAME-admission-tls, the Lease and both webhook configurations are"+
			" NAME-admission.")
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"Namespace that this program runs in. Defaults to the environment variable POD_NAMESPACE.")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "",
		"Path of a kubeconfig file. Without it, the ServiceAccount of the Pod is used.")
	o.Policies.AddFlags(flags)
	o.Watch.AddFlags(flags)
	flags.StringVar(&o.WebhookHost, "webhook-host", "", "Address to serve the webhooks on. Empty means every address.")
	flags.IntVar(&o.WebhookPort, "webhook-port", 9443, "Port to serve the webhooks on.")
	o.addCertificateFlags(flags)
	flags.IntVar(&o.MaxInFlight, "max-in-flight", 200,
		"Requests that are evaluated at a time. More are asked to come back in a second.")
	flags.DurationVar(&o.DrainDelay, "drain-delay", 10*time.Second,
		"How long to serve on after SIGTERM, once readiness is gone. At least as long as it takes for every API server to hear"+
			" of it, and shorter than the Pod's terminationGracePeriodSeconds.")
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", ":8081",
		`Address to serve /healthz and /readyz on. "0" serves none.`)
	flags.StringVar(&o.MetricsBindAddress, "metrics-bind-address", ":8080", `Address to serve /metrics on. "0" serves none.`)
	flags.BoolVar(&o.LeaderElect, "leader-elect", true,
		"Elect one replica that writes the caBundle. Every replica serves, elected or not.")
	o.Debug.AddFlags(flags)
	o.Logging.AddFlags(flags)
	o.Tracing.AddFlags(flags)
}

const day = 24 * time.Hour

func (o *Options) addCertificateFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.CertDNSNames, "cert-dns-names", nil,
		"DNS names that the API server reaches the webhooks by. Defaults to NAME-admission.NAMESPACE.svc.")
	flags.StringVar(&o.CertProvider, "cert-provider", string(certs.ProviderSecret),
		`Who makes the serving certificate. "secret": this program, which keeps it in its Secret, renews it and writes the`+
			` caBundle. "files": somebody else, who also writes the caBundle, such as cert-manager; --cert-dir says where it is.`)
	flags.StringVar(&o.CertDir, "cert-dir", "",
		"Directory with tls.crt, tls.key and, if there is one, ca.crt, for --cert-provider=files. Changes are noticed.")
	flags.DurationVar(&o.CertLifetime.Leaf, "cert-validity", 365*day, "How long a new serving certificate is valid.")
	flags.DurationVar(&o.CertLifetime.CA, "cert-ca-validity", 10*365*day, "How long a new CA is valid.")
	flags.DurationVar(&o.CertLifetime.RenewBefore, "cert-renew-before", 90*day,
		"How long before its end the serving certificate or the CA is replaced.")
}

// Complete fills in the defaults that depend on other options, which must be valid.
func (o *Options) Complete() {
	if len(o.CertDNSNames) == 0 {
		o.CertDNSNames = []string{o.objectName() + "." + o.Namespace + ".svc"}
	}
}

// Validate says everything that is wrong, naming the flag.
func (o *Options) Validate() error {
	var problems []error
	refuse := func(flag, format string, args ...any) {
		problems = append(problems, fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...)))
	}
	for _, problem := range validation.IsDNS1123Label(o.Name) {
		refuse("name", "%q: %s", o.Name, problem)
	}
	if len(o.Name) > maxNameLength {
		refuse("name", "%q: at most %d characters", o.Name, maxNameLength)
	}
	if o.Namespace == "" {
		refuse("namespace", "is required, as the environment variable POD_NAMESPACE is not set")
	} else {
		for _, problem := range validation.IsDNS1123Label(o.Namespace) {
			refuse("namespace", "%q: %s", o.Namespace, problem)
		}
	}
	if o.WebhookPort < 1 || o.WebhookPort > 65535 {
		refuse("webhook-port", "%d is not a port: 1 to 65535", o.WebhookPort)
	}
	o.validateCertificate(refuse)
	if o.MaxInFlight < 1 {
		refuse("max-in-flight", "%d: at least 1", o.MaxInFlight)
	}
	if o.DrainDelay < 0 || o.DrainDelay > 10*time.Minute {
		refuse("drain-delay", "%s: 0s to 10m", o.DrainDelay)
	}
	return errors.Join(append(problems, o.Policies.Validate(), o.Watch.Validate(), o.Debug.Validate(),
		o.Logging.Validate(), o.Tracing.Validate())...)
}

func (o *Options) validateCertificate(refuse func(flag, format string, args ...any)) {
	for _, name := range o.CertDNSNames {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			refuse("cert-dns-names", "%q: %s", name, problem)
		}
	}
	switch certs.Provider(o.CertProvider) {
	case certs.ProviderSecret:
		if o.CertDir != "" {
			refuse("cert-dir", "%q is for --cert-provider=files alone", o.CertDir)
		}
	case certs.ProviderFiles:
		if o.CertDir == "" {
			refuse("cert-dir", "is required by --cert-provider=files")
		}
	default:
		refuse("cert-provider", "%q: secret or files", o.CertProvider)
	}
	lifetime := o.CertLifetime
	if lifetime.RenewBefore < minRenewBefore {
		refuse("cert-renew-before", "%s: at least %s, which changing over may take", lifetime.RenewBefore, minRenewBefore)
	}
	if lifetime.Leaf <= lifetime.RenewBefore {
		refuse("cert-validity", "%s: longer than --cert-renew-before, which is %s", lifetime.Leaf, lifetime.RenewBefore)
	}
	if lifetime.CA < lifetime.Leaf {
		refuse("cert-ca-validity", "%s: at least --cert-validity, which is %s", lifetime.CA, lifetime.Leaf)
	}
}

// objectName is the name of the Lease, the Service and both webhook configurations.
func (o *Options) objectName() string { return o.Name + "-admission" }

// secretName is the name of the Secret that holds the certificate.
func (o *Options) secretName() string { return o.objectName() + "-tls" }
