# libtilec, shared and static, from all folders.
