package up

import (
	"net"
	"testing"
)

func TestPortsAreKeptWhereTheyAreFree(t *testing.T) {
	d, err := openDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	first, err := d.choosePorts()
	if err != nil {
		t.Fatal(err)
	}
	if first.APIServer == first.Etcd || first.APIServer == 0 || first.Etcd == 0 {
		t.Fatalf("ports %+v", first)
	}
	other, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: first.Etcd})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	second, err := d.choosePorts()
	if err != nil {
		t.Fatal(err)
	}
	if second.APIServer != first.APIServer {
		t.Errorf("the apiserver's port was free and changed from %d to %d", first.APIServer, second.APIServer)
	}
	if second.Etcd == first.Etcd {
		t.Errorf("etcd's port %d is taken and was chosen", first.Etcd)
	}
}
