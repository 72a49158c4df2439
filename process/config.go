package process

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// RESTConfig says how to reach the API server, and as whom: from the kubeconfig file, or, for an empty path, from the Pod.
// There is no throttle on our side: the API server's own priority and fairness decides.
func RESTConfig(kubeconfig, program string) (*rest.Config, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent(program)
	config.QPS = -1
	return config, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("not in a Pod, and no --kubeconfig: %w", err)
	}
	return config, nil
}
