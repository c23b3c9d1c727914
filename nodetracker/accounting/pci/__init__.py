"""PCI devices and GPUs: state, pools, matching and admission."""
