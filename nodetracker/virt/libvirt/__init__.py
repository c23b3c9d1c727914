"""The driver of hypervisors that libvirt manages; only this package imports libvirt."""
