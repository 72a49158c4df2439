package up

import (
	_ "embed" // the policies and stages below
	"fmt"
	"net"
)

// The addresses of Services. Nothing routes them; the first belongs to the Service "kubernetes".
const serviceRange = "10.96.0.0/16"

var serviceIP = net.IPv4(10, 96, 0, 1)

//go:embed audit-policy.yaml
var auditPolicy []byte

// etcdCommand does not wait for the disk: a cluster for tests is fast rather than safe from a power cut. It survives
// being killed. The peer port is never used, so any will do.
func etcdCommand(d *directory, p ports) []string {
	clients := etcdURL(p)
	return []string{
		"etcd",
		"--data-dir=" + d.file("etcd"),
		"--listen-client-urls=" + clients,
		"--advertise-client-urls=" + clients,
		"--listen-peer-urls=http://127.0.0.1:0",
		"--unsafe-no-fsync",
		"--logger=zap", "--log-level=warn",
	}
}

func etcdURL(p ports) string {
	return fmt.Sprintf("http://127.0.0.1:%d", p.Etcd)
}

// apiserverCommand writes every audit event as part of its request, not in batches, so that none is lost and a reader
// need not wait for a flush.
func apiserverCommand(d *directory, p ports, opts options) []string {
	command := []string{
		"kube-apiserver",
		"--etcd-servers=" + etcdURL(p),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // Endpoints may not hold loopback addresses
		fmt.Sprintf("--secure-port=%d", p.APIServer),
		"--tls-cert-file=" + d.file(servingCertificate),
		"--tls-private-key-file=" + d.file(servingKey),
		"--token-auth-file=" + d.file(tokenFile),
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=" + opts.issuer,
		"--service-account-key-file=" + d.file(accountKey),
		"--service-account-signing-key-file=" + d.file(accountKey),
		"--service-cluster-ip-range=" + serviceRange,
		"--allow-privileged=true",
		"--audit-policy-file=" + d.file("audit-policy.yaml"),
		"--audit-log-path=" + d.file("audit.log"),
		"--audit-log-mode=blocking",
		"--audit-log-maxsize=0", // never rotated, so that an offset into it stays true
	}
	if opts.trust != "" {
		command = append(command, "--authentication-config="+opts.trust)
	}
	return command
}

func controllerManagerCommand(d *directory) []string {
	return []string{
		"kube-controller-manager",
		"--kubeconfig=" + d.file("controller-manager.kubeconfig"),
		"--controllers=*",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + d.file(accountKey),
		"--root-ca-file=" + d.file(authority),
		"--leader-elect=false",
		"--secure-port=0",
		// The default of 20 a second makes a start wait for seconds, and a test for Pods.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
		// Nodes that pretend send no heartbeats. After the default of 50 s each would be lost for a moment, and every Pod that
		// runs then would be marked as not ready, which KWOK does not mend.
		"--node-monitor-grace-period=24h",
	}
}

func schedulerCommand(d *directory) []string {
	return []string{
		"kube-scheduler",
		"--kubeconfig=" + d.file("scheduler.kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
	}
}
