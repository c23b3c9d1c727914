"""Driver of hypervisors that libvirt manages; only this package imports libvirt-python."""
