"""What the ledger's tests have in common."""

USAGE = {
    "pcpus_used",
    "vcpus_used",
    "memory_mb_used",
    "local_gb_used",
    "free_ram_mb",
    "free_disk_gb",
    "cpu_used",
    "disk_used",
}
